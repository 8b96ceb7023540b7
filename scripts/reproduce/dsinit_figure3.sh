#!/usr/bin/env bash
# DS-Init and merged attention (Zhang et al., EMNLP 2019), Figure 3: WMT'14 English-German, base size, 18 and 30 layers;
# those of 6, 12 and 20 are in Table 3.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
from_environment reproduce DS-Init 'Figure 3' "$@" --prepare wmt14_en_de:VARIANT=dsinit
