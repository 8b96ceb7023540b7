#!/usr/bin/env bash
# Prepare WMT English-German in one of the six forms that papers call WMT'14.
#
#     scripts/prepare_wmt14_en_de.sh [DIR] [--SETTING VALUE ...]
#
#     scripts/prepare_wmt14_en_de.sh                         what the Admin paper calls WMT'14
#     scripts/prepare_wmt14_en_de.sh --variant wmt14         the shared task of 2014
#     scripts/prepare_wmt14_en_de.sh --variant wmt16-google --archive-dir ~/archives
#
# DIR (default: data/wmt14_en_de_admin, or of that variant) gets what fairseq-deep prepare writes, and original/: the archives.
# Settings: VARIANT, VALID, SIZE, JOINT_CODES, JOINED, VOCABULARY_THRESHOLD, TEST_SETS, APOSTROPHE, WORKERS, CACHE,
# ARCHIVE_DIR, CHECKSUMS, DRY_RUN. docs/data.md says what they and the variants mean; there, too: time and disk.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
read_settings "$@"

# Most published rows of English-German are Admin's. What most variants have; the others say below what is different.
VARIANT=${VARIANT:-admin}
news=v9 size=32000 valid=newstest2013 apostrophe=straight normalise=train joint_codes=1 joined=1 threshold=0
test_sets="newstest2014 newstest2010 newstest2011 newstest2012 newstest2013 newstest2015 newstest2016"
options=(--aggressive --clean subwords --max-length 250 --ratio 1.5)
case $VARIANT in
    wmt14) name=wmt14_en_de ;;
    admin)
        name=wmt14_en_de_admin news=v12 size=32764
        options=(--aggressive --clean tokens --max-length 80 --ratio 9)
        ;;
    wmt17) name=wmt17_en_de news=v12 size=40000 valid=every-100th ;;
    dsinit)
        name=wmt14_en_de_dsinit joint_codes=0 joined=0 threshold=50 apostrophe=keep normalise=none
        test_sets="newstest2014-filtered newstest2014 newstest2015 newstest2016 newstest2017 newstest2018"
        # No pair of these lengths has a higher ratio.
        options=(--aggressive --clean tokens --max-length 250 --ratio 250)
        ;;
    wmt16-raw)
        name=wmt16_en_de_raw news=v11 apostrophe=keep normalise=none
        # The dictionary is cut as fairseq's recipe for Google's text has it.
        options=(--clean tokens --max-length 80 --ratio 9 --types 32768)
        ;;
    wmt16-google)
        name=wmt16_en_de normalise=none
        options=(--tokeniser none --given-tokeniser moses --subwords none --given-subwords bpe --clean none --types 32768)
        chosen=${SIZE:-}${JOINT_CODES:-}${JOINED:-}${VOCABULARY_THRESHOLD:-}
        [[ -z $chosen && ${VALID:-$valid} == "$valid" && ${APOSTROPHE:-keep} == keep ]] ||
            die "VARIANT=$VARIANT comes in subwords, with VALID=$valid: it has none of the other settings"
        ;;
    *) die "unknown VARIANT '$VARIANT'; legal values: admin wmt14 wmt17 dsinit wmt16-raw wmt16-google" ;;
esac
set_directory "$ROOT/data/$name" "${words[@]}"
valid=${VALID:-$valid} apostrophe=${APOSTROPHE:-$apostrophe}
[[ $valid == newstest2013 || $valid == every-100th ]] || die "unknown VALID '$valid'; legal values: newstest2013 every-100th"
read -r -a test_sets <<<"${TEST_SETS:-$test_sets}"
options+=(--source en --target de --normalise "$normalise")
pass_on WORKERS

if [[ $VARIANT == wmt16-google ]]; then
    fairseq_deep prepare "$DIR" "${options[@]}" --check
    exit_if_prepared
    note_call
    claim "$original"
    google=$original/wmt16_en_de
    if [[ ! -e $google ]]; then
        fairseq_deep download wmt16_en_de.tar.gz \
            "https://drive.google.com/uc?export=download&id=0B_bZck-ksdkpM25jRUN2X2UxMm8"
        once "$google" text unpack --only '*train.tok.clean.bpe.32000.*' --only '*newstest20*' --only '*bpe.32000' \
            "${ARCHIVE_DIR:-$CACHE}/wmt16_en_de.tar.gz" "$google"
    fi
    sets=(--valid "$google/newstest2013.tok.bpe.32000" --raw "valid=$google/newstest2013")
    for name in "${test_sets[@]}"; do
        sets+=(--test "$name=$google/$name.tok.bpe.32000" --raw "$name=$google/$name")
    done
    fairseq_deep prepare "$DIR" "${options[@]}" --train "$google/train.tok.clean.bpe.32000" "${sets[@]}"
    note_prepared
    exit
fi

target=de
texts=(europarl-v7 commoncrawl "news-commentary-$news")
trains=(
    training-parallel-europarl-v7/training/europarl-v7.de-en
    training-parallel-commoncrawl/commoncrawl.de-en
    "training-parallel-nc-$news/training/news-commentary-$news.de-en"
)
[[ $news != v11 ]] || trains[2]=training-parallel-nc-v11/training-parallel-nc-v11/news-commentary-v11.de-en
source "$ROOT/scripts/lib_wmt14.sh"
