#!/usr/bin/env bash
# B2T connection (Takase et al., Findings of ACL 2023), Table 4: language models of WikiText-103, 6 and 16 layers.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
replaced_by reproduce B2T 'Table 4' "$@"
