#!/usr/bin/env bash
# Admin (Liu et al., EMNLP 2020), appendix E: ReZero and ReZero with Post-LN on IWSLT'14 De-En.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
replaced_by reproduce Admin 'Appendix E' "$@"
