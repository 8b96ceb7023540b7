#!/usr/bin/env bash
# Translate a large file on many machines: every task of a job array translates its part, and the last one joins them.
#
#     sbatch --array 1-20 --gpus 1 --cpus-per-task 4 --time 8:00:00 --requeue \
#         scripts/translate_slurm.sh MODEL INPUT OUTPUT [OPTION ...]
#
# Submit it from the top of the repository, or set FAIRSEQ_DEEP to that directory. OUTPUT is on a disk that all machines
# see. The same command does what is missing. Options: those of fairseq-deep translate. Settings: FAIRSEQ_DEEP.

FAIRSEQ_DEEP=${FAIRSEQ_DEEP:-${SLURM_SUBMIT_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)}}
if [[ ! -f $FAIRSEQ_DEEP/scripts/lib.sh ]]; then
    printf 'error: %s: holds no scripts/lib.sh; submit from the top of the repository, or set FAIRSEQ_DEEP\n' \
        "$FAIRSEQ_DEEP" >&2
    exit 2
fi
# shellcheck source=lib.sh
source "$FAIRSEQ_DEEP/scripts/lib.sh"

(($# >= 3)) || die "usage: translate_slurm.sh MODEL INPUT OUTPUT [OPTION ...]; --help says more"
[[ -n ${SLURM_ARRAY_TASK_ID:-} ]] || die "this is no job array; submit it: sbatch --array 1-N scripts/translate_slurm.sh $*"
: "${SLURM_ARRAY_TASK_MIN:=1}" "${SLURM_ARRAY_TASK_STEP:=1}"
require_numbers SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_MIN SLURM_ARRAY_TASK_STEP
part=$(((SLURM_ARRAY_TASK_ID - SLURM_ARRAY_TASK_MIN) / SLURM_ARRAY_TASK_STEP + 1))
fairseq_deep translate "$1" "$2" --output "$3" --part "$part/$SLURM_ARRAY_TASK_COUNT" "${@:4}"
