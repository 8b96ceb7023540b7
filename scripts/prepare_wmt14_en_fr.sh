#!/usr/bin/env bash
# Prepare WMT'14 English-French as fairseq's prepare-wmt14en2fr.sh and Admin's pre-process/wmt14en-fr.sh do:
# 40,842,333 pairs, one in 1,333 for validation, 1-250 subwords, ratio 1.5, 40,000 joint merges, one dictionary.
#
# usage: [SETTING=VALUE ...] scripts/prepare_wmt14_en_fr.sh [DIR]
#
# inputs, downloaded from statmt.org (6.6 GB), or copied by you into ARCHIVE_DIR under these names
#   training-parallel-{europarl-v7,commoncrawl,un,nc-v9}.tgz, training-giga-fren.tar, wmt14-test-full.tgz (the
#   test-full.tgz of 2014), and for VALID and TEST_SETS of 2010 to 2013 wmt{10,11,12,13}-test.tgz
#   Their checksums are in scripts/checksums; the lines of each text are counted. Training texts that statmt.org does
#   not give come from the Hugging Face Hub (or its mirror HF_ENDPOINT), as NAME.zip.
#
# outputs, in DIR (default: data/wmt14_en_fr, or wmt14_en_fr_dsinit)
#   original/     the archives, unpacked, of these two languages; may be deleted at the end
#   raw/ text/ codes data-bin/ test_sets settings: see scripts/prepare.sh, which does the rest
#
# settings
#   VARIANT=fairseq             as above; dsinit: as DS-Init has it (section 7.1), with the values behind the |
#   VALID=every-1333rd | newstest2012+newstest2013     or newstest2013
#   SIZE=40000 | 32000          merges
#   JOINT_CODES=1 | 0           0: merges for each language by itself
#   JOINED=1 | 0                0: a dictionary for each language
#   VOCABULARY_THRESHOLD=0 | 50 see scripts/prepare.sh
#   TEST_SETS=newstest2014      of newstest2010 to newstest2014
#   APOSTROPHE=straight | keep  straight: ' for ’ in the tokens of the test sets, as both scripts have it; the references
#                               in raw/ stay as published
#   WORKERS=<cores>             processes
#   MOSES=                      a checkout of Moses: use its Perl tools
#   CACHE=data/cache ARCHIVE_DIR=   where downloads are kept; where your own copies are
#   CHECKSUMS=scripts/checksums
#   DRY_RUN=1                   print the commands, make nothing
#
# What else scripts/prepare.sh can be told is part of what WMT'14 means here; another choice is refused. But for the
# apostrophe the test set keeps its punctuation, as in both scripts; training and validation text is normalised.
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

VARIANT=${VARIANT:-fairseq}
TEST_SETS=${TEST_SETS:-newstest2014}
require_choice VARIANT "$VARIANT" fairseq dsinit
fixed_settings "WMT'14 English-French" SOURCE=en TARGET=fr NORMALISE=train TOKENISER=moses AGGRESSIVE=1 ESCAPE=1 \
    LOWER_CASE=0 SUBWORDS=bpe CLEAN=subwords MIN_LENGTH=1 MAX_LENGTH=250 RATIO=1.5 TYPES=0 CODES= SOURCE_DICT= \
    TARGET_DICT=
[[ $VARIANT != dsinit ]] || open_settings VALID=newstest2012+newstest2013 SIZE=32000 JOINT_CODES=0 JOINED=0 \
    VOCABULARY_THRESHOLD=50 APOSTROPHE=keep
open_settings VALID=every-1333rd SIZE=40000 JOINT_CODES=1 JOINED=1 VOCABULARY_THRESHOLD=0 APOSTROPHE=straight

(($# <= 1)) || die "one directory, not $#: $*"
require_choice VALID "$VALID" every-1333rd newstest2013 newstest2012+newstest2013
require_choice APOSTROPHE "$APOSTROPHE" straight keep
DEFAULT=$ROOT/data/wmt14_en_fr
[[ $VARIANT != dsinit ]] || DEFAULT+=_dsinit
DIR=${1:-$DEFAULT}
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
