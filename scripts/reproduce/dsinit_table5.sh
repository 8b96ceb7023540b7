#!/usr/bin/env bash
# DS-Init and merged attention (Zhang et al., EMNLP 2019), Table 5: four more language pairs.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
replaced_by reproduce DS-Init 'Table 5' "$@" \
    --prepare iwslt14_de_en:VARIANT=dsinit \
    --prepare wmt14_en_fr:VARIANT=dsinit
