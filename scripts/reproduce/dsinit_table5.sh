#!/usr/bin/env bash
# DS-Init and merged attention (Zhang et al., EMNLP 2019), Table 5: four more language pairs.
#
#     scripts/reproduce/dsinit_table5.sh [NAME ...]
#
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
TEXT[iwslt14_de_en]="VARIANT=dsinit"
TEXT[wmt14_en_fr]="VARIANT=dsinit"
reproduce DS-Init 'Table 5' "$@"
