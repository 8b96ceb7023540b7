#!/usr/bin/env bash
# Train one configuration, on the GPUs that are found or on the CPU; the same command resumes.
#
#     [NAME=VALUE ...] scripts/train.sh CONFIG DATA RUN [KEY=VALUE ...]
#
#     CONFIG      a YAML file of configs/, for instance configs/multi30k_de_en/admin_3e3d.yaml
#     DATA        a directory made by scripts/prepare*.sh, or the output of fairseq-preprocess
#     RUN         the training's own directory:
#                     run.json      what is trained, on what, with which versions
#                     train.log     fairseq's log, a JSON object each 100 updates
#                     checkpoints/
#                     finished      at the end: updates and epochs
#     KEY=VALUE   changes to the configuration, for instance optimization.max_update=1000 common.seed=2
#
# The tokens of an update are those of the configuration (its GPUs x update_freq), on however many GPUs: what changes
# is update_freq, and max_tokens where there are fewer batches than GPUs. The same settings in RUN resume there from
# the last checkpoint; other settings are refused; a finished training is left as it is. Exit codes: 0 trained, 1 the
# loss was not finite, 2 a mistake (one line says which), 130 interrupted.
#
# Settings (of the environment):
#     PROCESSES=      processes of this machine; default: one on each GPU, 1 on a CPU. GPUs are left idle only where
#                     you say so
#     PRECISION=auto  auto: as configured where the device has it; or fp32, fp16, bf16, amp
#     NODES=1 RANK=0 MASTER_ADDR=localhost MASTER_PORT=
#                     several machines: how many, which of them this is (from 0), and where machine 0 is reached.
#                     RUN is then on a disk that all of them see. torch.distributed neither authenticates nor
#                     encrypts: use a trusted network.
#     TENSORBOARD=0   1: also to RUN/tensorboard
#     WANDB_PROJECT=  also to this project of Weights & Biases
#     CHECKS=1        0: do not ask whether disk and memory suffice
#     QUIET=0         1: nothing of the log on the terminal
#     DRY_RUN=0       1: only print the command
#
# Time: hours to days, as the configuration says. Disk: printed before it starts.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PROCESSES=${PROCESSES:-}
PRECISION=${PRECISION:-auto}
NODES=${NODES:-1}
RANK=${RANK:-0}
MASTER_ADDR=${MASTER_ADDR:-localhost}
MASTER_PORT=${MASTER_PORT:-}
TENSORBOARD=${TENSORBOARD:-0}
WANDB_PROJECT=${WANDB_PROJECT:-}
CHECKS=${CHECKS:-1}
QUIET=${QUIET:-0}

# Only lines of progress and warnings; all else is in the log.
SHOWN='\| (train|train_inner|valid|WARNING) \|'

CHILD=
FOLLOWER=

# Everything that was started ends with this script. SIGTERM ends Python at once; checkpoints are whole at any time.
# shellcheck disable=SC2329  # called by a trap
stop() {
    local code=$?
    trap - EXIT
    [[ -z $FOLLOWER ]] || kill "$FOLLOWER" 2>/dev/null || true
    if [[ -n $CHILD ]]; then
        kill -TERM "$CHILD" 2>/dev/null || true
        wait "$CHILD" 2>/dev/null || true
    fi
    rm -f -- "${COMMAND_FILE:-}"
    exit "$code"
}

# shellcheck disable=SC2329  # called by a trap
interrupted() {
    printf '\ninterrupted; the last checkpoint is kept, and the same command continues from it\n' >&2
    exit 130
}

# watched COMMAND [ARGUMENT ...]: run it so that a signal to this script ends it at once, without a trace of its own.
watched() {
    local code=0
    "$@" &
    CHILD=$!
    wait "$CHILD" || code=$?
    CHILD=
    return "$code"
}

# into LOG COMMAND [ARGUMENT ...]: become COMMAND, its output and errors added to LOG.
# shellcheck disable=SC2329  # called by watched
into() {
    local log=$1
    shift
    exec "$@" >>"$log" 2>&1
}

# plan CONFIG DATA RUN [KEY=VALUE ...]: check everything and write the command, a word each, to COMMAND_FILE.
plan() {
    local flags=(--precision "$PRECISION" --nodes "$NODES" --rank "$RANK" --master-addr "$MASTER_ADDR")
    [[ -z $PROCESSES ]] || flags+=(--processes "$PROCESSES")
    [[ -z $MASTER_PORT ]] || flags+=(--master-port "$MASTER_PORT")
    [[ -z $WANDB_PROJECT ]] || flags+=(--wandb-project "$WANDB_PROJECT")
    ((!TENSORBOARD)) || flags+=(--tensorboard)
    ((CHECKS)) || flags+=(--no-checks)
    ((!DRY_RUN)) || flags+=(--dry-run)
    watched "$PYTHON" -m fairseq_plugins.pipeline.plan --command-file "$COMMAND_FILE" "${flags[@]}" -- "$@"
}

# follow LOG: show what is added to it that a reader wants to see. Its end is the script's.
follow() {
    ((!QUIET)) || return 0
    tail -n 0 -F --pid=$$ -- "$1" 2>/dev/null > >(exec grep --line-buffered -E "$SHOWN") &
    FOLLOWER=$!
}

train() {
    local run=$1 log=$1/train.log since code=0
    ((RANK == 0)) || log=$run/train.rank$RANK.log
    touch -- "$log"
    since=$(stat -c %s -- "$log")
    follow "$log"
    # Redirected in there, not here, where a message about a signal would go the same way.
    watched into "$log" "${COMMAND[@]}" || code=$?
    ((RANK == 0)) || return "$code"
    watched "$PYTHON" -m fairseq_plugins.pipeline.ending "$run" --code "$code" --log "$log" --since "$since"
}

# A function, so that all of this file has been read before hours pass in which it may change.
main() {
    local name
    usage_and_exit_if_asked "$@"
    (($# >= 3)) || die "give CONFIG DATA RUN; --help says more"
    for name in NODES ${PROCESSES:+PROCESSES} ${MASTER_PORT:+MASTER_PORT}; do
        require_number "$name" "${!name}"
    done
    [[ $RANK =~ ^[0-9]+$ ]] || die "RANK must be a whole number from 0 on, not '$RANK'"
    for name in TENSORBOARD CHECKS QUIET DRY_RUN; do
        require_choice "$name" "${!name}" 0 1
    done
    require_file "$1"
    [[ -d $2 ]] || die "$2: no such directory of prepared data"
    require_package
    RUN=$3
    # A directory for each machine: the lock of another machine may or may not be seen here.
    if ((RANK == 0)); then claim "$RUN"; else claim "$RUN/.rank$RANK"; fi

    COMMAND_FILE=$(mktemp)
    trap stop EXIT
    trap interrupted INT TERM HUP
    plan "$@"
    mapfile -d '' -t COMMAND <"$COMMAND_FILE"
    ((${#COMMAND[@]})) || exit 0
    if ((DRY_RUN)); then
        run "${COMMAND[@]}"
        exit 0
    fi
    if [[ -n $WANDB_PROJECT ]]; then
        # A resumed training continues its own curve.
        WANDB_NAME=${WANDB_NAME:-$(basename -- "$RUN")}
        WANDB_RUN_ID=${WANDB_RUN_ID:-$(realpath -- "$RUN" | sha256sum | cut -c 1-16)}
        export WANDB_NAME WANDB_RUN_ID WANDB_RESUME=${WANDB_RESUME:-allow}
    fi
    train "$RUN"
}

main "$@"
exit
