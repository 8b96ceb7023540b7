#!/usr/bin/env bash
# Admin-Torch (github.com/microsoft/admin-torch), README: 6, 18 and 100 layers on WMT'14 English-German.
#
#     scripts/reproduce/admin_torch_readme.sh [NAME ...]
# Settings: OUT=DIR DATA=DIR SEEDS="1 2" SMOKE=1 DRY_RUN=1 ARCHIVE_DIR=DIR, and those of train.sh and evaluate.sh;
# fairseq-deep reproduce --help says what they are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
usage_and_exit_if_asked "$@"
require_package
exec "$PYTHON" -m fairseq_plugins.cli reproduce admin-torch README "$@" \
    --prepare wmt14_en_de:VARIANT=admin \
    --from-environment
