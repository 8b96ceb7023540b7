#!/usr/bin/env bash
# DS-Init and merged attention (Zhang et al., EMNLP 2019), Table 4: BLEU and perplexity on newstest2013, the development set, of seven trainings of Table 3.
#
#     scripts/reproduce/dsinit_table4.sh [NAME ...]
#
# With the OUT of a finished dsinit_table3.sh nothing is trained again. The perplexity is in evaluation/valid/validate.log
# of each run. The columns on training text are left out: the 3,000 pairs were drawn at random.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
TEXT[wmt14_en_de]="VARIANT=dsinit"
# validated MODEL DATA FILE: what `validate` prints of the validation set.
validated() {
    local -a command=(deep validate "$2/data-bin" --path "$1" --max-tokens "${MAX_TOKENS:-4000}" --no-progress-bar)
    if ((DRY_RUN)); then "${command[@]}"; else "${command[@]}" >"$3"; fi
}
evaluate_run() {
    run "$ROOT/scripts/evaluate.sh" "$1" "$2" valid
    make_once "$1/evaluation/valid/validate.log" validated "$1/averaged.pt" "$2"
}
reproduce DS-Init 'Table 4' "$@"
