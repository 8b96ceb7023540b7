#!/usr/bin/env bash
# Admin (Liu et al., EMNLP 2020), appendix E: ReZero and ReZero with Post-LN on IWSLT'14 De-En.
#
#     scripts/reproduce/admin_appendixe.sh [NAME ...]
#
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
reproduce Admin 'Appendix E' "$@"
