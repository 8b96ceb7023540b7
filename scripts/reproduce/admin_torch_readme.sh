#!/usr/bin/env bash
# Admin-Torch (github.com/microsoft/admin-torch), README: 6, 18 and 100 layers on WMT'14 English-German.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
replaced_by reproduce admin-torch README "$@"
