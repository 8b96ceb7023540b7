#!/usr/bin/env bash
# B2T connection (Takase et al., Findings of ACL 2023), Figure 8: 36 layers on each side overfit.
#
#     scripts/reproduce/b2t_figure8.sh [NAME ...]
#
# The text is Google's WMT'16 English-German, whose link is dead: put wmt16_en_de.tar.gz into a directory and name it by
# ARCHIVE_DIR, or set VARIANT=wmt16-raw, which builds the text from the parts that are still published.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
# A figure of validation losses: the report draws them, and nothing is translated.
evaluate_run() { :; }
reproduce B2T 'Figure 8' "$@"
