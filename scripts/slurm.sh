#!/usr/bin/env bash
# Train one configuration on the machines that Slurm gives: scripts/train.sh on each of them, told its place.
#
#     sbatch --nodes 2 --gpus-per-node 8 --time 24:00:00 --requeue scripts/slurm.sh CONFIG DATA RUN [KEY=VALUE ...]
#
# Submit it from the top of the repository, or name that directory in FAIRSEQ_DEEP: Slurm runs a copy of this file, which
# stands elsewhere. CONFIG, DATA, RUN, KEY=VALUE and the settings are those of scripts/train.sh (scripts/train.sh --help);
# RUN is on a disk that all machines see. A job that is submitted again, or requeued by Slurm, resumes.
#
# Settings (of the environment, which sbatch hands on):
#     FAIRSEQ_DEEP=   top of the repository; default: where sbatch was called
#     MASTER_PORT=    default: made of the job's number, so that two jobs on one machine do not meet
#     PROCESSES=      processes of each machine; default: its GPUs
#     DRY_RUN=0       1: only print the command
set -euo pipefail

FAIRSEQ_DEEP=${FAIRSEQ_DEEP:-${SLURM_SUBMIT_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)}}
if [[ ! -f $FAIRSEQ_DEEP/scripts/train.sh ]]; then
    printf 'error: %s: holds no scripts/train.sh; submit from the top of the repository, or set FAIRSEQ_DEEP\n' \
        "$FAIRSEQ_DEEP" >&2
    exit 2
fi
# shellcheck source=lib.sh
source "$FAIRSEQ_DEEP/scripts/lib.sh"

usage_and_exit_if_asked "$@"
(($# >= 3)) || die "give CONFIG DATA RUN; --help says more"
[[ -n ${SLURM_JOB_ID:-} ]] || die "this is no Slurm job; submit it: sbatch [OPTION ...] scripts/slurm.sh $1 $2 $3"
require_command scontrol srun

nodes=${SLURM_JOB_NUM_NODES:-${SLURM_NNODES:-1}}
require_number "number of nodes" "$nodes"
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST") || die "scontrol does not know the nodes '$SLURM_JOB_NODELIST'"
MASTER_ADDR=${hosts%%$'\n'*}
# Below the ports that the kernel hands out.
MASTER_PORT=${MASTER_PORT:-$((10000 + SLURM_JOB_ID % 20000))}
export NODES=$nodes MASTER_ADDR MASTER_PORT

say "job $SLURM_JOB_ID: $nodes nodes, machine 0 is $MASTER_ADDR:$MASTER_PORT"
# fairseq reads Slurm's variables itself and would start processes of its own; torchrun has told it all by then.
# shellcheck disable=SC2016  # RANK is known on each machine, not here
run srun --nodes "$nodes" --ntasks "$nodes" --ntasks-per-node 1 --kill-on-bad-exit=1 \
    bash -c 'RANK=$SLURM_NODEID exec "$@"' slurm.sh "$FAIRSEQ_DEEP/scripts/train.sh" "$@"
