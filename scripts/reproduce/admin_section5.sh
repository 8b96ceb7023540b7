#!/usr/bin/env bash
# Admin (Liu et al., EMNLP 2020), what section 5 says beside its tables, on WMT'14 English-German: 60-12 layers (5.1),
# Post-LN with a longer warm-up (5.2), ReZero, FixUp and LookLinear (5.3).
# All but the first fail in the paper.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
replaced_by reproduce Admin 'Section 5' "$@"
