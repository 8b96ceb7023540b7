#!/usr/bin/env bash
# Train, average, decode and score several configurations with several seeds on one prepared corpus, and compare them.
#
#     scripts/compare.sh DATA OUT CONFIG [CONFIG ...] [KEY=VALUE ...]
#
#   DATA       directory that scripts/prepare.sh made
#   OUT        OUT/<configuration>/seed<N> for each run, OUT/report for the comparison
#   CONFIG     YAML files; the first is what the others are tested against
#   KEY=VALUE  Hydra overrides for all of them, as model.encoder_layers=3
#
# Settings, before the command: SEEDS="1 2 3" (that is also the default), BASELINE=NAME for another baseline than the
# first CONFIG, DRY_RUN=1 to print the commands, and all settings of train.sh and evaluate.sh (PRECISION, PROCESSES,
# AVERAGE, BEAM, ...).
#
# Each run is trained after the other, on all GPUs (PARALLEL=N: so many at a time). Stopped anywhere, the same command continues; a second run of it
# only makes the report anew. A training that diverges is a row of the report.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
usage_and_exit_if_asked "$@"
require_package
exec "$PYTHON" -m fairseq_plugins.cli compare --from-environment "$@"
