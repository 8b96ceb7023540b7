# shellcheck shell=bash
# The chain behind every script of this folder: prepare, train, average, decode, score, report. A script names its
# paper and table and says how its corpora are prepared:
#
#     source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
#     prepare() { ... }              # prepare CORPUS DIR: CORPUS is a folder of configs/
#     reproduce PAPER TABLE "$@"
#
# Every stage skips what is done, so the same command continues a chain that was stopped.

source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
source "$ROOT/scripts/chain.sh"

SMOKE=${SMOKE:-0}
# A recipe at toy size has its text from archives with the published layout, made on the spot.
SMOKE_SENTENCES=${SMOKE_SENTENCES:-400}

# reproduce PAPER TABLE [NAME ...]: the trainings of a published table; NAME is a corpus or a configuration of it.
reproduce() {
    local paper=$1 table=$2 out default corpus config seeds overrides toy rows seed directory
    local -a names=("${@:3}") changes small runs=() selection=()
    default=$ROOT/runs/$(basename -- "$0" .sh)
    ((!SMOKE)) || default+=_smoke
    out=${OUT:-$default}
    require_package
    ((!${#names[@]})) || selection=(--only "${names[@]}")
    ((!SMOKE)) || selection+=(--smoke "$ROOT/configs")
    rows=$("$PYTHON" -m fairseq_plugins.runs.rows "$paper" "$table" "${selection[@]}") || exit 2
    claim "$out"
    remember_settings "$out" "smoke=$SMOKE"
    ((!SMOKE)) || smoke_settings "$out"
    while IFS='|' read -r config seeds overrides toy <&3; do
        corpus=${config%%/*}
        prepare_once "$corpus" "$out"
        read -r -a changes <<<"$overrides"
        read -r -a small <<<"$toy"
        for seed in ${SEEDS:-$seeds}; do
            directory=$(run_directory "$out/$corpus" "$config" "$seed" "${changes[@]}")
            runs+=("$directory")
            train_and_evaluate "$ROOT/configs/$config.yaml" "$(data_directory "$corpus" "$out")" "$directory" \
                "common.seed=$seed" "${changes[@]}" "${small[@]}"
        done
    done 3<<<"$rows"
    write_report "$out" "${runs[@]}"
}

# data_directory CORPUS OUT: where a corpus is prepared; DATA names another place, to share it between tables.
data_directory() { printf '%s/%s\n' "${DATA:-$2/data}" "$1"; }

prepare_once() {
    local directory
    directory=$(data_directory "$1" "$2")
    ((!SMOKE)) || smoke_archives "$1" "$2"
    # Every preparation is a no-op where its result is there.
    prepare "$1" "$directory"
}

smoke_settings() {
    # Known sums are those of the published files.
    export SHA256SUMS=/dev/null ARCHIVE_DIR=$1/archives
    export AVERAGE=${AVERAGE:-last-updates=2} PRECISION=${PRECISION:-fp32}
}

smoke_archives() {
    ((DRY_RUN)) || "$PYTHON" -m fairseq_plugins.demo.archives "$1" "$2/archives" --sentences "$SMOKE_SENTENCES"
}
