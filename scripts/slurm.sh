#!/usr/bin/env bash
# Train on all machines that Slurm gives: one configuration, or every training of a comparison or a published table.
#
#     sbatch --nodes 2 --gpus-per-node 8 --ntasks-per-node 1 --cpus-per-task 32 --time 24:00:00 --requeue \
#         scripts/slurm.sh CONFIG DATA RUN [KEY=VALUE ...] [OPTION ...]
#     sbatch [the same] scripts/slurm.sh compare DATA OUT CONFIG [CONFIG ...] [OPTION ...]
#     sbatch [the same] scripts/slurm.sh scripts/reproduce/admin_table2.sh [NAME ...]
#
# Submit it from the top of the repository, or set FAIRSEQ_DEEP to that directory. RUN is on a disk that all machines see.
# Options: those of fairseq-deep run, or compare. Settings: FAIRSEQ_DEEP and MASTER_PORT. See docs/training.md.

FAIRSEQ_DEEP=${FAIRSEQ_DEEP:-${SLURM_SUBMIT_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)}}
if [[ ! -f $FAIRSEQ_DEEP/scripts/lib.sh ]]; then
    printf 'error: %s: holds no scripts/lib.sh; submit from the top of the repository, or set FAIRSEQ_DEEP\n' \
        "$FAIRSEQ_DEEP" >&2
    exit 2
fi
# shellcheck source=lib.sh
source "$FAIRSEQ_DEEP/scripts/lib.sh"

(($#)) && [[ $1 == *.sh || $# -ge 3 ]] || die "give CONFIG DATA RUN, or a script of scripts/reproduce; --help says more"
[[ -n ${SLURM_JOB_ID:-} ]] || die "this is no Slurm job; submit it: sbatch [OPTION ...] scripts/slurm.sh $*"
nodes=${SLURM_JOB_NUM_NODES:-${SLURM_NNODES:-1}}
# Each training of a comparison comes back here.
[[ $1 != compare && $1 != *.sh ]] || export FAIRSEQ_DEEP
[[ $1 != compare ]] || replaced_by "$@" --nodes "$nodes"
if [[ $1 == *.sh ]]; then
    [[ -f $1 ]] || die "$1: no such file"
    exec bash "$@" --nodes "$nodes"
fi

hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST") || die "scontrol does not know the nodes '$SLURM_JOB_NODELIST'"
address=${hosts%%$'\n'*}
require_numbers SLURM_JOB_ID
# Below the ports that the kernel hands out.
port=${MASTER_PORT:-$((10000 + SLURM_JOB_ID % 20000))}
# CPUs of the machine with the fewest, from a list as 64(x2),32. srun takes over none of this by itself.
cpus=$(tr ',' '\n' <<<"${SLURM_JOB_CPUS_PER_NODE:-${SLURM_CPUS_ON_NODE:-1}}" | sed 's/(.*//' | sort -n | head -n 1)
cpus=${SRUN_CPUS_PER_TASK:-$cpus}

say "job $SLURM_JOB_ID: $nodes nodes with $cpus CPUs each, machine 0 is $address:$port"
# sbatch's settings for tasks would contradict one task a node with all of its CPUs.
unset SLURM_CPUS_PER_TASK SLURM_CPUS_PER_GPU SLURM_TRES_PER_TASK SLURM_NTASKS_PER_GPU SLURM_GPUS_PER_TASK
# When one machine ends, the others may still be writing how it ended; a machine that has lost another waits for ever.
# fairseq reads Slurm's variables itself and would start processes of its own; torchrun has told it all by then.
# shellcheck disable=SC2016  # the rank is known on each machine, not here
run srun --nodes "$nodes" --ntasks "$nodes" --ntasks-per-node 1 --cpus-per-task "$cpus" \
    --kill-on-bad-exit=0 --wait=120 \
    bash -c 'exec "$@" --rank "$SLURM_NODEID"' slurm.sh "$PYTHON" -m fairseq_plugins.tools.cli run \
    --nodes "$nodes" --master-addr "$address" --master-port "$port" "$@"
