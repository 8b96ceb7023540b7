#!/usr/bin/env bash
# DS-Init and merged attention (Zhang et al., EMNLP 2019), Table 6: WMT'14 English-German, big size, 6 to 20 layers.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# Test14 is the filtered newstest2014, Test14-18 the mean of it and the four years after.
replaced_by reproduce DS-Init 'Table 6' "$@" \
    --evaluate 'newstest2014-filtered newstest2015 newstest2016 newstest2017 newstest2018'
