#!/usr/bin/env bash
# Prepare WikiText-103 for language models of words, as in the B2T paper's Table 4: 267,744 types, split as published.
#
# usage: [SETTING=VALUE ...] scripts/prepare_wikitext103.sh [DIR]
#
# inputs
#   wikitext-103-v1.zip    downloaded (190 MB); ARCHIVE_DIR=DIR takes your own copy in DIR. It is the one in words, with
#                          <unk>, not wikitext-103-raw-v1.zip. The publisher's address is dead; the first mirror is the
#                          author's, and the checksums are those of the published file.
#
# outputs, in DIR (default: data/wikitext103)
#   raw/          train, valid and test as published
#   text.json     says that the tokens are the published words
#   data-bin/     for fairseq-deep train --task language_modeling
#
# settings
#   WORKERS=<cores>             processes
#   CACHE= ARCHIVE_DIR=         where downloads are kept; where your own copies are
#   CHECKSUMS=scripts/checksums
#   DRY_RUN=1                   print the commands, make nothing
#
# time: 5 minutes; disk: 1.2 GB.
set -euo pipefail
{ # Read whole before it runs: an edit of this file does not reach a running job.
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
usage_and_exit_if_asked "$@"

WORKERS=${WORKERS:-$(nproc)}
URLS=(
    "https://wikitext.smerity.com/wikitext-103-v1.zip"
    "https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-103-v1.zip"
)

(($# <= 1)) || die "one directory, not $#: $*"
DIR=${1:-$ROOT/data/wikitext103}
DIR=${DIR%/}
require_number WORKERS "$WORKERS"

published() {
    local split
    corpora unpack --only '*.tokens' --sums "$CHECKSUMS" "$(archive wikitext-103-v1.zip)" "$1/archive"
    for split in train valid test; do
        run mv -T -- "$1/archive/wikitext-103/wiki.$split.tokens" "$1/$split"
    done
    run rm -rf -- "$1/archive"
}

binarised() {
    deep preprocess --only-source --workers "$WORKERS" --trainpref "$DIR/raw/train" --validpref "$DIR/raw/valid" \
        --testpref "$DIR/raw/test" --destdir "$1"
}

require_package
claim "$DIR"
[[ -e $DIR/raw ]] || fetch wikitext-103-v1.zip "${URLS[@]}"
make_once "$DIR/raw" published
corpora describe --tokeniser none "$DIR/text.json"
make_once "$DIR/data-bin" binarised
say "$DIR: prepared"
}; exit
