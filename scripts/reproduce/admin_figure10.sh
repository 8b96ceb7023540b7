#!/usr/bin/env bash
# Admin (Liu et al., EMNLP 2020), Figure 10: training without warm-up, five learning rates and three beta_2, on IWSLT'14
# De-En.
# 45 trainings. Those that diverge are part of the figure.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
replaced_by reproduce Admin 'Figure 10' "$@"
