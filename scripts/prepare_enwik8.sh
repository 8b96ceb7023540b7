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
#   CACHE= ARCHIVE_DIR= CHECKSUMS=   see docs/downloads.md
#   DRY_RUN=1                   print the commands, make nothing
#
# time: 5 minutes; disk: 900 MB.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
usage_and_exit_if_asked "$@"
(($# <= 1)) || die "one directory, not $#: $*"
WORKERS=${WORKERS:-$(nproc)}
require_number WORKERS "$WORKERS"
DIR=${1:-$ROOT/data/enwik8}
DIR=${DIR%/}

claim "$DIR"
if [[ ! -e $DIR/raw ]]; then
    fairseq_deep download enwik8.zip https://mattmahoney.net/dc/enwik8.zip http://mattmahoney.net/dc/enwik8.zip \
        https://cs.fit.edu/~mmahoney/compression/enwik8.zip https://data.deepai.org/enwik8.zip
    # The archive is read, cut and forgotten; only the parts stay.
    made=$DIR/raw.partial
    run rm -rf -- "$made"
    text unpack --only enwik8 "${ARCHIVE_DIR:-$CACHE}/enwik8.zip" "$made/archive"
    text cut-bytes "$made/archive/enwik8" "$made"
    run rm -rf -- "$made/archive"
    run mv -T -- "$made" "$DIR/raw"
fi
for split in train valid test; do
    once "$DIR/text/$split.txt" text bytes "$DIR/raw/$split" "$DIR/text/$split.txt"
done
text describe --tokeniser bytes "$DIR/text.json"
if [[ ! -e $DIR/data-bin ]]; then
    run rm -rf -- "$DIR/data-bin.partial"
    deep preprocess --only-source --workers "$WORKERS" --trainpref "$DIR/text/train.txt" \
        --validpref "$DIR/text/valid.txt" --testpref "$DIR/text/test.txt" --destdir "$DIR/data-bin.partial"
    run mv -T -- "$DIR/data-bin.partial" "$DIR/data-bin"
fi
say "$DIR: prepared"
