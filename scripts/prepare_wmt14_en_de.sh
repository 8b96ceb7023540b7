#!/usr/bin/env bash
# Prepare WMT English-German: download, take test sets out of SGML, tokenise, clean, split into subwords, binarise.
#
# usage: [SETTING=VALUE ...] scripts/prepare_wmt14_en_de.sh [DIR]
#
#   scripts/prepare_wmt14_en_de.sh                         WMT'14
#   VARIANT=admin scripts/prepare_wmt14_en_de.sh           what the Admin paper calls WMT'14
#   VARIANT=wmt16-google ARCHIVE_DIR=~/archives scripts/prepare_wmt14_en_de.sh
#
# "WMT'14" means four things in papers, and their scores are not comparable:
#
#   VARIANT        training text                    pairs      validation        kept                      merges
#   wmt14          Europarl 7, Common Crawl,        4,520,620  newstest2013      1-250 subwords, ratio 1.5 32,000
#                  News Commentary 9
#   admin          the same, News Commentary 12     4,590,101  newstest2013      1-80 tokens, ratio 9      32,764
#   wmt17          the same, News Commentary 12     4,590,101  1 pair in 100     1-250 subwords, ratio 1.5 40,000
#   wmt16-google   ready, by Google                 4,500,966  newstest2013      -                         32,000
#
#   wmt14          of the shared task of 2014. With VALID=every-100th SIZE=40000 it is what fairseq's
#                  prepare-wmt14en2de.sh makes with --icml17.
#   admin          what the authors' pre-process/wmt14en-de.sh makes; the paper says WMT'14
#   wmt17          what fairseq's prepare-wmt14en2de.sh makes without --icml17; without the press releases of WMT'17
#   wmt16-google   wmt16_en_de.tar.gz of tensor2tensor, in subwords: Scaling NMT, DLCL, B2T. Google's link is dead; put
#                  a copy of your own into a directory and name it by ARCHIVE_DIR. Its checksum is known.
#
# inputs, downloaded from statmt.org (1.7 GB), or copied by you into ARCHIVE_DIR under these names
#   training-parallel-{europarl-v7,commoncrawl}.tgz, training-parallel-nc-v9.tgz (or v12), wmt14-test-full.tgz,
#   wmt{10,11,12,13,15,16}-test.tgz: the test.tgz of each workshop
#   Their checksums are in scripts/checksums; the lines of each text are counted. Training texts that statmt.org does
#   not give come from the Hugging Face Hub (or its mirror HF_ENDPOINT), as NAME.zip.
#
# outputs, in DIR (default: data/wmt14_en_de, wmt14_en_de_admin, wmt17_en_de, wmt16_en_de)
#   original/     the archives, unpacked, of these two languages; may be deleted at the end
#   raw/ text/ codes data-bin/ test_sets settings: see scripts/prepare.sh, which does the rest
#   test is newstest2014, test1 to test6 are newstest2010 to 2013, 2015 and 2016 (B2T averages all seven)
#
# settings
#   VARIANT=wmt14               see above
#   VALID=                      newstest2013 or every-100th, if not as above
#   SIZE=                       merges, if not as above
#   JOINED=1                    0: a dictionary for each language (DS-Init)
#   VOCABULARY_THRESHOLD=0      see scripts/prepare.sh (DS-Init: 50)
#   JOINED=1                    one dictionary; 0: one for each language (DS-Init)
#   TEST_SETS="newstest2014 newstest2010 newstest2011 newstest2012 newstest2013 newstest2015 newstest2016"
#   WORKERS=<cores>             processes
#   MOSES=                      a checkout of Moses: use its Perl tools
#   CACHE=data/cache ARCHIVE_DIR=   where downloads are kept; where your own copies are
#   CHECKSUMS=scripts/checksums
#   DRY_RUN=1                   print the commands, make nothing
#
# The test sets keep their punctuation, as in all four; only training and validation text is normalised.
#
# time: about two hours on 8 cores after the download (wmt16-google: 15 minutes); disk: 20 GB, of which 8 GB stay.
# Both are estimates.
set -euo pipefail
{ # Read whole before it runs: an edit of this file does not reach a running job.
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=scripts/wmt.sh
source "$(dirname "${BASH_SOURCE[0]}")/wmt.sh"
usage_and_exit_if_asked "$@"

VARIANT=${VARIANT:-wmt14}
VALID=${VALID:-}
TEST_SETS=${TEST_SETS:-newstest2014 newstest2010 newstest2011 newstest2012 newstest2013 newstest2015 newstest2016}
export SOURCE=en TARGET=de

(($# <= 1)) || die "one directory, not $#: $*"
require_choice VARIANT "$VARIANT" wmt14 admin wmt17 wmt16-google
NEWS_COMMENTARY=wmt17/translation-task/training-parallel-nc-v12.tgz
NEWS_COMMENTARY_TEXT=training/news-commentary-v12.de-en
# What all but Google's have in common: fairseq's and the authors' scripts.
NORMALISE=train TOKENISER=moses AGGRESSIVE=1 ESCAPE=1 SUBWORDS=bpe CODES='' SOURCE_DICT=''
CLEAN=subwords MAX_LENGTH=250 RATIO=1.5
case $VARIANT in
    wmt14)
        NAME=wmt14_en_de
        NEWS_COMMENTARY=wmt14/training-parallel-nc-v9.tgz
        NEWS_COMMENTARY_TEXT=training/news-commentary-v9.de-en
        VALID=${VALID:-newstest2013} SIZE=${SIZE:-32000}
        ;;
    admin)
        NAME=wmt14_en_de_admin
        CLEAN=tokens MAX_LENGTH=80 RATIO=9
        VALID=${VALID:-newstest2013} SIZE=${SIZE:-32764}
        ;;
    wmt17) NAME=wmt17_en_de VALID=${VALID:-every-100th} SIZE=${SIZE:-40000} ;;
    wmt16-google)
        NAME=wmt16_en_de
        [[ -z ${SIZE:-} ]] || die "SIZE is given, but VARIANT=wmt16-google comes in 32,000 merges"
        [[ ${JOINED:-1} == 1 ]] || die "VARIANT=wmt16-google goes with JOINED=1"
        NORMALISE=none TOKENISER=none AGGRESSIVE=0 ESCAPE=1 SUBWORDS=none CLEAN=none
        VALID=${VALID:-newstest2013} SIZE=32000
        ;;
esac
require_choice VALID "$VALID" newstest2013 every-100th
[[ $VARIANT != wmt16-google || $VALID == newstest2013 ]] || die "VARIANT=wmt16-google goes with VALID=newstest2013"
export NORMALISE TOKENISER AGGRESSIVE ESCAPE SUBWORDS CODES SOURCE_DICT CLEAN MAX_LENGTH RATIO SIZE
export LOWER_CASE=0 MIN_LENGTH=1 VOCABULARY_THRESHOLD=0 JOINED=${JOINED:-1} TARGET_DICT=''
[[ $VARIANT != wmt16-google || $JOINED == 1 ]] || die "VARIANT=wmt16-google goes with JOINED=1"

DIR=${1:-$ROOT/data/$NAME}
DIR=${DIR%/}
ORIGINAL=$DIR/original
read -r -a NAMES <<<"$TEST_SETS"
for name in "${NAMES[@]}"; do require_choice 'test set' "$name" "${!TEST_SET[@]}"; done
sets=()

# ---- the three that start from text ------------------------------------------------------------------------------

from_text() {
    training_text wmt13/training-parallel-europarl-v7.tgz training/europarl-v7.de-en
    training_text wmt13/training-parallel-commoncrawl.tgz commoncrawl.de-en
    training_text "$NEWS_COMMENTARY" "$NEWS_COMMENTARY_TEXT"
    held_out_sets
}

# ---- Google's ----------------------------------------------------------------------------------------------------

# dictionary OUTPUT: the 32,768 most frequent of both languages, fairseq's own four among them.
dictionary() {
    deep preprocess --source-lang "$SOURCE" --target-lang "$TARGET" --joined-dictionary --dict-only \
        --trainpref "$GOOGLE/train.tok.clean.bpe.32000" --nwordssrc 32768 --nwordstgt 32768 --destdir "$1"
}

from_google() {
    local name
    unpack_once "$GOOGLE" wmt16_en_de.tar.gz --only '*train.tok.clean.bpe.32000.*' --only '*newstest20*' \
        --only '*bpe.32000' "https://drive.google.com/uc?export=download&id=0B_bZck-ksdkpM25jRUN2X2UxMm8"
    make_once "$ORIGINAL/dictionary" dictionary
    SOURCE_DICT=$ORIGINAL/dictionary/dict.$SOURCE.txt
    sets=("train=$GOOGLE/train.tok.clean.bpe.32000")
    sets+=("valid=$GOOGLE/newstest2013.tok.bpe.32000" "valid.raw=$GOOGLE/newstest2013")
    for name in "${NAMES[@]}"; do
        sets+=("$name=$GOOGLE/$name.tok.bpe.32000" "$name.raw=$GOOGLE/$name")
    done
}

# tokens_of_subwords: the text came in subwords, so prepare.sh took these for tokens; join them.
tokens_of_subwords() {
    local file
    for file in "$DIR"/text/*.tok.*; do
        [[ $file != *.partial ]] || continue
        if grep --quiet --max-count 1 '@@ ' "$file"; then
            sed 's/@@ //g' "$file" >"$file.partial"
            mv -- "$file.partial" "$file"
        fi
    done
}

require_package
stop_if_finished "$DIR"
claim "$ORIGINAL"
remember_settings "$ORIGINAL" "VARIANT=$VARIANT"
if [[ $VARIANT == wmt16-google ]]; then
    GOOGLE=$ORIGINAL/wmt16_en_de
    from_google
else
    from_text
fi
"$ROOT/scripts/prepare.sh" "$DIR" "${sets[@]}"
if [[ $VARIANT == wmt16-google ]] && ((!DRY_RUN)); then tokens_of_subwords; fi
}; exit
