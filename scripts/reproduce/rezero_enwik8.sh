#!/usr/bin/env bash
# ReZero (Bachlechner et al., UAI 2021), Tables 2 and 3: language models of the bytes of enwik8, 12 to 128 layers.
# TABLE=2 or TABLE=3 runs one of the two tables; default: 2.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
replaced_by reproduce ReZero "Table ${TABLE:-2}" "$@"
