#!/usr/bin/env bash
# Prepare a parallel corpus for training: check, tokenise, clean, split into subwords, binarise.
#
#     [SETTING=VALUE ...] scripts/prepare.sh DIR train=PREFIX valid=PREFIX|every-Nth [NAME=PREFIX ...]
#
#     SOURCE=de TARGET=en scripts/prepare.sh data/mine train=text/train valid=text/dev test=text/test
#     scripts/prepare.sh data/wmt train=europarl train=commoncrawl valid=every-100th newstest2014=newstest2014
#
# PREFIX names two parallel files, PREFIX.SOURCE and PREFIX.TARGET. DIR gets raw/, text/, codes, data-bin/ and settings.
# Settings: the options of `fairseq-deep prepare --help`, in capitals: SIZE=8000 is --size 8000. See docs/data.md, also
# for NAME.raw=PREFIX and NAME.changed=CHANGE, time and disk.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
(($#)) || die "no directory given; scripts/prepare.sh --help says more"

sets=()
for word in "${@:2}"; do
    case $word in
        train=*) sets+=(--train "${word#*=}") ;;
        valid=*) sets+=(--valid "${word#*=}") ;;
        *.raw=*) sets+=(--raw "${word/.raw=/=}") ;;
        *.changed=*) sets+=(--changed "${word/.changed=/=}") ;;
        *) sets+=(--test "$word") ;;
    esac
done
from_environment prepare "$1" "${sets[@]}"
