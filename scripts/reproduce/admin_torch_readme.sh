#!/usr/bin/env bash
# Admin-Torch (github.com/microsoft/admin-torch), README: 6, 18 and 100 layers on WMT'14 English-German.
# Usage: [OUT=DIR SMOKE=1 ...] scripts/reproduce/admin_torch_readme.sh [NAME ...]; settings: fairseq-deep reproduce --help
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
from_environment reproduce admin-torch README "$@" --prepare wmt14_en_de:VARIANT=admin
