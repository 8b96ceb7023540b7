#!/usr/bin/env bash
# Admin (Liu et al., EMNLP 2020), appendix E: ReZero and ReZero with Post-LN on IWSLT'14 De-En.
#
#     scripts/reproduce/admin_appendixe.sh [NAME ...]
# Settings: OUT=DIR DATA=DIR SEEDS="1 2" SMOKE=1 DRY_RUN=1 ARCHIVE_DIR=DIR, and those of train.sh and evaluate.sh;
# fairseq-deep reproduce --help says what they are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
usage_and_exit_if_asked "$@"
require_package
exec "$PYTHON" -m fairseq_plugins.cli reproduce Admin 'Appendix E' "$@" --from-environment
