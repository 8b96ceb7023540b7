#!/usr/bin/env bash
# benchmarks/gpu.sh [OPTIONS OF run_all.py]
#     Every table of speed for one GPU, for at most 25 minutes; each cell is added to benchmarks/results/SCRIPT.tsv.
# benchmarks/gpu.sh --minutes 10 [--output DIR] [--data DIR]
#     The effect of CUDA graphs, most important first, within so many minutes: eager numbers, bit for bit;
#     updates; search; a training of each of two methods on DIR, which fairseq-deep prepare has made; 60-12 layers.
#     Each part adds to DIR/KIND.tsv what it prints, line by line, and writes DIR/NAME.log (default: benchmarks/results).
# $PYTHON is the interpreter. $TESTS, $REAL_GPU and $TRAINING are there for the test of this script.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"
if [[ "${1:-}" != --minutes ]]; then
    exec timeout 1500 "$python" benchmarks/run_all.py --gpu "$@"
fi

minutes="" output=benchmarks/results data=""
while (($#)); do
    case "$1" in
        --minutes) minutes="${2:?--minutes N}" ;;
        --output) output="${2:?--output DIR}" ;;
        --data) data="${2:?--data DIR}" ;;
        *)
            echo "error: unknown option $1; legal: --minutes, --output, --data" >&2
            exit 2
            ;;
    esac
    shift 2
done
[[ "$minutes" =~ ^[1-9][0-9]*$ ]] || { echo "error: --minutes takes a whole number of at least 1, not $minutes" >&2; exit 2; }
mkdir -p "$output"
failed=()

# part KIND NAME SECONDS COMMAND...: what it prints, into DIR/KIND.tsv, and its log beside. It ends after its
# seconds, which are those of ten minutes, or when all time is over.
part() {
    local kind="$1" name="$2" most=$(($3 * minutes / 10)) left=$((60 * minutes - SECONDS)) code=0
    shift 3
    if ((left < 10)); then
        echo "$name: no time is left"
        return
    fi
    ((most < left)) || most=$left
    echo "$name: at most $most s"
    {
        timeout "$most" "$@" 2>"$output/$name.log" || {
            code=$?
            echo "Stopped with exit code $code after $SECONDS s."
            exit "$code"
        }
    } | "$python" benchmarks/run_all.py --gpu --out "$output" --keep "$kind" "$name" "${*//$PWD\//}" || code=$?
    ((code == 0 || code == 124)) || failed+=("$name")
}

updates() {
    part update_time "updates_$1_$2_$4" "$5" "$python" -W ignore benchmarks/update_time.py --device cuda --precision bf16 --vocabulary 32000 \
        --layers "$1" --decoder-layers "$2" --width "$3" --tokens "$4" --rounds "$6" --seconds "$(($5 * minutes / 15))" --threads 4
}

search() {
    part decode_time "search_$1" 45 "$python" -W ignore benchmarks/decode_time.py --device cuda --half --searches fairseq,lean,graphs \
        --methods admin --no-memory --sentences "$1" --rounds 5 --vocabulary 32000
}

# Sets its own limit of time, since a training that is killed writes no checkpoint.
training() {
    local method="$1" left=$((60 * minutes - SECONDS)) run more hours
    run="$output/run_$method"
    read -ra more <<<"${TRAINING:-}"
    ((left < 33 * minutes)) || left=$((33 * minutes))
    hours="$("$python" -c "print(max(20, ${left} / ${2} - 30) / 3600)")"
    part training "training_$method" $((10 * left / $2 / minutes)) "$python" -W ignore -m fairseq_plugins.tools.cli train "$data/data-bin" --save-dir "$run" \
        --arch "${method}_transformer" --encoder-layers 18 --decoder-layers 18 --share-all-embeddings --dropout 0.2 \
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer fused_adam --adam-betas '(0.9, 0.98)' \
        --lr 0.0007 --lr-scheduler inverse_sqrt --warmup-updates 1000 --clip-norm 1.0 --max-tokens 16000 --bf16 \
        --cuda-graphs --length-grid 1.15 --disable-validation --no-epoch-checkpoints --seed 1 --log-format simple \
        --log-interval 50 --stop-time-hours "$hours" "${more[@]}"
    [[ ! -e "$run/checkpoint_last.pt" ]] || part training "bleu_$method" 60 "$python" -W ignore -m fairseq_plugins.tools.cli generate \
        "$data/data-bin" --path "$run/checkpoint_last.pt" --gen-subset test --beam 4 --remove-bpe=sentencepiece --max-tokens 16000 \
        --scoring sacrebleu --quiet --fp16
}

tests=("test_every_precision[--bf16]" test_a_training_stopped_and_resumed_is_the_uninterrupted_one test_long_sentences)
for method in post_ln admin b2t dsinit_matt rezero hyper_connections; do
    tests+=("test_every_method[$method]")
done
[[ -z "${TESTS:-}" ]] || read -ra tests <<<"$TESTS"
REAL_GPU="${REAL_GPU-1}" part equality equality 90 "$python" -m pytest -q -p no:cacheprovider "${tests[@]/#/tests/gpu/test_graphs.py::}"
updates 6 6 512 4096 40 11
updates 18 18 512 4096 40 5
updates 100 100 256 4096 60 3
for tokens in 512 1024 15000 32000; do
    updates 6 6 512 "$tokens" 25 7
done
search 64
search 512
if [[ -d "$data/data-bin" ]]; then
    training admin 2
    training pre_ln 1
else
    echo "training: left out, since --data names no directory with data-bin"
fi
updates 60 12 512 4096 60 3
echo "$output${failed[*]:+: failed: ${failed[*]}}"
exit $((${#failed[@]} > 0))
