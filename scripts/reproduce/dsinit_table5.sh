#!/usr/bin/env bash
# DS-Init and merged attention (Zhang et al., EMNLP 2019), Table 5: four more language pairs.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
replaced_by reproduce DS-Init 'Table 5' "$@"
