#!/usr/bin/env bash
# B2T connection (Takase et al., Findings of ACL 2023), Table 8: without LayerNorm, newstest2010 to 2016.
#
#     scripts/reproduce/b2t_table8.sh [NAME ...]
#
# The text is Google's WMT'16 English-German, whose link is dead: put wmt16_en_de.tar.gz into a directory and name it by
# ARCHIVE_DIR, or set VARIANT=wmt16-raw, which builds the text from the parts that are still published.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
# Length penalty 0.6 for newstest2014 and 1 for all others.
evaluate_run() { newstest2014_apart 0.6 "$@"; }
reproduce B2T 'Table 8' "$@"
