#!/usr/bin/env bash
# Admin (Liu et al., EMNLP 2020), appendix E: ReZero, ReZero with Post-LN, FixUp and LookLinear.
#
#     scripts/reproduce/admin_appendixe.sh [NAME ...]
#
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
TEXT[wmt14_en_de]="VARIANT=admin"
reproduce Admin 'Appendix E' "$@"
