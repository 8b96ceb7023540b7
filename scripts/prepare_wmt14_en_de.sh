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
#   Their checksums are known; the lines of each text are counted. Training texts that statmt.org does
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
#   JOINT_CODES=1 JOINED=1 VOCABULARY_THRESHOLD=0      see scripts/prepare.sh; of dsinit 0, 0 and 50
#   TEST_SETS="newstest2014 newstest2010 newstest2011 newstest2012 newstest2013 newstest2015 newstest2016"
#                               any of newstest2010 to newstest2018, and newstest2014-filtered: the 2,737 pairs of the
#                               shared task, which sacreBLEU calls wmt14; newstest2014 has 3,003 (wmt14/full)
#   APOSTROPHE=straight         ' for ’ in the tokens of the test sets, as the scripts behind wmt14, admin and wmt17 have it;
#                               keep: as published; of dsinit and wmt16 keep. The references in raw/ stay as published.
#   WORKERS=<cores> MOSES=      see scripts/prepare.sh; its other settings are part of what the names above mean, and
#                               another choice is refused
#   CACHE= ARCHIVE_DIR= CHECKSUMS=   see docs/downloads.md
#   DRY_RUN=1                   print the commands, make nothing
#
# Otherwise test sets keep their punctuation; of wmt14, admin and wmt17 training and validation text is normalised.
#
# time: about two hours on 8 cores after the download (wmt16-google: 15 minutes); disk: 20 GB, of which 8 GB stay.
# Both are estimates.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
usage_and_exit_if_asked "$@"
(($# <= 1)) || die "one directory, not $#: $*"

# wmt14, admin and wmt17 differ in these; the others say below what else they are.
VARIANT=${VARIANT:-wmt14}
test_sets="newstest2014 newstest2010 newstest2011 newstest2012 newstest2013 newstest2015 newstest2016"
news=news-commentary-v9 size=32000 valid=newstest2013 apostrophe=straight joint_codes=1 joined=1 threshold=0
meaning=(--normalise train --aggressive 1)
case $VARIANT in
    wmt14) name=wmt14_en_de meaning+=(--clean subwords --max-length 250 --ratio 1.5) ;;
    admin)
        name=wmt14_en_de_admin news=news-commentary-v12 size=32764
        meaning+=(--clean tokens --max-length 80 --ratio 9)
        ;;
    wmt17)
        name=wmt17_en_de news=news-commentary-v12 size=40000 valid=every-100th
        meaning+=(--clean subwords --max-length 250 --ratio 1.5)
        ;;
    dsinit)
        name=wmt14_en_de_dsinit joint_codes=0 joined=0 threshold=50 apostrophe=keep
        test_sets="newstest2014-filtered newstest2014 newstest2015 newstest2016 newstest2017 newstest2018"
        # No pair of these lengths has a higher ratio.
        meaning=(--normalise none --aggressive 1 --clean tokens --max-length 250 --ratio 250)
        ;;
    wmt16-raw)
        name=wmt16_en_de_raw news=news-commentary-v11 apostrophe=keep
        # The dictionary is cut as fairseq's recipe for Google's text has it.
        meaning=(--normalise none --aggressive 0 --clean tokens --max-length 80 --ratio 9 --types 32768)
        ;;
    wmt16-google)
        name=wmt16_en_de apostrophe=keep
        meaning=(--tokeniser none --given-tokeniser moses --subwords none --given-subwords bpe --clean none --types 32768)
        for fixed in SIZE=$size JOINT_CODES=1 JOINED=1 VOCABULARY_THRESHOLD=0 VALID=$valid APOSTROPHE=keep; do
            given=${fixed%%=*}
            [[ -z ${!given:-} || $given=${!given} == "$fixed" ]] ||
                die "$given=${!given} is given, but VARIANT=$VARIANT means $fixed"
        done
        ;;
    *) die "unknown VARIANT '$VARIANT'; legal values: wmt14 admin wmt17 dsinit wmt16-raw wmt16-google" ;;
esac
valid=${VALID:-$valid}
apostrophe=${APOSTROPHE:-$apostrophe}
read -r -a test_sets <<<"${TEST_SETS:-$test_sets}"
[[ $valid == newstest2013 || $valid == every-100th ]] || die "unknown VALID '$valid'; legal values: newstest2013 every-100th"
[[ $apostrophe == straight || $apostrophe == keep ]] || die "unknown APOSTROPHE '$apostrophe'; legal values: straight keep"
meaning+=(
    --source en --target de --size "${SIZE:-$size}"
    --joint-codes "${JOINT_CODES:-$joint_codes}" --joined "${JOINED:-$joined}"
    --vocabulary-threshold "${VOCABULARY_THRESHOLD:-$threshold}" --workers "${WORKERS:-}"
)
DIR=${1:-$ROOT/data/$name}
DIR=${DIR%/}
original=$DIR/original
fairseq_deep prepare "$DIR" "${meaning[@]}" --valid "$valid" --settings-of "VARIANT=$VARIANT"
if [[ -e $DIR/data-bin && -e $DIR/test_sets && ! -e $original ]]; then
    say "$DIR: prepared already, kept ($original is deleted)"
    exit
fi

if [[ $VARIANT == wmt16-google ]]; then
    google=$original/wmt16_en_de
    claim "$original"
    if [[ ! -e $google ]]; then
        fairseq_deep download wmt16_en_de.tar.gz \
            "https://drive.google.com/uc?export=download&id=0B_bZck-ksdkpM25jRUN2X2UxMm8"
        once "$google" text unpack --only '*train.tok.clean.bpe.32000.*' --only '*newstest20*' --only '*bpe.32000' \
            "${ARCHIVE_DIR:-$CACHE}/wmt16_en_de.tar.gz" "$google"
    fi
    sets=(--train "$google/train.tok.clean.bpe.32000")
    sets+=(--valid "$google/newstest2013.tok.bpe.32000" --raw "valid=$google/newstest2013")
    for name in "${test_sets[@]}"; do
        sets+=(--test "$name=$google/$name.tok.bpe.32000" --raw "$name=$google/$name")
    done
    fairseq_deep prepare "$DIR" "${meaning[@]}" "${sets[@]}"
    exit
fi

texts=(europarl-v7 commoncrawl "$news")
[[ $valid == every-* ]] || texts+=("$valid")
fairseq_deep wmt --pair en-de --to "$original" "${texts[@]}" "${test_sets[@]}"
claim "$original/test"
sets=(
    --train "$original/training-parallel-europarl-v7/training/europarl-v7.de-en"
    --train "$original/training-parallel-commoncrawl/commoncrawl.de-en"
)
case $news in
    *-v11) sets+=(--train "$original/training-parallel-nc-v11/training-parallel-nc-v11/$news.de-en") ;;
    *) sets+=(--train "$original/training-parallel-nc-${news##*-}/training/$news.de-en") ;;
esac
case "$valid ${meaning[*]}" in
    every-*) sets+=(--valid "$valid") ;;
    *"--normalise none"*) sets+=(--valid "$original/test/$valid") ;;
    *) # with the punctuation of the training text
        for language in en de; do
            once "$original/normalised/$valid.$language" text normalise --language "$language" \
                "$original/test/$valid.$language" "$original/normalised/$valid.$language"
        done
        sets+=(--valid "$original/normalised/$valid" --raw "valid=$original/test/$valid" --changed valid=punctuation)
        ;;
esac
for name in "${test_sets[@]}"; do
    if [[ $apostrophe == keep ]]; then
        sets+=(--test "$name=$original/test/$name")
        continue
    fi
    for language in en de; do
        once "$original/straight/$name.$language" \
            text straighten "$original/test/$name.$language" "$original/straight/$name.$language"
    done
    sets+=(--test "$name=$original/straight/$name" --raw "$name=$original/test/$name" --changed "$name=apostrophes")
done
fairseq_deep prepare "$DIR" "${meaning[@]}" "${sets[@]}"
