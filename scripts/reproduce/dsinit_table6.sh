#!/usr/bin/env bash
# DS-Init and merged attention (Zhang et al., EMNLP 2019), Table 6: WMT'14 English-German, big size, 6 to 20 layers.
#
#     scripts/reproduce/dsinit_table6.sh [NAME ...]
# Settings: OUT=DIR DATA=DIR SEEDS="1 2" SMOKE=1 DRY_RUN=1 ARCHIVE_DIR=DIR, and those of train.sh and evaluate.sh;
# fairseq-deep reproduce --help says what they are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
usage_and_exit_if_asked "$@"
require_package
# Test14 is the filtered newstest2014, Test14-18 the mean of it and the four years after.
exec "$PYTHON" -m fairseq_plugins.cli reproduce DS-Init 'Table 6' "$@" \
    --prepare wmt14_en_de:VARIANT=dsinit \
    --evaluate 'newstest2014-filtered newstest2015 newstest2016 newstest2017 newstest2018' \
    --from-environment
