#!/usr/bin/env bash
# ReZero (Bachlechner et al., UAI 2021), Tables 2 and 3: language models of the bytes of enwik8, 12 to 128 layers.
#
#     scripts/reproduce/rezero_enwik8.sh [NAME ...]
#
# TABLE=2 or TABLE=3 runs one of the two tables; default: 2.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
reproduce ReZero "Table ${TABLE:-2}" "$@"
