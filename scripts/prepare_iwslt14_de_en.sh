#!/usr/bin/env bash
# Prepare IWSLT'14 German-English as fairseq's prepare-iwslt14.sh does: lower case, 10,000 joint merges.
#
#     scripts/prepare_iwslt14_de_en.sh [DIR] [--SETTING VALUE ...]
#
#     scripts/prepare_iwslt14_de_en.sh                                       German to English, one dictionary
#     scripts/prepare_iwslt14_de_en.sh data/separate --joined 0              dictionaries of 8,848 and 6,632 types
#     scripts/prepare_iwslt14_de_en.sh --source en                           English to German
#
# DIR (default: data/iwslt14_de_en, ..._en_de, ..._dsinit) gets what fairseq-deep prepare writes, and published/.
# Settings: SOURCE, TARGET, VARIANT, JOINED, SIZE, JOINT_CODES, VOCABULARY_THRESHOLD, CODES, SOURCE_DICT, TARGET_DICT,
# WORKERS, CACHE, ARCHIVE_DIR, CHECKSUMS, DRY_RUN; see docs/data.md, also for time and disk.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
read_settings "$@"

SOURCE=${SOURCE:-de}
TARGET=${TARGET:-$([[ $SOURCE == en ]] && printf de || printf en)}
[[ $SOURCE-$TARGET == de-en || $SOURCE-$TARGET == en-de ]] || die "SOURCE-TARGET is $SOURCE-$TARGET; legal: de-en, en-de"
name=iwslt14_${SOURCE}_$TARGET VARIANT=${VARIANT:-fairseq}
case $VARIANT in
    fairseq) SIZE=${SIZE:-10000} JOINED=${JOINED:-1} ;;
    dsinit) name+=_dsinit SIZE=${SIZE:-30000} JOINED=${JOINED:-0} ;;
    *) die "unknown VARIANT '$VARIANT'; legal values: fairseq dsinit" ;;
esac
set_directory "$ROOT/data/$name" "${words[@]}"
published=$DIR/published/sentences
train=$published/train valid=every-23rd
# DS-Init takes every 23rd pair before cleaning.
[[ $VARIANT == fairseq ]] || train=$DIR/published/split/train valid=$DIR/published/split/valid

options=(
    --source "$SOURCE" --target "$TARGET"
    --tokeniser moses --lower-case
    --clean tokens --min-length 1 --max-length 175 --ratio 1.5
    --valid "$valid"
)
pass_on SIZE JOINED JOINT_CODES VOCABULARY_THRESHOLD CODES SOURCE_DICT TARGET_DICT WORKERS
fairseq_deep prepare "$DIR" "${options[@]}" --check
note_call
claim "$DIR/published"

if [[ ! -e $published ]]; then
    fairseq_deep download de-en.tgz \
        https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz \
        https://wit3.fbk.eu/archive/2014-01/texts/de/en/de-en.tgz # the publisher's own, dead since 2020
    made=$published.partial
    run rm -rf -- "$made"
    text unpack "${ARCHIVE_DIR:-$CACHE}/de-en.tgz" "$made/archive"
    for language in de en; do
        # fairseq's order; the test set is all of them.
        tests=()
        for name in TED.dev2010 TEDX.dev2012 TED.tst2010 TED.tst2011 TED.tst2012; do
            tests+=("$made/archive/de-en/IWSLT14.$name.de-en.$language.xml")
        done
        text ted --kind tags "$made/archive/de-en/train.tags.de-en.$language" "$made/train.$language"
        text ted --kind xml --straight-apostrophes "${tests[@]}" "$made/test.$language"
        text ted --kind xml "${tests[@]}" "$made/test.raw.$language"
    done
    run rm -rf -- "$made/archive"
    run mv -T -- "$made" "$published"
fi
if [[ $VARIANT == dsinit ]]; then
    for language in de en; do
        once "$valid.$language" text split --every 23 "$published/train.$language" "$train.$language" "$valid.$language"
    done
fi

fairseq_deep prepare "$DIR" "${options[@]}" --train "$train" \
    --test "test=$published/test" --raw "test=$published/test.raw" --changed test=apostrophes
note_prepared
