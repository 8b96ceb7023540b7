#!/usr/bin/env bash
# Prepare WMT English-German: download, take test sets out of SGML, tokenise, clean, split into subwords, binarise.
#
# usage: [SETTING=VALUE ...] scripts/prepare_wmt14_en_de.sh [DIR]
#
#   scripts/prepare_wmt14_en_de.sh                         WMT'14
#   VARIANT=admin scripts/prepare_wmt14_en_de.sh           what the Admin paper calls WMT'14
#   VARIANT=wmt16-google ARCHIVE_DIR=~/archives scripts/prepare_wmt14_en_de.sh
#
# "WMT'14" means six things in papers, and their scores are not comparable:
#
#   VARIANT        training text                    pairs      validation        kept                      merges
#   wmt14          Europarl 7, Common Crawl,        4,520,620  newstest2013      1-250 subwords, ratio 1.5 32,000
#                  News Commentary 9
#   admin          the same, News Commentary 12     4,590,101  newstest2013      1-80 tokens, ratio 9      32,764
#   wmt17          the same, News Commentary 12     4,590,101  1 pair in 100     1-250 subwords, ratio 1.5 40,000
#   dsinit         as wmt14                         4,520,620  newstest2013      1-250 tokens              32,000 each
#   wmt16-raw      the same, News Commentary 11     about 4.56 newstest2013      1-80 tokens, ratio 9      32,000
#                                                   million
#   wmt16-google   ready, by Google                 4,500,966  newstest2013      -                         32,000
#
#   wmt14          of the shared task of 2014. With VALID=every-100th SIZE=40000 it is what fairseq's
#                  prepare-wmt14en2de.sh makes with --icml17.
#   admin          what the authors' pre-process/wmt14en-de.sh makes; the paper says WMT'14
#   wmt17          what fairseq's prepare-wmt14en2de.sh makes without --icml17; without the press releases of WMT'17
#   dsinit         the 4.5 million pairs of DS-Init's Table 2: no ratio, no normalisation. Merges and dictionaries for
#                  each language (section 7.1), subwords rarer than 50 split (docs/usage of the authors' toolkit, whose
#                  example has joint merges: JOINT_CODES=1), the filtered newstest2014 as test set.
#   wmt16-raw      what wmt16-google was made of, by the steps of google/seq2seq's bin/data/wmt16_en_de.sh, where no copy
#                  of that file is at hand: the same texts, tokeniser, lengths and merges. The file's own bytes it does
#                  not give: Moses' tokeniser has had two rules more since.
#   wmt16-google   wmt16_en_de.tar.gz of tensor2tensor, in subwords: Scaling NMT, DLCL, B2T. Google's link is dead; put
#                  a copy of your own into a directory and name it by ARCHIVE_DIR. Its checksum is known.
#
# inputs, downloaded from statmt.org (1.7 GB), or copied by you into ARCHIVE_DIR under these names
#   training-parallel-{europarl-v7,commoncrawl}.tgz, training-parallel-nc-v9.tgz (or v11, v12), wmt14-test-full.tgz (or
#   wmt14-test-filtered.tgz), wmt{10,11,12,13,15,16,17,18}-test.tgz: the test.tgz of each workshop
#   Their checksums are in scripts/checksums; the lines of each text are counted. Training texts that statmt.org does
#   not give come from the Hugging Face Hub (or its mirror HF_ENDPOINT), as NAME.zip.
#
# outputs, in DIR (default: data/wmt14_en_de, wmt14_en_de_admin, wmt17_en_de, wmt14_en_de_dsinit, wmt16_en_de_raw,
# wmt16_en_de)
#   original/     the archives, unpacked, of these two languages; may be deleted at the end
#   raw/ text/ codes data-bin/ test_sets settings: see scripts/prepare.sh, which does the rest
#   test is newstest2014, test1 to test6 are newstest2010 to 2013, 2015 and 2016 (B2T averages all seven); of dsinit the
#   filtered newstest2014, then newstest2014 to newstest2018
#
# settings
#   VARIANT=wmt14               see above
#   VALID=                      newstest2013 or every-100th, if not as above
#   SIZE=                       merges, if not as above
#   JOINT_CODES=1               0: merges for each language by itself; of dsinit 0
#   JOINED=1                    one dictionary; 0: one for each language; of dsinit 0
#   VOCABULARY_THRESHOLD=0      see scripts/prepare.sh; of dsinit 50
#   TEST_SETS="newstest2014 newstest2010 newstest2011 newstest2012 newstest2013 newstest2015 newstest2016"
#                               any of newstest2010 to newstest2018, and newstest2014-filtered: the 2,737 pairs of the
#                               shared task, which sacreBLEU calls wmt14; newstest2014 has 3,003 (wmt14/full)
#   APOSTROPHE=straight         ' for ’ in the tokens of the test sets, as the scripts behind wmt14, admin and wmt17 have it;
#                               keep: as published; of dsinit and wmt16 keep. The references in raw/ stay as published.
#   WORKERS=<cores>             processes
#   MOSES=                      a checkout of Moses: use its Perl tools
#   CACHE=data/cache ARCHIVE_DIR=   where downloads are kept; where your own copies are
#   CHECKSUMS=scripts/checksums
#   DRY_RUN=1                   print the commands, make nothing
# What else scripts/prepare.sh can be told is part of what the names above mean; another choice is refused.
#
# Otherwise test sets keep their punctuation; of wmt14, admin and wmt17 training and validation text is normalised.
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
TEST_SETS=${TEST_SETS:-}
(($# <= 1)) || die "one directory, not $#: $*"
require_choice VARIANT "$VARIANT" wmt14 admin wmt17 dsinit wmt16-raw wmt16-google

# News Commentary: its archive, and the text in it.
NC9=(wmt14/training-parallel-nc-v9.tgz training/news-commentary-v9.de-en)
NC11=(wmt16/translation-task/training-parallel-nc-v11.tgz training-parallel-nc-v11/news-commentary-v11.de-en)
NC12=(wmt17/translation-task/training-parallel-nc-v12.tgz training/news-commentary-v12.de-en)
# What a variant means, and its values of what is left open.
means=(TOKENISER=moses ESCAPE=1 SUBWORDS=bpe)
case $VARIANT in
    wmt14)
        NAME=wmt14_en_de NEWS_COMMENTARY=("${NC9[@]}")
        means+=(NORMALISE=train AGGRESSIVE=1 CLEAN=subwords MAX_LENGTH=250 RATIO=1.5 TYPES=0)
        open_settings SIZE=32000
        ;;
    admin)
        NAME=wmt14_en_de_admin NEWS_COMMENTARY=("${NC12[@]}")
        means+=(NORMALISE=train AGGRESSIVE=1 CLEAN=tokens MAX_LENGTH=80 RATIO=9 TYPES=0)
        open_settings SIZE=32764
        ;;
    wmt17)
        NAME=wmt17_en_de NEWS_COMMENTARY=("${NC12[@]}")
        means+=(NORMALISE=train AGGRESSIVE=1 CLEAN=subwords MAX_LENGTH=250 RATIO=1.5 TYPES=0)
        open_settings SIZE=40000 VALID=every-100th
        ;;
    dsinit)
        NAME=wmt14_en_de_dsinit NEWS_COMMENTARY=("${NC9[@]}")
        # No pair of these lengths has a higher ratio.
        means+=(NORMALISE=none AGGRESSIVE=1 CLEAN=tokens MAX_LENGTH=250 RATIO=250 TYPES=0)
        open_settings SIZE=32000 JOINT_CODES=0 JOINED=0 VOCABULARY_THRESHOLD=50 APOSTROPHE=keep \
            TEST_SETS="newstest2014-filtered newstest2014 newstest2015 newstest2016 newstest2017 newstest2018"
        ;;
    wmt16-raw)
        NAME=wmt16_en_de_raw NEWS_COMMENTARY=("${NC11[@]}")
        # The dictionary is cut as fairseq's recipe for Google's text has it.
        means+=(NORMALISE=none AGGRESSIVE=0 CLEAN=tokens MAX_LENGTH=80 RATIO=9 TYPES=32768)
        open_settings SIZE=32000 APOSTROPHE=keep
        ;;
    wmt16-google)
        NAME=wmt16_en_de
        means=(NORMALISE=none TOKENISER=none GIVEN_TOKENISER=moses AGGRESSIVE=0 ESCAPE=1 SUBWORDS=none
            GIVEN_SUBWORDS=bpe CLEAN=none MAX_LENGTH=250 RATIO=1.5 TYPES=32768 SIZE=32000
            JOINT_CODES=1 JOINED=1 VOCABULARY_THRESHOLD=0 VALID=newstest2013 APOSTROPHE=keep)
        ;;
esac
fixed_settings "VARIANT=$VARIANT" SOURCE=en TARGET=de LOWER_CASE=0 MIN_LENGTH=1 CODES= SOURCE_DICT= TARGET_DICT= \
    "${means[@]}"
open_settings VALID=newstest2013 JOINT_CODES=1 JOINED=1 VOCABULARY_THRESHOLD=0 APOSTROPHE=straight \
    TEST_SETS="newstest2014 newstest2010 newstest2011 newstest2012 newstest2013 newstest2015 newstest2016"
require_choice VALID "$VALID" newstest2013 every-100th
require_choice APOSTROPHE "$APOSTROPHE" straight keep

DIR=${1:-$ROOT/data/$NAME}
DIR=${DIR%/}
ORIGINAL=$DIR/original
read -r -a NAMES <<<"$TEST_SETS"
for name in "${NAMES[@]}"; do require_choice 'test set' "$name" "${!TEST_SET[@]}"; done
sets=()

# ---- those that start from text ----------------------------------------------------------------------------------

from_text() {
    training_text wmt13/training-parallel-europarl-v7.tgz training/europarl-v7.de-en
    training_text wmt13/training-parallel-commoncrawl.tgz commoncrawl.de-en
    training_text "${NEWS_COMMENTARY[@]}"
    held_out_sets
}

# ---- Google's ----------------------------------------------------------------------------------------------------

from_google() {
    local name
    unpack_once "$GOOGLE" wmt16_en_de.tar.gz --only '*train.tok.clean.bpe.32000.*' --only '*newstest20*' \
        --only '*bpe.32000' "https://drive.google.com/uc?export=download&id=0B_bZck-ksdkpM25jRUN2X2UxMm8"
    sets=("train=$GOOGLE/train.tok.clean.bpe.32000")
    sets+=("valid=$GOOGLE/newstest2013.tok.bpe.32000" "valid.raw=$GOOGLE/newstest2013")
    for name in "${NAMES[@]}"; do
        sets+=("$name=$GOOGLE/$name.tok.bpe.32000" "$name.raw=$GOOGLE/$name")
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
}; exit
