#!/usr/bin/env bash
# Admin (Liu et al., EMNLP 2020), Figure 10: training without warm-up, five learning rates and three beta_2, on IWSLT'14 De-En.
#
#     scripts/reproduce/admin_figure10.sh [NAME ...]
#
# 45 trainings. Those that diverge are part of the figure.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
reproduce Admin 'Figure 10' "$@"
