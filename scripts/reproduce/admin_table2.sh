#!/usr/bin/env bash
# Admin (Liu et al., EMNLP 2020), Table 2: Post-LN, Pre-LN and Admin on IWSLT'14 De-En, WMT'14 En-De and WMT'14 En-Fr.
# IWSLT has five seeds of each method, as in the paper.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
replaced_by reproduce Admin 'Table 2' "$@"
