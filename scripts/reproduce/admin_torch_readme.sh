#!/usr/bin/env bash
# Admin-Torch (github.com/microsoft/admin-torch), README: 6, 18 and 100 layers on WMT'14 English-German.
#
#     scripts/reproduce/admin_torch_readme.sh [NAME ...]
#
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
TEXT[wmt14_en_de]="VARIANT=admin"
reproduce admin-torch README "$@"
