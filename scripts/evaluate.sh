#!/usr/bin/env bash
# Average the checkpoints of a run, translate the test sets, and score the translations.
#
#     scripts/evaluate.sh RUN DATA [TEST_SET ...] [OPTION ...]
#
#     scripts/evaluate.sh runs/admin data/multi30k
#     scripts/evaluate.sh runs/admin data/wmt14_en_de newstest2014 --beam 4 --length-penalty 0.6
#
# It writes RUN/averaged.pt, and the translations and scores of each test set to RUN/evaluation/TEST_SET/.
# Options: those of `fairseq-deep evaluate --help`. See docs/evaluating.md.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
exec "$PYTHON" -m fairseq_plugins.cli evaluate "$@"
