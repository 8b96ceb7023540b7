#!/usr/bin/env bash
# Every table of speed for one GPU: benchmarks/gpu.sh [OPTIONS OF run_all.py]
# Writes benchmarks/results/gpu_NAME.md after each table; after 25 minutes it ends with what there is.
set -euo pipefail
cd "$(dirname "$0")/.."
exec timeout 1500 "${PYTHON:-python3}" benchmarks/run_all.py --gpu "$@"
