#!/usr/bin/env bash
# DS-Init and merged attention (Zhang et al., EMNLP 2019), Table 5: four more language pairs.
#
#     scripts/reproduce/dsinit_table5.sh [NAME ...]
# Settings: OUT=DIR DATA=DIR SEEDS="1 2" SMOKE=1 DRY_RUN=1 ARCHIVE_DIR=DIR, and those of train.sh and evaluate.sh;
# fairseq-deep reproduce --help says what they are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
usage_and_exit_if_asked "$@"
require_package
exec "$PYTHON" -m fairseq_plugins.cli reproduce DS-Init 'Table 5' "$@" \
    --prepare iwslt14_de_en:VARIANT=dsinit \
    --prepare wmt14_en_fr:VARIANT=dsinit \
    --from-environment
