#!/usr/bin/env bash
# ReZero (Bachlechner et al., UAI 2021), Tables 2 and 3: language models of the bytes of enwik8, 12 to 128 layers.
#
#     scripts/reproduce/rezero_enwik8.sh [NAME ...]
#
# TABLE=2 or TABLE=3 runs one of the two tables; default: 2.
# Settings: OUT=DIR DATA=DIR SEEDS="1 2" SMOKE=1 DRY_RUN=1 ARCHIVE_DIR=DIR, and those of train.sh and evaluate.sh;
# fairseq-deep reproduce --help says what they are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
usage_and_exit_if_asked "$@"
require_package
exec "$PYTHON" -m fairseq_plugins.cli reproduce ReZero "Table ${TABLE:-2}" "$@" --from-environment
