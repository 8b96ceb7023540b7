#!/usr/bin/env bash
# B2T connection (Takase et al., Findings of ACL 2023), Table 4: language models of WikiText-103, 6 and 16 layers.
#
#     scripts/reproduce/b2t_table4.sh [NAME ...]
# Settings: OUT=DIR DATA=DIR SEEDS="1 2" SMOKE=1 DRY_RUN=1 ARCHIVE_DIR=DIR, and those of train.sh and evaluate.sh;
# fairseq-deep reproduce --help says what they are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
usage_and_exit_if_asked "$@"
require_package
# The perplexity of both sets is printed.
exec "$PYTHON" -m fairseq_plugins.cli reproduce B2T 'Table 4' "$@" --evaluate 'valid test' --from-environment
