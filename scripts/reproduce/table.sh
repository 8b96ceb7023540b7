# shellcheck shell=bash
# The chain behind every script of this folder: prepare, train, average, decode, score, report. A script names its
# paper and table, and the settings with which its corpora are prepared:
#
#     source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
#     TEXT[wmt14_en_de]="SIZE=32000 JOINED=0"        # by folder of configs/; a corpus without a line has its defaults
#     reproduce PAPER TABLE "$@"
#
# Every stage skips what is done, so the same command continues a chain that was stopped.

source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
source "$ROOT/scripts/chain.sh"

SMOKE=${SMOKE:-0}
require_choice SMOKE "$SMOKE" 0 1
# A recipe at toy size has its text from archives with the published layout, made on the spot.
SMOKE_SENTENCES=${SMOKE_SENTENCES:-400}

declare -A TEXT=([wmt16_en_de]="VARIANT=${VARIANT:-wmt16-google}")

# prepared CORPUS DIR: DIR as a corpus of that name, from its own script where there is one. A no-op where it is done.
prepared() {
    local script=$ROOT/scripts/prepare_$1.sh
    local -a settings
    # Google's text is one of the four that papers call WMT'14.
    [[ $1 != wmt16_en_de ]] || script=$ROOT/scripts/prepare_wmt14_en_de.sh
    read -r -a settings <<<"${TEXT[$1]:-}"
    if [[ -x $script ]]; then
        env "${settings[@]}" "$script" "$2"
    elif [[ ! -d $2/data-bin ]]; then
        die "$2: not there, and no script prepares $1: put your own text through scripts/prepare.sh into it"
    fi
}

# newstest2014_apart PENALTY RUN DATA: translate newstest2014 with this length penalty, and the other test sets with that
# of the configuration.
newstest2014_apart() {
    local penalty=$1 name
    local -a others=()
    for name in ${TEST_SETS:-newstest2010 newstest2011 newstest2012 newstest2013 newstest2015 newstest2016}; do
        [[ $name == newstest2014 ]] || others+=("$name")
    done
    LENGTH_PENALTY=${LENGTH_PENALTY:-$penalty} run "$ROOT/scripts/evaluate.sh" "$2" "$3" newstest2014
    ((!${#others[@]})) || run "$ROOT/scripts/evaluate.sh" "$2" "$3" "${others[@]}"
}

# common_settings: the end of every --help of this folder.
common_settings() {
    cat <<'HELP'

  NAME   a corpus or a configuration of the table, as iwslt14_de_en or admin_6e6d; default: all of them

Settings, before the command:
  OUT=runs/<script>   results: OUT/<corpus>/<configuration>/seed<N>, OUT/report
  DATA=OUT/data       prepared corpora, to share them between tables
  SEEDS=              instead of the paper's
  SMOKE=1             the whole chain at toy size, on small archives made on the spot: minutes on a CPU
  DRY_RUN=1           print the commands
  ARCHIVE_DIR=, WORKERS=, MOSES=: see the preparation scripts; PROCESSES=, PRECISION=, ...: see train.sh;
  AVERAGE=, BEAM=, ...: see evaluate.sh; several machines: see slurm.sh

Stopped anywhere, the same command continues. docs/reproduction.md has the printed scores, the budgets, and what was run.
HELP
}

# reproduce PAPER TABLE [NAME ...]: the trainings of a published table; NAME is a corpus or a configuration of it.
reproduce() {
    local paper=$1 table=$2 out default corpus config seeds overrides toy rows seed directory
    for default in "${@:3}"; do
        if [[ $default == -h || $default == --help ]]; then
            header
            common_settings
            exit 0
        fi
    done
    local -a names=("${@:3}") changes small runs=() selection=()
    local -A directories=()
    default=$ROOT/runs/$(basename -- "$0" .sh)
    ((!SMOKE)) || default+=_smoke
    out=${OUT:-$default}
    read -r -a small <<<"$SEEDS"
    require_seeds "${small[@]}"
    require_package
    ((!${#names[@]})) || selection=(--only "${names[@]}")
    ((!SMOKE)) || selection+=(--smoke "$ROOT/configs")
    rows=$("$PYTHON" -m fairseq_plugins.pipeline.rows "$paper" "$table" "${selection[@]}") || exit 2
    claim "$out"
    remember_settings "$out" "smoke=$SMOKE"
    ((!SMOKE)) || smoke_settings
    while IFS='|' read -r config seeds overrides toy <&3; do
        corpus=${config%%/*}
        if [[ -z ${directories[$corpus]:-} ]]; then
            directories[$corpus]=${DATA:-$out/data}/$corpus
            ((!SMOKE)) || smoke_archives "$corpus" "$out"
            prepared "$corpus" "${directories[$corpus]}"
        fi
        read -r -a changes <<<"$overrides"
        read -r -a small <<<"$toy"
        for seed in ${SEEDS:-$seeds}; do
            directory=$(run_directory "$out/$corpus" "$config" "$seed" "${changes[@]}")
            runs+=("$directory")
            train_and_evaluate "$ROOT/configs/$config.yaml" "${directories[$corpus]}" "$directory" \
                "common.seed=$seed" "${changes[@]}" "${small[@]}"
        done
    done 3<<<"$rows"
    write_report "$out" "${runs[@]}"
    # Bash reads a script while it runs, and this one may have been edited meanwhile.
    exit 0
}

smoke_settings() {
    # A test set for each year is more than a test needs.
    export TEST_SETS=${TEST_SETS:-newstest2014}
    # One pair in 1,333, of 500, is none.
    export VALID=${VALID:-newstest2013}
    # Known sums are those of the published files.
    export CHECKSUMS=/dev/null
    export AVERAGE=${AVERAGE:-last-updates=2} PRECISION=${PRECISION:-fp32}
}

smoke_archives() {
    export ARCHIVE_DIR=$2/archives/$1
    [[ -d $ARCHIVE_DIR ]] || make_once "$ARCHIVE_DIR" made_archives "$1"
}

made_archives() {
    run "$PYTHON" -m fairseq_plugins.demo.archives "$1" "$2" --sentences "$SMOKE_SENTENCES"
}
