#!/usr/bin/env bash
# benchmarks/gpu_study.sh --minutes N --state DIR --data DIR
#     The study of depth at width 512 on one GPU, in bfloat16 with CUDA graphs: 18-18 and 6-6 layers of Pre-LN,
#     hyper-connections, Admin and B2T, on the text that scripts/prepare_tatoeba.sh has made in --data. For each cell,
#     three rates are swept, then the best is trained in full. The script stops after N minutes. The same command goes on
#     where it stopped, so several sittings of ten minutes will do. --state gets the trainings and results.tsv with a line
#     for each. After each cell, cells.tsv and sweep.tsv are written anew.
# $PYTHON is the interpreter. $UPDATES, $CHANGES, $METHODS and $DEPTHS replace what is below.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}" minutes="" state="" data=""
while (($#)); do
    case "$1" in
        --minutes) minutes="${2:?--minutes N}" ;;
        --state) state="$(realpath -m -- "${2:?--state DIR}")" ;;
        --data) data="$(realpath -- "${2:?--data DIR}")" ;;
        *)
            echo "error: unknown option $1; legal: --minutes, --state, --data" >&2
            exit 2
            ;;
    esac
    shift 2
done
[[ "$minutes" =~ ^[1-9][0-9]*$ ]] || {
    echo "error: --minutes takes a whole number of at least 1, not '$minutes'" >&2
    exit 2
}
[[ -n "$state" && -d "$data/data-bin" ]] || {
    echo "error: --state DIR and --data DIR are needed; scripts/prepare_tatoeba.sh makes the second" >&2
    exit 2
}
mkdir -p "$state"
read -ra methods <<<"${METHODS:-pre_ln hyper_connections admin b2t}"
read -ra changes <<<"${CHANGES:-model.encoder_embed_dim=512 model.decoder_embed_dim=512 model.encoder_ffn_embed_dim=2048 \
    model.decoder_ffn_embed_dim=2048 model.encoder_attention_heads=8 model.decoder_attention_heads=8 dataset.max_tokens=8000 \
    dataset.length_grid=1.15 dataset.validate_interval_updates=250 checkpoint.save_interval_updates=250}"

table() {
    "$python" -W ignore - "$state" <<'END'
import sys
from pathlib import Path

sys.path.insert(0, "docs")
import depth_tables

state = Path(sys.argv[1])
lines = depth_tables.read(state / "results.tsv")
for name, table in (("cells", depth_tables.cells_tsv(lines)), ("sweep", depth_tables.sweep_tsv(lines))):
    (state / f"{name}.tsv").write_text(table, encoding="utf-8")
END
}

# Pre-LN comes first at each depth: the others are tested against its translations.
for depth in ${DEPTHS:-18e18d 6e6d}; do
    for method in "${methods[@]}"; do
        left=$((60 * minutes - SECONDS)) code=0
        ((left > 20)) || { echo "$state: no time is left for ${method}_$depth; the same command goes on"; exit 0; }
        timeout "$left" "$python" -W ignore benchmarks/depth_study.py "$data" "$state/runs" --results "$state/results.tsv" \
            --updates "${UPDATES:-3000}" --methods "$method" --depths "$depth" --seeds 1 --gpu --precision bf16 \
            --rates 5e-4 1e-3 2e-3 --changes common.cuda_graphs=true "${changes[@]}" || code=$?
        [[ ! -e "$state/results.tsv" ]] || table
        ((code == 0 || code == 124)) || exit "$code"
    done
done
