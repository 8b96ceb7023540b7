#!/usr/bin/env bash
# DS-Init and merged attention (Zhang et al., EMNLP 2019), Table 5: four more language pairs.
# Usage: [OUT=DIR SMOKE=1 ...] scripts/reproduce/dsinit_table5.sh [NAME ...]; settings: fairseq-deep reproduce --help
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
from_environment reproduce DS-Init 'Table 5' "$@" \
    --prepare iwslt14_de_en:VARIANT=dsinit \
    --prepare wmt14_en_fr:VARIANT=dsinit
