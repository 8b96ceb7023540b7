#!/usr/bin/env bash
# Admin (Liu et al., EMNLP 2020), Table 1: Post-LN, Pre-LN, and a Post-LN encoder with a Pre-LN decoder, 18 layers each, on WMT'14 English-German.
#
#     scripts/reproduce/admin_table1.sh [NAME ...]
#
# The paper reports that only Pre-LN converges.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
TEXT[wmt14_en_de]="VARIANT=admin"
reproduce Admin 'Table 1' "$@"
