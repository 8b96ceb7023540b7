#!/usr/bin/env bash
# Train one configuration on all GPUs, or on the CPU without one; the same command resumes.
#
#     [SETTING=VALUE ...] scripts/train.sh CONFIG DATA RUN [KEY=VALUE ...]
#
#     scripts/train.sh configs/multi30k_de_en/admin_3e3d.yaml data/multi30k runs/admin
#     PROCESSES=2 scripts/train.sh configs/multi30k_de_en/admin_3e3d.yaml data/multi30k runs/admin common.seed=2
#
# It writes RUN/run.json, RUN/train.log, RUN/checkpoints/ and, at the end, RUN/finished.
# Settings: the options of `fairseq-deep run --help`, in capitals: PROCESSES=2 is --processes 2. See docs/running.md.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
from_environment run "$@"
