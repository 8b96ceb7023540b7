#!/usr/bin/env bash
# B2T connection (Takase et al., Findings of ACL 2023), Table 4: language models of WikiText-103, 6 and 16 layers.
#
#     scripts/reproduce/b2t_table4.sh [NAME ...]
#
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
# The perplexity of both sets is printed.
evaluate_run() { run "$ROOT/scripts/evaluate.sh" "$1" "$2" valid test; }
reproduce B2T 'Table 4' "$@"
