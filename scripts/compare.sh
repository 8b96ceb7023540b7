#!/usr/bin/env bash
# Train, average, decode and score several configurations with several seeds on one prepared corpus, and compare them.
#
#     scripts/compare.sh DATA OUT CONFIG [CONFIG ...] [KEY=VALUE ...]
#
#   DATA       directory that scripts/prepare.sh made
#   OUT        OUT/<configuration>/seed<N> for each run, OUT/report for the comparison
#   CONFIG     YAML files; the first is what the others are tested against
#   KEY=VALUE  Hydra overrides for all of them, as model.encoder_layers=3
#
# Settings, before the command: SEEDS="1 2 3" (that is also the default), BASELINE=NAME for another baseline than the
# first CONFIG, DRY_RUN=1 to print the commands, and all settings of train.sh and evaluate.sh (PRECISION, PROCESSES,
# AVERAGE, BEAM, ...).
#
# Each run is trained after the other, on all GPUs. Stopped anywhere, the same command continues; a second run of it
# only makes the report anew. A training that diverges is a row of the report.
set -euo pipefail
{ # Read whole before it runs: an edit of this file does not reach a running job.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$ROOT/scripts/chain.sh"
usage_and_exit_if_asked "$@"
(($# >= 3)) || die "usage: compare.sh DATA OUT CONFIG [CONFIG ...] [KEY=VALUE ...]; --help says more"

data=$1 out=$2
shift 2
configs=() overrides=()
for argument in "$@"; do
    case $argument in
        *.yaml) configs+=("$argument") ;;
        *=*) overrides+=("$argument") ;;
        *) die "$argument: neither a configuration (.yaml) nor KEY=VALUE" ;;
    esac
done
((${#configs[@]})) || die "no configuration (.yaml) is given"
read -r -a seeds <<<"${SEEDS:-1 2 3}"
require_seeds "${seeds[@]}"
if [[ -n $BASELINE ]]; then
    # By its name alone or with its corpus, as in the report, which would notice after all trainings.
    names=()
    for config in "${configs[@]}"; do
        config=$(realpath -m -- "${config%.yaml}")
        names+=("${config##*/}" "$(basename -- "${config%/*}")/${config##*/}")
    done
    require_choice BASELINE "${BASELINE%.yaml}" "${names[@]}"
fi
require_package
((DRY_RUN)) || [[ -d $data ]] || die "$data: no such directory of prepared data"
require_file "${configs[@]}"
claim "$out"
remember_settings "$out" "overrides=${overrides[*]}" "data=$data"

runs=()
for seed in "${seeds[@]}"; do
    for config in "${configs[@]}"; do
        directory=$(run_directory "$out" "$config" "$seed")
        runs+=("$directory")
        train_and_evaluate "$config" "$data" "$directory" "common.seed=$seed" "${overrides[@]}"
    done
done
write_report "$out" "${runs[@]}"
}; exit
