#!/usr/bin/env bash
# Average the checkpoints of a run, translate the test sets, and score the translations.
#
#     [NAME=VALUE ...] scripts/evaluate.sh RUN DATA [TEST_SET ...]
#
#     RUN        a directory of scripts/train.sh
#     DATA       the directory made by scripts/prepare*.sh that it was trained on
#     TEST_SET   names in DATA/test_sets; default: all of them, or `test` where there is no such file
#
# It writes
#     RUN/averaged.pt                    the mean of the checkpoints
#     RUN/evaluation/TEST_SET/
#         self-check.json                what score the references would get, had they been translated
#         generate.log                   what fairseq-generate printed
#         hypotheses.tok references.tok  tokenised, without subwords, in the order of the test set
#         hypotheses.txt references.txt  detokenised translations; the references as they were published
#         score.json score.txt           all scores, each with its signature
#         signature                      one line: everything that the score depends on
# For a language model: self-check.json, eval-lm.log, score.json, score.txt and signature.
#
# Before anything is translated, the references that were binarised go the way of a translation: subwords joined,
# detokenised. With less than 99 BLEU against the published ones the script stops and shows where they differ.
#
# Every sentence of a test set is translated once, or the script stops: the translations are counted against the
# published references and against the binarised ones. What is there already is kept; with other settings the script
# stops, and OUTPUT=DIR puts the results elsewhere.
#
# Settings (of the environment):
#     AVERAGE=          last-epochs=N, last-updates=N, best=N, none (the last checkpoint), or the path of a checkpoint;
#                       default: as the published row of the configuration says; where there is none, the last 5
#                       checkpoints saved by update or 10 saved by epoch, or fewer where there are fewer
#     EMA=0             1: average the moving averages of the weights that a training with ema.store_ema keeps
#     BEAM=             default: generation.beam of the configuration
#     LENGTH_PENALTY=   default: generation.lenpen of the configuration
#     CONTEXT_WINDOW=   language models: tokens of context that are not counted; default: of the configuration
#     METRICS=          names for fairseq-deep score; default: those of the task
#     MAX_TOKENS=       size of a batch: default 4000, for speech 50000 (frames)
#     DEVICE=auto       auto, cpu or gpu
#     ACCEPT_REFERENCES=   a reason to go on where these differ; it stands in the signature
#     REMOVE_BPE= TOKENISED= LOWER_CASED=0 REFERENCES=DATA/raw   for a directory that no script has prepared:
#                       subword_nmt, sentencepiece or none, as for fairseq-generate; moses or none; 1 where all letters are
#                       small; the directory of the published references, TEST_SET.LANGUAGE. DATA/text.json says the rest
#     OUTPUT=           default: RUN/evaluation. With another directory, the mean of the checkpoints is put there too
#     MOSES=            a checkout of Moses: detokenise with its Perl script instead of sacremoses
#     DRY_RUN=0         1: only print the commands
#
# Time: minutes on a GPU. Disk: one checkpoint without its optimiser, and the text.
set -euo pipefail
{ # Read whole before it runs: an edit of this file does not reach a running job.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

AVERAGE=${AVERAGE:-}
EMA=${EMA:-0}
BEAM=${BEAM:-}
LENGTH_PENALTY=${LENGTH_PENALTY:-}
CONTEXT_WINDOW=${CONTEXT_WINDOW:-}
METRICS=${METRICS:-}
MAX_TOKENS=${MAX_TOKENS:-}
DEVICE=${DEVICE:-auto}
OUTPUT=${OUTPUT:-}
REMOVE_BPE=${REMOVE_BPE:-}
TOKENISED=${TOKENISED:-}
LOWER_CASED=${LOWER_CASED:-}
REFERENCES=${REFERENCES:-}
ACCEPT_REFERENCES=${ACCEPT_REFERENCES:-}
# What torch says on every CPU.
export PYTHONWARNINGS="ignore:'pin_memory' argument"

usage_and_exit_if_asked "$@"
(($# >= 2)) || die "give RUN DATA [TEST_SET ...]; --help says more"
run=$1 data=$2
shift 2
[[ -z $MAX_TOKENS ]] || require_number MAX_TOKENS "$MAX_TOKENS"
require_choice DEVICE "$DEVICE" auto cpu gpu
require_choice EMA "$EMA" 0 1
require_choice DRY_RUN "$DRY_RUN" 0 1
# The mark itself is fairseq's other name for these subwords.
[[ $REMOVE_BPE != '@@ ' ]] || REMOVE_BPE=subword_nmt
[[ -z $REMOVE_BPE ]] || require_choice REMOVE_BPE "$REMOVE_BPE" subword_nmt sentencepiece none
[[ -z $TOKENISED ]] || require_choice TOKENISED "$TOKENISED" moses none
[[ -z $LOWER_CASED ]] || require_choice LOWER_CASED "$LOWER_CASED" 0 1
text=("--remove-bpe=$REMOVE_BPE" "--tokenised=$TOKENISED" "--lower-cased=$LOWER_CASED" "--references=$REFERENCES")
require_package
place=${OUTPUT:-$run/evaluation}
model=${OUTPUT:-$run}/averaged.pt

step() { run "$PYTHON" -m fairseq_plugins.pipeline.evaluation "$@"; }

# into FILE COMMAND ...: the command's output in a file.
into() {
    local file=$1
    shift
    if ((DRY_RUN)); then
        printf '%s > %q\n' "$("$@")" "$file"
    else
        "$@" >"$file"
    fi
}

# The stages; each gets the name to write as its last argument.

# self_check SUBSET NAME RAW OUTPUT
self_check() {
    step check --data "$data" --raw "$3" --kind "$kind" --subset "$1" --name "$2" "--source=${plan[source]:-}" \
        "--language=${plan[target]:-}" "--configuration=${plan[configuration]:-}" "--accept=$ACCEPT_REFERENCES" \
        "${text[@]}" "$4"
}

average() { deep average "${average_flags[@]}" --output "$1" | sed 's/\.partial: /: /'; }

generate() {
    local subset=$1 file=$2
    local -a flags=(--path "$model" --gen-subset "$subset" --max-tokens "$MAX_TOKENS" --num-workers 0 "${decode_flags[@]}")
    [[ $kind != translation ]] || flags+=(--task translation --source-lang "${plan[source]}" --target-lang "${plan[target]}")
    [[ $kind != speech ]] || flags+=(--task speech_to_text)
    [[ ${plan[subwords]} == none ]] || flags+=("--remove-bpe=${plan[subwords]}")
    into "$file" deep generate "$binarised" "${flags[@]}" "${device_flags[@]}"
}

texts() { step texts --log "$1/$log" --raw "$2" --tokenised "$3" --out "$1" "$4"; }

detokenise() {
    local -a recase=()
    [[ ${plan[truecased]:-0} == 0 ]] || recase=(--recase)
    if [[ $1 == none ]]; then run cp -- "$2" "$3"; else text detokenise --language "$1" "${recase[@]}" "$2" "$3"; fi
}

score() {
    local directory=$1 new=${2%.partial}.new.json
    local -a flags=(--task "${plan[scored_as]:-speech}" --output "$directory/score.txt" --output "$new")
    [[ -z $METRICS ]] || flags+=(--metrics "$METRICS")
    [[ ${plan[lower_case]:-0} == 0 ]] || flags+=(--lower-case)
    [[ $kind != translation ]] || flags+=(--language-pair "${plan[source]}-${plan[target]}")
    [[ ${plan[tokenised]:-0} == 0 ]] || flags+=(--tokenised-hypotheses "$directory/hypotheses.tok"
        --tokenised-references "$directory/references.tok")
    deep score "$directory/hypotheses.txt" "$directory/references.txt" "${flags[@]}"
    run mv -T -- "$new" "$2"
}

eval_lm() {
    into "$2" deep eval-lm "$binarised" --path "$model" --gen-subset "$1" --max-tokens "$MAX_TOKENS" --num-workers 0 \
        "${decode_flags[@]}" "${device_flags[@]}"
}

perplexity() { step perplexity --log "$1/$log" --raw "$2" "$3"; }

# One function for each kind of model: SUBSET NAME DIRECTORY RAW.

evaluate_translation() {
    local directory=$3 language=${plan[target]}
    make_once "$directory/$log" generate "$1"
    make_once "$directory/hypotheses.tok" texts "$directory" "$4" "$data/text/$2.tok.$language"
    [[ ${plan[tokenised]} == 1 ]] || language=none
    make_once "$directory/hypotheses.txt" detokenise "$language" "$directory/hypotheses.tok"
    make_once "$directory/score.json" score "$directory"
}

evaluate_speech() {
    make_once "$3/$log" generate "$1"
    make_once "$3/hypotheses.tok" texts "$3" "$4" ""
    make_once "$3/hypotheses.txt" detokenise none "$3/hypotheses.tok"
    make_once "$3/score.json" score "$3"
}

evaluate_language_model() {
    make_once "$3/$log" eval_lm "$1"
    make_once "$3/score.json" perplexity "$3" "$4"
}

sign() {
    into "${!#}" step signature --run "$run" --place "$1" --model "$model" --average "${plan[average]}" \
        --updates "${plan[updates]}" --beam "${plan[beam]:-}" --length-penalty "${plan[length_penalty]:-}"
}

# What is to be done, as Python finds it out: one value for each name, or several.
if ((DRY_RUN)) && [[ ! -d $run ]]; then
    say "# $run is not there yet, so neither is what its configuration says about decoding"
    exit 0
fi
ema=()
((!EMA)) || ema=(--ema)
lines=$("$PYTHON" -m fairseq_plugins.pipeline.evaluation plan "--average=$AVERAGE" "--beam=$BEAM" "--metrics=$METRICS" \
    "--length-penalty=$LENGTH_PENALTY" "--context-window=$CONTEXT_WINDOW" --device "$DEVICE" "${ema[@]}" "${text[@]}" -- \
    "$run" "$data" "$@")
declare -A plan=()
average_flags=() decode_flags=() device_flags=() search=() subsets=() names=() published=()
while IFS=$'\t' read -r name value; do
    case $name in
        average_flag) average_flags+=("$value") ;;
        decode_flag) decode_flags+=("$value") ;;
        setting) search+=("$value") ;;
        test_set)
            IFS=$'\t' read -r subset name value <<<"$value"
            subsets+=("$subset") names+=("$name") published+=("$value")
            ;;
        *) plan[$name]=$value ;;
    esac
done <<<"$lines"
kind=${plan[kind]} binarised=${plan[data]} log=generate.log
[[ $kind != language_model ]] || log=eval-lm.log
[[ $kind != speech ]] || MAX_TOKENS=${MAX_TOKENS:-50000}
MAX_TOKENS=${MAX_TOKENS:-4000}
((!plan[cpu])) || device_flags+=(--cpu)
# A bar for a reader, nothing for a file.
[[ -t 2 ]] || device_flags+=(--no-progress-bar --log-format none)

claim "$place"
((plan[finished])) || say "$run: the training has not finished; evaluating what is there after ${plan[updates]} updates"
# forget_unless_made SETTINGS RESULT: the one without the other says nothing, and is removed.
forget_unless_made() {
    ((!DRY_RUN)) || return 0
    [[ -e $1 && -e $2 ]] || rm -f -- "$@"
}

made_with=("average=${plan[average]}" "updates=${plan[updates]}")
forget_unless_made "$place/settings" "$model"
remember_settings "$place" "${made_with[@]}"
say "$run: ${plan[average]}${plan[beam]:+, beam ${plan[beam]}, length penalty ${plan[length_penalty]}}"
for index in "${!names[@]}"; do
    make_once "$place/${names[index]}/self-check.json" \
        self_check "${subsets[index]}" "${names[index]}" "${published[index]}"
done
make_once "$model" average

for index in "${!names[@]}"; do
    name=${names[index]} directory=$place/${names[index]}
    ((DRY_RUN)) || mkdir -p -- "$directory"
    forget_unless_made "$directory/settings" "$directory/$log"
    remember_settings "$directory" "${made_with[@]}" "subset=${subsets[index]}" "${search[@]}" \
        "metrics=$METRICS"
    "evaluate_$kind" "${subsets[index]}" "$name" "$directory" "${published[index]}"
    make_once "$directory/signature" sign "$directory"
    ((DRY_RUN)) || cat -- "$directory/score.txt" "$directory/signature"
done
}; exit
