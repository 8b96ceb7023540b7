#!/usr/bin/env bash
# Train CONFIG on DATA in the directory RUN, on all GPUs, or on the CPU without one; the same command resumes.
# Usage: scripts/train.sh CONFIG DATA RUN [KEY=VALUE ...] [OPTION ...]; options: fairseq-deep run --help
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
replaced_by run "$@"
