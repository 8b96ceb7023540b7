#!/usr/bin/env bash
# Train, average, decode and score several configurations with several seeds on one prepared corpus, and compare them.
#
#     [SETTING=VALUE ...] scripts/compare.sh DATA OUT CONFIG [CONFIG ...] [KEY=VALUE ...]
#
#     SEEDS="1 2 3" scripts/compare.sh data/multi30k runs/two configs/multi30k_de_en/{post_ln,admin}_3e3d.yaml
#
# It writes OUT/CONFIGURATION/seedN for each run, and OUT/report. The same command continues where it was stopped.
# Settings: the options of `fairseq-deep compare --help`, in capitals. See docs/evaluating.md.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
from_environment compare "$@"
