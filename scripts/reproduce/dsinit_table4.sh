#!/usr/bin/env bash
# DS-Init and merged attention (Zhang et al., EMNLP 2019), Table 4: BLEU and perplexity on newstest2013, the development
# set, of seven trainings of Table 3.
# With the OUT of a finished dsinit_table3.sh nothing is trained again. The perplexity is in evaluation/valid/validate.log
# of each run. The columns on training text are left out: the 3,000 pairs were drawn at random.
# Settings: OUT, DATA, MAX_TOKENS.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
read_settings "$@"
OUT=${OUT:-$ROOT/runs/dsinit_table4} DATA=${DATA:-$OUT/data}
(replaced_by reproduce DS-Init 'Table 4' "${words[@]}")
for run in "$OUT"/wmt14_en_de/*/seed*; do
    log=$run/evaluation/valid/validate.log
    # A training that diverged has no average, and those of Table 3 alone are not evaluated here.
    [[ $DRY_RUN == 0 && -e $run/averaged.pt && -d $run/evaluation/valid && ! -e $log ]] || continue
    "$PYTHON" -m fairseq_plugins.tools.cli validate "$DATA/wmt14_en_de/data-bin" --path "$run/averaged.pt" \
        --max-tokens "${MAX_TOKENS:-4000}" --no-progress-bar >"$log.partial"
    mv -- "$log.partial" "$log"
done
