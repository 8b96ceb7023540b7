#!/usr/bin/env bash
# Prepare a parallel corpus for training: check, tokenise, clean, split into subwords, binarise.
#
# usage: [SETTING=VALUE ...] scripts/prepare.sh DIR train=PREFIX valid=PREFIX|every-Nth [NAME=PREFIX ...]
#
#   SOURCE=de TARGET=en scripts/prepare.sh data/mine train=text/train valid=text/dev test=text/test
#   scripts/prepare.sh data/wmt train=europarl train=commoncrawl valid=newstest2013 newstest2014=newstest2014
#
# The same as `fairseq-deep prepare DIR --train PREFIX ... --valid PREFIX --test NAME=PREFIX ... --source de ...`.
#
# inputs
#   PREFIX        two parallel files PREFIX.SOURCE and PREFIX.TARGET, or these with .gz; UTF-8, a sentence a line
#   train=        may be given several times; the files are put behind one another
#   valid=        a set of its own, or every-23rd (any number): every 23rd training pair, after cleaning
#   NAME=         a test set; any number of them, any names
#   NAME.raw=     the references of a set as published, where they are not what is to be tokenised
#   NAME.changed= how the text of a set differs from these: apostrophes (' for ’), punctuation (normalised)
#
# outputs, in DIR
#   raw/          <set>.<language>: the development and test sets untouched, for sacreBLEU
#   text/         <set>.tok.<language>: in tokens; <set>.<language>: in subwords
#   codes         merges of byte-pair encoding, or sentencepiece.model; with JOINT_CODES=0 each with .<language> behind
#   data-bin/     for training; test_sets says which test set is `test`, `test1`, ... in it
#   text.json     what the text is in, as scripts/evaluate.sh wants to know it: tokens, subwords, case
#   settings      what all this was made with; a call with other settings or other text is refused
#
# settings
#   SOURCE=de TARGET=en         languages: the ends of the file names, and the rules of the tokeniser
#   NORMALISE=none              none, train or all: one form for punctuation, no control characters; train is the
#                               training text and what is split off it
#   TOKENISER=moses             moses, or none for text that has its tokens
#   GIVEN_TRUECASED=0           1: the first word of a sentence stands as inside sentences (Moses' truecaser)
#   GIVEN_TOKENISER=            moses: the text that is given is in Moses' tokens; goes with TOKENISER=none
#   GIVEN_SUBWORDS=             bpe or sentencepiece: it is in subwords; goes with TOKENISER=none SUBWORDS=none. With both,
#                               each test set needs its NAME.raw=
#   GIVEN_LOWER_CASE=0          1: all its letters are small
#   AGGRESSIVE=0                1: split words at hyphens
#   ESCAPE=1                    0: no &apos; for ' and the like
#   LOWER_CASE=0                1: all letters small
#   CLEAN=tokens                tokens, subwords or none: what the lengths below are counted in; whole sets that were
#                               given for validation and test are never cleaned
#   MIN_LENGTH=1 MAX_LENGTH=250 of both sides of a training pair
#   RATIO=1.5                   most tokens of one side for each of the other
#   SUBWORDS=bpe                bpe, sentencepiece or none
#   SIZE=32000                  merges, or pieces of sentencepiece
#   JOINT_CODES=1               merges, or a model, learned on both languages together; 0: on each by itself, SIZE each
#   CODES=                      a file of merges, or a sentencepiece model, to use instead of learning; with
#                               JOINT_CODES=0 two files, CODES.SOURCE and CODES.TARGET
#   VOCABULARY_THRESHOLD=0      with bpe: split subwords that are rarer than that in the training text of a language
#   JOINED=1                    one dictionary for both languages; 0: one for each. Goes with either JOINT_CODES
#   TYPES=0                     most types of a dictionary, the rarest of them left out; 0: all
#   SOURCE_DICT= TARGET_DICT=   dictionaries (dict.<language>.txt) to use instead of making them
#   WORKERS=<cores>             processes; the result does not depend on it
#   MOSES=                      a checkout of Moses: use its Perl tools
#   DRY_RUN=1                   print the commands, make nothing
#
# time: 29,000 pairs (Multi30k) take 45 seconds of processor time; disk: about 10 times the text,
# half of which is freed at the end (DIR/work).
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
usage_and_exit_if_asked "$@"
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
for name in SOURCE TARGET NORMALISE TOKENISER GIVEN_TRUECASED GIVEN_TOKENISER GIVEN_SUBWORDS GIVEN_LOWER_CASE \
    AGGRESSIVE ESCAPE LOWER_CASE CLEAN MIN_LENGTH MAX_LENGTH RATIO SUBWORDS SIZE JOINT_CODES CODES \
    VOCABULARY_THRESHOLD JOINED TYPES SOURCE_DICT TARGET_DICT WORKERS MOSES; do
    flag=${name,,}
    [[ -z ${!name:-} ]] || sets+=("--${flag//_/-}=${!name}")
done
fairseq_deep prepare "$1" "${sets[@]}"
