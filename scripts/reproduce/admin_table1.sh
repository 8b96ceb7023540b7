#!/usr/bin/env bash
# Admin (Liu et al., EMNLP 2020), Table 1: Post-LN, Pre-LN, and a Post-LN encoder with a Pre-LN decoder, 18 layers each, on WMT'14 English-German.
#
#     scripts/reproduce/admin_table1.sh [NAME ...]
#
# The paper reports that only Pre-LN converges.
# Settings: OUT=DIR DATA=DIR SEEDS="1 2" SMOKE=1 DRY_RUN=1 ARCHIVE_DIR=DIR, and those of train.sh and evaluate.sh;
# fairseq-deep reproduce --help says what they are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
usage_and_exit_if_asked "$@"
require_package
exec "$PYTHON" -m fairseq_plugins.cli reproduce Admin 'Table 1' "$@" \
    --prepare wmt14_en_de:VARIANT=admin \
    --from-environment
