#!/usr/bin/env bash
# Average the checkpoints of a run, translate the test sets, and score the translations.
#
#     [SETTING=VALUE ...] scripts/evaluate.sh RUN DATA [TEST_SET ...]
#
#     scripts/evaluate.sh runs/admin data/multi30k
#     BEAM=4 LENGTH_PENALTY=0.6 scripts/evaluate.sh runs/admin data/wmt14_en_de newstest2014
#
# It writes RUN/averaged.pt, and the translations and scores of each test set to RUN/evaluation/TEST_SET/.
# Settings: the options of `fairseq-deep evaluate --help`, in capitals. See docs/evaluating.md.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
from_environment evaluate "$@"
