#!/usr/bin/env bash
# Admin (Liu et al., EMNLP 2020), Table 1: Post-LN, Pre-LN, and a Post-LN encoder with a Pre-LN decoder, 18 layers each,
# on WMT'14 English-German.
# The paper reports that only Pre-LN converges.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
replaced_by reproduce Admin 'Table 1' "$@"
