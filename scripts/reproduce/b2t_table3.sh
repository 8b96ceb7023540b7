#!/usr/bin/env bash
# B2T connection (Takase et al., Findings of ACL 2023), Table 3: headlines, eight methods at 6 and 18 layers.
#
#     scripts/reproduce/b2t_table3.sh [NAME ...]
#
# There is no script for the text: put your own through scripts/prepare.sh. DATA/headline is for 6 layers, the 3.8 million
# pairs of Rush et al. (2015); DATA/headline_extended for 18, these and the authors' 13 million, which are not public.
# Settings: OUT=DIR DATA=DIR SEEDS="1 2" SMOKE=1 DRY_RUN=1 ARCHIVE_DIR=DIR, and those of train.sh and evaluate.sh;
# fairseq-deep reproduce --help says what they are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
usage_and_exit_if_asked "$@"
require_package
exec "$PYTHON" -m fairseq_plugins.cli reproduce B2T 'Table 3' "$@" --from-environment
