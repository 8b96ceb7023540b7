#!/usr/bin/env bash
# Two methods, three seeds, on Multi30k: the whole chain on a CPU, from the raw text to a report with significance.
#
#     [OUT=DIR UPDATES=600 ...] scripts/reproduce/multi30k.sh [METHOD ...]
#
# METHOD: configurations of configs/multi30k_de_en, the baseline first; default: post_ln_3e3d admin_3e3d.
# Settings: OUT, UPDATES, those of fairseq-deep compare and of scripts/prepare_multi30k.sh; see docs/reproduction.md.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

OUT=${OUT:-$ROOT/runs/multi30k} UPDATES=${UPDATES:-600}
require_numbers UPDATES
(($#)) || set -- post_ln_3e3d admin_3e3d
configs=()
for name in "$@"; do
    configs+=("$ROOT/configs/multi30k_de_en/${name%.yaml}.yaml")
done
"$ROOT/scripts/prepare_multi30k.sh" "$OUT/data"
export SEEDS=${SEEDS:-1 2 3} AVERAGE=${AVERAGE:-last-updates=4} PRECISION=${PRECISION:-fp32}
from_environment compare "$OUT/data" "$OUT/runs" "${configs[@]}" \
    model.encoder_embed_dim=128 model.decoder_embed_dim=128 \
    model.encoder_ffn_embed_dim=256 model.decoder_ffn_embed_dim=256 \
    dataset.max_tokens=1000 "optimization.max_update=$UPDATES" "lr_scheduler.warmup_updates=$(((UPDATES + 2) / 3))" \
    "checkpoint.save_interval_updates=$(((UPDATES + 11) / 12))"
