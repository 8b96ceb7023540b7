#!/usr/bin/env bash
# One cell of the study of depth, from the raw text to BLEU, on one core: docs/results/depth_protocol.md.
#
#     scripts/reproduce/tatoeba_depth.sh METHOD DEPTH [OPTION ...]
#
# METHOD and DEPTH name a file of configs/tatoeba_de_en: admin 18-18. Its rate is the best of the sweep once that is
# complete, as the file says. The last checkpoint is scored. The same command continues where it was stopped.
# OPTION: of fairseq-deep compare. Settings of the environment: OUT, those of scripts/prepare_tatoeba.sh.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
(($# >= 2)) || die "usage: tatoeba_depth.sh METHOD DEPTH; --help says more"

OUT=${OUT:-$ROOT/runs/tatoeba_depth} NAME=$1_${2/-/e}d
if [[ ! -e $ROOT/configs/tatoeba_de_en/$NAME.yaml ]]; then
    files=("$ROOT/configs/tatoeba_de_en/"*.yaml)
    names=("${files[@]##*/}")
    die "unknown cell '$1 $2'; configs/tatoeba_de_en has ${names[*]%.yaml}"
fi
"$ROOT/scripts/prepare_tatoeba.sh" "$OUT/data"
replaced_by compare "$OUT/data" "$OUT/runs" "tatoeba_de_en/$NAME" --average none --precision fp32 "${@:3}"
