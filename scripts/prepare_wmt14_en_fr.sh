#!/usr/bin/env bash
# Prepare WMT'14 English-French as fairseq's prepare-wmt14en2fr.sh and Admin's pre-process/wmt14en-fr.sh do:
# 40,842,333 pairs, one in 1,333 for validation, 1-250 subwords, ratio 1.5, 40,000 joint merges, one dictionary.
#
# usage: [SETTING=VALUE ...] scripts/prepare_wmt14_en_fr.sh [DIR]
#
# inputs, downloaded from statmt.org (6.6 GB), or copied by you into ARCHIVE_DIR under these names
#   training-parallel-{europarl-v7,commoncrawl,un,nc-v9}.tgz, training-giga-fren.tar, wmt14-test-full.tgz (the
#   test-full.tgz of 2014), and for VALID and TEST_SETS of 2010 to 2013 wmt{10,11,12,13}-test.tgz
#   Their checksums are known; the lines of each text are counted. Training texts that statmt.org does
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
#   JOINT_CODES=1 | 0, JOINED=1 | 0, VOCABULARY_THRESHOLD=0 | 50      see scripts/prepare.sh
#   TEST_SETS=newstest2014      of newstest2010 to newstest2014
#   APOSTROPHE=straight | keep  straight: ' for ’ in the tokens of the test sets, as both scripts have it; the references
#                               in raw/ stay as published
#   WORKERS=<cores> MOSES=      see scripts/prepare.sh; its other settings are part of what WMT'14 means here, and
#                               another choice is refused
#   CACHE= ARCHIVE_DIR= CHECKSUMS=   see docs/downloads.md
#   DRY_RUN=1                   print the commands, make nothing
#
# But for the apostrophe the test set keeps its punctuation, as in both scripts; training and validation text is
# normalised.
#
# time: about a day on 8 cores after the download; disk: 150 GB, of which 60 GB stay; memory: 32 GB to learn the merges.
# All three are estimates.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
usage_and_exit_if_asked "$@"
(($# <= 1)) || die "one directory, not $#: $*"

VARIANT=${VARIANT:-fairseq}
case $VARIANT in
    fairseq) name=wmt14_en_fr size=40000 valid=every-1333rd apostrophe=straight joint_codes=1 joined=1 threshold=0 ;;
    dsinit)
        name=wmt14_en_fr_dsinit size=32000 valid=newstest2012+newstest2013 apostrophe=keep
        joint_codes=0 joined=0 threshold=50
        ;;
    *) die "unknown VARIANT '$VARIANT'; legal values: fairseq dsinit" ;;
esac
valid=${VALID:-$valid}
apostrophe=${APOSTROPHE:-$apostrophe}
read -r -a test_sets <<<"${TEST_SETS:-newstest2014}"
case $valid in
    every-1333rd | newstest2013 | newstest2012+newstest2013) ;;
    *) die "unknown VALID '$valid'; legal values: every-1333rd newstest2013 newstest2012+newstest2013" ;;
esac
[[ $apostrophe == straight || $apostrophe == keep ]] || die "unknown APOSTROPHE '$apostrophe'; legal values: straight keep"
meaning=(
    --source en --target fr --normalise train --aggressive 1 --clean subwords --max-length 250 --ratio 1.5
    --size "${SIZE:-$size}" --joint-codes "${JOINT_CODES:-$joint_codes}" --joined "${JOINED:-$joined}"
    --vocabulary-threshold "${VOCABULARY_THRESHOLD:-$threshold}" --workers "${WORKERS:-}"
)
DIR=${1:-$ROOT/data/$name}
DIR=${DIR%/}
original=$DIR/original
fairseq_deep prepare "$DIR" "${meaning[@]}" --valid "$valid" --settings-of "WMT'14 English-French"
if [[ -e $DIR/data-bin && -e $DIR/test_sets && ! -e $original ]]; then
    say "$DIR: prepared already, kept ($original is deleted)"
    exit
fi

years=()
[[ $valid == every-* ]] || IFS=+ read -r -a years <<<"$valid"
fairseq_deep wmt --pair en-fr --to "$original" europarl-v7 commoncrawl un news-commentary-v9 giga-fren \
    "${years[@]}" "${test_sets[@]}"
claim "$original/test"
sets=(
    --train "$original/training-parallel-europarl-v7/training/europarl-v7.fr-en"
    --train "$original/training-parallel-commoncrawl/commoncrawl.fr-en"
    --train "$original/training-parallel-un/un/undoc.2000.fr-en"
    --train "$original/training-parallel-nc-v9/training/news-commentary-v9.fr-en"
    --train "$original/training-giga-fren/giga-fren.release2.fixed"
)
if ((${#years[@]})); then
    # One year behind the other, with the punctuation of the training text.
    for language in en fr; do
        files=("${years[@]/#/$original/test/}")
        files=("${files[@]/%/.$language}")
        once "$original/years/$valid.$language" text select --every 1 "${files[@]}" "$original/years/$valid.$language"
        once "$original/normalised/$valid.$language" text normalise --language "$language" \
            "${files[@]}" "$original/normalised/$valid.$language"
    done
    sets+=(--valid "$original/normalised/$valid" --raw "valid=$original/years/$valid" --changed valid=punctuation)
else
    sets+=(--valid "$valid")
fi
for name in "${test_sets[@]}"; do
    if [[ $apostrophe == keep ]]; then
        sets+=(--test "$name=$original/test/$name")
        continue
    fi
    for language in en fr; do
        once "$original/straight/$name.$language" \
            text straighten "$original/test/$name.$language" "$original/straight/$name.$language"
    done
    sets+=(--test "$name=$original/straight/$name" --raw "$name=$original/test/$name" --changed "$name=apostrophes")
done
fairseq_deep prepare "$DIR" "${meaning[@]}" "${sets[@]}"
