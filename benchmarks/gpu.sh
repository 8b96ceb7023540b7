#!/usr/bin/env bash
# Every table of speed for one GPU, in under 40 minutes: benchmarks/gpu.sh [OPTIONS OF run_all.py]
set -euo pipefail
cd "$(dirname "$0")/.."
exec timeout 2400 "${PYTHON:-python3}" benchmarks/run_all.py --gpu "$@"
