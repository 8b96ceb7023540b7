#!/usr/bin/env bash
# DS-Init and merged attention (Zhang et al., EMNLP 2019), Table 3: WMT'14 English-German, base size, 6 to 20 layers, with all ablations.
#
#     scripts/reproduce/dsinit_table3.sh [NAME ...]
#
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
TEXT[wmt14_en_de]="VARIANT=dsinit"
reproduce DS-Init 'Table 3' "$@"
