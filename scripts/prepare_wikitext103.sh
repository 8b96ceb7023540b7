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
#   CACHE= ARCHIVE_DIR= CHECKSUMS=   see docs/downloads.md
#   DRY_RUN=1                   print the commands, make nothing
#
# time: 5 minutes; disk: 1.2 GB.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
usage_and_exit_if_asked "$@"
(($# <= 1)) || die "one directory, not $#: $*"
WORKERS=${WORKERS:-$(nproc)}
require_number WORKERS "$WORKERS"
DIR=${1:-$ROOT/data/wikitext103}
DIR=${DIR%/}

claim "$DIR"
if [[ ! -e $DIR/raw ]]; then
    fairseq_deep download wikitext-103-v1.zip https://wikitext.smerity.com/wikitext-103-v1.zip \
        https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-103-v1.zip
    made=$DIR/raw.partial
    run rm -rf -- "$made"
    text unpack --only '*.tokens' "${ARCHIVE_DIR:-$CACHE}/wikitext-103-v1.zip" "$made/archive"
    for split in train valid test; do
        run mv -- "$made/archive/wikitext-103/wiki.$split.tokens" "$made/$split"
    done
    run rm -rf -- "$made/archive"
    run mv -T -- "$made" "$DIR/raw"
fi
text describe --tokeniser none "$DIR/text.json"
if [[ ! -e $DIR/data-bin ]]; then
    run rm -rf -- "$DIR/data-bin.partial"
    deep preprocess --only-source --workers "$WORKERS" --trainpref "$DIR/raw/train" --validpref "$DIR/raw/valid" \
        --testpref "$DIR/raw/test" --destdir "$DIR/data-bin.partial"
    run mv -T -- "$DIR/data-bin.partial" "$DIR/data-bin"
fi
say "$DIR: prepared"
