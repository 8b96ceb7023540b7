#!/usr/bin/env bash
# DS-Init and merged attention (Zhang et al., EMNLP 2019), Figure 3: WMT'14 English-German, base size, 6 to 30 layers.
# --out runs/dsinit_table3 does not train again what Table 3 has, 6, 12 and 20 layers.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
replaced_by reproduce DS-Init 'Figure 3' "$@"
