#!/usr/bin/env bash
# DS-Init and merged attention (Zhang et al., EMNLP 2019), Table 6: WMT'14 English-German, big size, 6 to 20 layers.
#
#     scripts/reproduce/dsinit_table6.sh [NAME ...]
#
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
TEXT[wmt14_en_de]="VARIANT=dsinit"
# Test14 is the filtered newstest2014, Test14-18 the mean of it and the four years after.
evaluate_run() {
    local -a years=(newstest2014-filtered newstest2015 newstest2016 newstest2017 newstest2018)
    [[ -z ${TEST_SETS:-} ]] || read -r -a years <<<"$TEST_SETS"
    run "$ROOT/scripts/evaluate.sh" "$1" "$2" "${years[@]}"
}
reproduce DS-Init 'Table 6' "$@"
