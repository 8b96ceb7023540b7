#!/usr/bin/env bash
# DS-Init and merged attention (Zhang et al., EMNLP 2019), Table 5: four more language pairs.
#
#     scripts/reproduce/dsinit_table5.sh [NAME ...]
#
# The corpora of WMT'18 (English-Finnish, Chinese-English) have no preparation script: put them through
# scripts/prepare.sh into DATA/wmt18_en_fi and DATA/wmt18_zh_en.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
TEXT[iwslt14_de_en]="SIZE=30000 JOINED=0"
TEXT[wmt14_en_fr]="SIZE=32000 JOINED=0"
reproduce DS-Init 'Table 5' "$@"
