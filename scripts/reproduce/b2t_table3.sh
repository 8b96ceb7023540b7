#!/usr/bin/env bash
# B2T connection (Takase et al., Findings of ACL 2023), Table 3: headlines.
#
#     scripts/reproduce/b2t_table3.sh [NAME ...]
#
# The authors' 13 million pairs are not public. Put your own through scripts/prepare.sh into DATA/headline.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
reproduce B2T 'Table 3' "$@"
