#!/usr/bin/env bash
# Admin (Liu et al., EMNLP 2020), Table 2: Post-LN, Pre-LN and Admin on IWSLT'14 De-En, WMT'14 En-De and WMT'14 En-Fr.
#
#     scripts/reproduce/admin_table2.sh [NAME ...]
#
# IWSLT has five seeds of each method, as in the paper.
# Settings: OUT=DIR DATA=DIR SEEDS="1 2" SMOKE=1 DRY_RUN=1 ARCHIVE_DIR=DIR, and those of train.sh and evaluate.sh;
# fairseq-deep reproduce --help says what they are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
usage_and_exit_if_asked "$@"
require_package
exec "$PYTHON" -m fairseq_plugins.cli reproduce Admin 'Table 2' "$@" \
    --prepare wmt14_en_de:VARIANT=admin \
    --from-environment
