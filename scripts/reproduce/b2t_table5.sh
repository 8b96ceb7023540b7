#!/usr/bin/env bash
# B2T connection (Takase et al., Findings of ACL 2023), Table 5: speech recognition on LibriSpeech, 6 or 12 encoder layers.
#
#     scripts/reproduce/b2t_table5.sh [NAME ...]
# Settings: OUT=DIR DATA=DIR SEEDS="1 2" SMOKE=1 DRY_RUN=1 ARCHIVE_DIR=DIR, and those of train.sh and evaluate.sh;
# fairseq-deep reproduce --help says what they are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
usage_and_exit_if_asked "$@"
require_package
exec "$PYTHON" -m fairseq_plugins.cli reproduce B2T 'Table 5' "$@" --from-environment
