#!/usr/bin/env bash
# Two methods, three seeds, on Multi30k: the whole chain on a CPU, from the raw text to a report with significance.
#
#     scripts/reproduce/multi30k.sh [METHOD ...] [OPTION ...]
#
# METHOD: configurations of configs/multi30k_de_en, the baseline first; default: post_ln_3e3d admin_3e3d.
# OPTION: of fairseq-deep compare. Settings of the environment: OUT, UPDATES, those of scripts/prepare_multi30k.sh.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

OUT=${OUT:-$ROOT/runs/multi30k} UPDATES=${UPDATES:-600}
require_numbers UPDATES
configs=()
while (($#)) && [[ $1 != --* ]]; do
    configs+=("$ROOT/configs/multi30k_de_en/${1%.yaml}.yaml")
    shift
done
((${#configs[@]})) || configs=("$ROOT/configs/multi30k_de_en/"{post_ln,admin}_3e3d.yaml)
"$ROOT/scripts/prepare_multi30k.sh" "$OUT/data"
replaced_by compare "$OUT/data" "$OUT/runs" "${configs[@]}" \
    model.encoder_embed_dim=128 model.decoder_embed_dim=128 \
    model.encoder_ffn_embed_dim=256 model.decoder_ffn_embed_dim=256 \
    dataset.max_tokens=1000 "optimization.max_update=$UPDATES" "lr_scheduler.warmup_updates=$(((UPDATES + 2) / 3))" \
    "checkpoint.save_interval_updates=$(((UPDATES + 11) / 12))" --average last-updates=4 --precision fp32 "$@"
