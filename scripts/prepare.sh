#!/usr/bin/env bash
# Prepare a parallel corpus for training: check, tokenise, clean, split into subwords, binarise.
#
#     scripts/prepare.sh DIR train=PREFIX valid=PREFIX|every-Nth [NAME=PREFIX ...] [--SETTING VALUE ...]
#
#     scripts/prepare.sh data/mine train=text/train valid=text/dev test=text/test --source de --target en
#     scripts/prepare.sh data/wmt train=europarl train=commoncrawl valid=every-100th newstest2014=newstest2014
#
# PREFIX names two parallel files, PREFIX.SOURCE and PREFIX.TARGET. DIR gets raw/, text/, codes, data-bin/ and settings.
# It is `fairseq-deep prepare` with shorter words for the sets; --size 8000 can also be SIZE=8000 in the environment. See
# docs/data.md, also for NAME.raw=PREFIX and NAME.changed=CHANGE, time and disk.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
(($#)) || die "no directory given; scripts/prepare.sh --help says more"

sets=()
for word in "${@:2}"; do
    case $word in
        -*) sets+=("$word") ;;
        train=*) sets+=(--train "${word#*=}") ;;
        valid=*) sets+=(--valid "${word#*=}") ;;
        *.raw=*) sets+=(--raw "${word/.raw=/=}") ;;
        *.changed=*) sets+=(--changed "${word/.changed=/=}") ;;
        *=*) sets+=(--test "$word") ;;
        *) sets+=("$word") ;;
    esac
done
from_environment prepare "$1" "${sets[@]}"
