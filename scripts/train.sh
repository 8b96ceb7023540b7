#!/usr/bin/env bash
# Train one configuration on all GPUs, or on the CPU without one; the same command resumes.
#
#     scripts/train.sh CONFIG DATA RUN [KEY=VALUE ...] [OPTION ...]
#
#     scripts/train.sh configs/multi30k_de_en/admin_3e3d.yaml data/multi30k runs/admin
#     scripts/train.sh configs/multi30k_de_en/admin_3e3d.yaml data/multi30k runs/admin common.seed=2 --processes 2
#
# It writes RUN/run.json, RUN/train.log, RUN/checkpoints/ and, at the end, RUN/finished.
# Options: those of `fairseq-deep run --help`. See docs/running.md.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
exec "$PYTHON" -m fairseq_plugins.cli run "$@"
