#!/usr/bin/env bash
# Average the checkpoints of the training in RUN, translate the test sets of DATA, and score the translations.
# Usage: scripts/evaluate.sh RUN DATA [TEST_SET ...] [OPTION ...]; options: fairseq-deep evaluate --help
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
fairseq_deep evaluate "$@"
