#!/usr/bin/env bash
# B2T connection (Takase et al., Findings of ACL 2023), Figure 10: DeepNet and B2T, 100 layers on each side, small batches.
#
#     scripts/reproduce/b2t_figure10.sh [NAME ...]
#
# The text is Google's WMT'16 English-German, whose link is dead: put wmt16_en_de.tar.gz into a directory and name it by
# ARCHIVE_DIR, or set VARIANT=wmt16-raw, which builds the text from the parts that are still published.
# Settings: OUT=DIR DATA=DIR SEEDS="1 2" SMOKE=1 DRY_RUN=1 ARCHIVE_DIR=DIR, and those of train.sh and evaluate.sh;
# fairseq-deep reproduce --help says what they are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
usage_and_exit_if_asked "$@"
require_package
# A figure of validation losses: the report draws them, and nothing is translated.
exec "$PYTHON" -m fairseq_plugins.cli reproduce B2T 'Figure 10' "$@" --train-only --from-environment
