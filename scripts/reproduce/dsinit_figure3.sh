#!/usr/bin/env bash
# DS-Init and merged attention (Zhang et al., EMNLP 2019), Figure 3: WMT'14 English-German, base size, 18 and 30 layers; those of 6, 12 and 20 are in Table 3.
#
#     scripts/reproduce/dsinit_figure3.sh [NAME ...]
# Settings: OUT=DIR DATA=DIR SEEDS="1 2" SMOKE=1 DRY_RUN=1 ARCHIVE_DIR=DIR, and those of train.sh and evaluate.sh;
# fairseq-deep reproduce --help says what they are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
usage_and_exit_if_asked "$@"
require_package
exec "$PYTHON" -m fairseq_plugins.cli reproduce DS-Init 'Figure 3' "$@" \
    --prepare wmt14_en_de:VARIANT=dsinit \
    --from-environment
