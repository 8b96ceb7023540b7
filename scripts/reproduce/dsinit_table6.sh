#!/usr/bin/env bash
# DS-Init and merged attention (Zhang et al., EMNLP 2019), Table 6: WMT'14 English-German, big size, 6 to 20 layers.
#
#     scripts/reproduce/dsinit_table6.sh [NAME ...]
#
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
TEXT[wmt14_en_de]="SIZE=32000 JOINED=0"
reproduce DS-Init 'Table 6' "$@"
