#!/usr/bin/env bash
# Admin (Liu et al., EMNLP 2020), Table 2: Post-LN, Pre-LN and Admin on IWSLT'14 De-En, WMT'14 En-De and WMT'14 En-Fr.
#
#     scripts/reproduce/admin_table2.sh [NAME ...]
#
# IWSLT has five seeds of each method, as in the paper.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
TEXT[wmt14_en_de]="VARIANT=admin"
reproduce Admin 'Table 2' "$@"
