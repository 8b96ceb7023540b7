#!/usr/bin/env bash
# DS-Init and merged attention (Zhang et al., EMNLP 2019), Table 3: WMT'14 English-German, base size, 6 to 20 layers,
# with all ablations.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
replaced_by reproduce DS-Init 'Table 3' "$@"
