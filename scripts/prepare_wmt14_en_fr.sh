#!/usr/bin/env bash
# Prepare WMT'14 English-French as fairseq's prepare-wmt14en2fr.sh and Admin's pre-process/wmt14en-fr.sh do:
# 40,842,333 pairs, one in 1,333 for validation, 1-250 subwords, ratio 1.5, 40,000 joint merges, one dictionary.
#
# usage: [SETTING=VALUE ...] scripts/prepare_wmt14_en_fr.sh [DIR]
#
# inputs, downloaded from statmt.org (6.6 GB), or copied by you into ARCHIVE_DIR under these names
#   training-parallel-{europarl-v7,commoncrawl,un,nc-v9}.tgz, training-giga-fren.tar, wmt14-test-full.tgz (the
#   test-full.tgz of 2014), and for TEST_SETS of 2010 to 2013 wmt{10,11,12,13}-test.tgz
#   Their checksums are in scripts/checksums; the lines of each text are counted. Training texts that statmt.org does
#   not give come from the Hugging Face Hub (or its mirror HF_ENDPOINT), as NAME.zip.
#
# outputs, in DIR (default: data/wmt14_en_fr)
#   original/     the archives, unpacked, of these two languages; may be deleted at the end
#   raw/ text/ codes data-bin/ test_sets settings: see scripts/prepare.sh, which does the rest
#
# settings
#   VALID=every-1333rd          or newstest2013
#   SIZE=40000                  merges (DS-Init: 32000)
#   JOINED=1                    0: a dictionary for each language (DS-Init)
#   VOCABULARY_THRESHOLD=0      see scripts/prepare.sh (DS-Init: 50)
#   TEST_SETS=newstest2014      of newstest2010 to newstest2014
#   WORKERS=<cores>             processes
#   MOSES=                      a checkout of Moses: use its Perl tools
#   CACHE=data/cache ARCHIVE_DIR=   where downloads are kept; where your own copies are
#   CHECKSUMS=scripts/checksums
#   DRY_RUN=1                   print the commands, make nothing
#
# The test set keeps its punctuation, as in both scripts; only training and validation text is normalised.
#
# time: about a day on 8 cores after the download; disk: 150 GB, of which 60 GB stay; memory: 32 GB to learn the merges.
# All three are estimates.
set -euo pipefail
{ # Read whole before it runs: an edit of this file does not reach a running job.
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=scripts/wmt.sh
source "$(dirname "${BASH_SOURCE[0]}")/wmt.sh"
usage_and_exit_if_asked "$@"

VALID=${VALID:-every-1333rd}
TEST_SETS=${TEST_SETS:-newstest2014}
export SOURCE=en TARGET=fr
export SIZE=${SIZE:-40000} JOINED=${JOINED:-1} VOCABULARY_THRESHOLD=${VOCABULARY_THRESHOLD:-0}
export NORMALISE=train TOKENISER=moses AGGRESSIVE=1 ESCAPE=1 LOWER_CASE=0 SUBWORDS=bpe
export CLEAN=subwords MIN_LENGTH=1 MAX_LENGTH=250 RATIO=1.5 CODES='' SOURCE_DICT='' TARGET_DICT=''

(($# <= 1)) || die "one directory, not $#: $*"
require_choice VALID "$VALID" every-1333rd newstest2013
DIR=${1:-$ROOT/data/wmt14_en_fr}
DIR=${DIR%/}
ORIGINAL=$DIR/original
read -r -a NAMES <<<"$TEST_SETS"
for name in "${NAMES[@]}"; do
    require_choice 'test set' "$name" newstest2010 newstest2011 newstest2012 newstest2013 newstest2014
done

require_package
stop_if_finished "$DIR"
claim "$ORIGINAL"
sets=()
training_text wmt13/training-parallel-europarl-v7.tgz training/europarl-v7.fr-en
training_text wmt13/training-parallel-commoncrawl.tgz commoncrawl.fr-en
training_text wmt13/training-parallel-un.tgz un/undoc.2000.fr-en
training_text wmt14/training-parallel-nc-v9.tgz training/news-commentary-v9.fr-en
training_text wmt10/training-giga-fren.tar giga-fren.release2.fixed
held_out_sets
"$ROOT/scripts/prepare.sh" "$DIR" "${sets[@]}"
}; exit
