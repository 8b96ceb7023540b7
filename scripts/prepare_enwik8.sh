#!/usr/bin/env bash
# Prepare enwik8 for language models of bytes, as in the ReZero paper: the first 90 million bytes to train, 5 million
# each to validate and to test.
#
# usage: [SETTING=VALUE ...] scripts/prepare_enwik8.sh [DIR]
#
# inputs
#   enwik8.zip    downloaded (35 MB); ARCHIVE_DIR=DIR takes your own copy in DIR
#
# outputs, in DIR (default: data/enwik8)
#   raw/          train, valid and test: the bytes
#   text/         train.txt, valid.txt, test.txt: the number of each byte
#   text.json     says that the tokens are bytes
#   data-bin/     for fairseq-deep train --task language_modeling
#   A line feed has no number; fairseq counts the end of a line as a token, so there is one token for each byte, and
#   the loss in base 2 is bits per byte.
#
# settings
#   WORKERS=<cores>             processes
#   CACHE= ARCHIVE_DIR=         where downloads are kept; where your own copies are
#   CHECKSUMS=scripts/checksums
#   DRY_RUN=1                   print the commands, make nothing
#
# time: 5 minutes; disk: 900 MB.
set -euo pipefail
{ # Read whole before it runs: an edit of this file does not reach a running job.
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
usage_and_exit_if_asked "$@"

WORKERS=${WORKERS:-$(nproc)}
URLS=(
    "https://mattmahoney.net/dc/enwik8.zip"
    "http://mattmahoney.net/dc/enwik8.zip"
    "https://cs.fit.edu/~mmahoney/compression/enwik8.zip"
    "https://data.deepai.org/enwik8.zip"
)

(($# <= 1)) || die "one directory, not $#: $*"
DIR=${1:-$ROOT/data/enwik8}
DIR=${DIR%/}
require_number WORKERS "$WORKERS"

# The archive is read, cut and forgotten; only the parts stay.
parts() {
    corpora unpack --only enwik8 --sums "$CHECKSUMS" "$(archive enwik8.zip)" "$1/archive"
    corpora cut-bytes "$1/archive/enwik8" "$1"
    run rm -rf -- "$1/archive"
}

binarised() {
    deep preprocess --only-source --workers "$WORKERS" --trainpref "$DIR/text/train.txt" \
        --validpref "$DIR/text/valid.txt" --testpref "$DIR/text/test.txt" --destdir "$1"
}

require_package
claim "$DIR"
[[ -e $DIR/raw ]] || fetch enwik8.zip "${URLS[@]}"
make_once "$DIR/raw" parts
for split in train valid test; do make_once "$DIR/text/$split.txt" corpora bytes "$DIR/raw/$split"; done
corpora describe --tokeniser bytes "$DIR/text.json"
make_once "$DIR/data-bin" binarised
say "$DIR: prepared"
}; exit
