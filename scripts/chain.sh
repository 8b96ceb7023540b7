# shellcheck shell=bash
# From a prepared directory to a report: train, average, decode and score each configuration and seed, then compare.
# Sourced after lib.sh by compare.sh and by the scripts of reproduce/.

SEEDS=${SEEDS:-}
BASELINE=${BASELINE:-}
NODES=${NODES:-1}

require_number NODES "$NODES"
TRAIN=$ROOT/scripts/train.sh
if ((NODES > 1)); then
    [[ -n ${SLURM_JOB_ID:-} ]] ||
        die "NODES=$NODES: on several machines, submit it to Slurm: sbatch --nodes $NODES [OPTION ...] scripts/slurm.sh $0"
    # It takes each training to all machines; all else is done on this one.
    TRAIN=$ROOT/scripts/slurm.sh
fi

# require_seeds SEED ...: before anything is prepared or trained.
require_seeds() {
    local seed
    for seed in "$@"; do
        [[ $seed =~ ^[0-9]+$ ]] || die "SEEDS must be whole numbers, not '$seed'"
    done
}

# run_directory OUT CONFIG SEED OVERRIDE ...: where a run goes. A change of the recipe is another run: its name says the
# last word of the setting and the value, without what a shell would want quoted.
run_directory() {
    local out=$1 name seed=$3 override value
    name=$(basename -- "${2%.yaml}")
    shift 3
    for override in "$@"; do
        value=$(tr -cs 'A-Za-z0-9.-' '_' <<<"${override#*=}")
        value=${value#_}
        override=${override%%=*}
        name+=,${override##*.}=${value%_}
    done
    printf '%s/%s/seed%s\n' "$out" "$name" "$seed"
}

# evaluate_run RUN DATA: with the search of the configuration, on every test set. A table whose test sets differ in their
# search has its own.
evaluate_run() { run "$ROOT/scripts/evaluate.sh" "$1" "$2"; }

# train_and_evaluate CONFIG DATA RUN [KEY=VALUE ...]: one row, one seed. Both scripts skip what is done.
#
# A training that diverged is a result: it is a row of the report, and the comparison goes on.
train_and_evaluate() {
    local config=$1 data=$2 directory=$3 code=0
    shift 3
    if ((DRY_RUN)); then
        # Both have a DRY_RUN of their own, which wants to see the data and the checkpoints that are not there yet.
        run "$TRAIN" "$config" "$data" "$directory" "$@"
        evaluate_run "$directory" "$data"
        return 0
    fi
    "$TRAIN" "$config" "$data" "$directory" "$@" || code=$?
    case $code in
        0) evaluate_run "$directory" "$data" ;;
        1) say "$directory: diverged; nothing to translate with" ;;
        *) exit "$code" ;;
    esac
}

# write_report OUT RUN ...: the leaderboard; made anew each time, from what the runs hold.
write_report() {
    local out=$1
    shift
    deep report "$@" ${BASELINE:+--baseline "$BASELINE"} --output "$out/report"
}
