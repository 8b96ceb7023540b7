#!/usr/bin/env bash
# B2T connection (Takase et al., Findings of ACL 2023), Table 5: speech recognition on LibriSpeech, 6 or 12 encoder
# layers.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
replaced_by reproduce B2T 'Table 5' "$@"
