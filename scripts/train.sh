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
# The same as options: fairseq-deep run --help. Time: hours to days, as the configuration says. Disk: printed before.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
usage_and_exit_if_asked "$@"
require_package
exec "$PYTHON" -m fairseq_plugins.cli run --from-environment "$@"
