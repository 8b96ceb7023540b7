#!/usr/bin/env bash
# Admin (Liu et al., EMNLP 2020), what section 5 says beside its tables, on WMT'14 English-German: 60-12 layers (5.1), Post-LN with a longer warm-up (5.2), ReZero, FixUp and LookLinear (5.3).
#
#     scripts/reproduce/admin_section5.sh [NAME ...]
#
# All but the first fail in the paper.
# Settings: OUT=DIR DATA=DIR SEEDS="1 2" SMOKE=1 DRY_RUN=1 ARCHIVE_DIR=DIR, and those of train.sh and evaluate.sh;
# fairseq-deep reproduce --help says what they are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
usage_and_exit_if_asked "$@"
require_package
exec "$PYTHON" -m fairseq_plugins.cli reproduce Admin 'Section 5' "$@" \
    --prepare wmt14_en_de:VARIANT=admin \
    --from-environment
