#!/usr/bin/env bash
# One recipe for every method at one depth on Multi30k, from the raw text to a report with significance, on a CPU.
#
#     [OUT=DIR SEEDS="1 2 3" ...] scripts/reproduce/multi30k_depth.sh DEPTH [METHOD ...]
#
# DEPTH: 6e6d or 18e18d. METHOD: those of configs/multi30k_de_en, the baseline first; default: all, and Pre-LN
# as the baseline. The same command continues where it was stopped.
# Settings: OUT, those of fairseq-deep compare and of scripts/prepare_multi30k.sh; see docs/reproduction.md.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
(($#)) || die "usage: multi30k_depth.sh DEPTH [METHOD ...]; --help says more"

OUT=${OUT:-$ROOT/runs/multi30k_depth} DEPTH=$1
shift
if ! (($#)); then
    set -- pre_ln
    for file in "$ROOT/configs/multi30k_de_en/"*"_$DEPTH.yaml"; do
        [[ -e $file ]] || die "unknown depth '$DEPTH'; legal values: 6e6d, 18e18d"
        name=$(basename "$file" "_$DEPTH.yaml")
        [[ $name == pre_ln ]] || set -- "$@" "$name"
    done
fi
configs=("${@/%/_$DEPTH}")
configs=("${configs[@]/#/multi30k_de_en/}")
"$ROOT/scripts/prepare_multi30k.sh" "$OUT/data"
export SEEDS=${SEEDS:-1} AVERAGE=${AVERAGE:-last-updates=4} PRECISION=${PRECISION:-auto}
from_environment compare "$OUT/data" "$OUT/$DEPTH" "${configs[@]}"
