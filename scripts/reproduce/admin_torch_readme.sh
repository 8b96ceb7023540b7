#!/usr/bin/env bash
# Admin-Torch (github.com/microsoft/admin-torch), README: 6, 18 and 100 layers on WMT'14 English-German.
#
#     scripts/reproduce/admin_torch_readme.sh [NAME ...]
#
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
prepare() {
    case $1 in
        wmt14_en_de) VARIANT='admin' prepared "$@" ;;
        *) prepared "$@" ;;
    esac
}
reproduce admin-torch README "$@"
