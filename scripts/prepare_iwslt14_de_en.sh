#!/usr/bin/env bash
# Prepare IWSLT'14 German-English as fairseq's prepare-iwslt14.sh does: 160,239 training, 7,283 validation and 6,750
# test pairs, lower-cased, 10,000 joint merges.
#
# usage: [SETTING=VALUE ...] scripts/prepare_iwslt14_de_en.sh [DIR]
#
#   scripts/prepare_iwslt14_de_en.sh                                             German to English, one dictionary
#   JOINED=0 scripts/prepare_iwslt14_de_en.sh data/separate                      dictionaries of 8,848 and 6,632 types
#   SOURCE=en TARGET=de scripts/prepare_iwslt14_de_en.sh data/iwslt14_en_de      English to German
#
# inputs
#   de-en.tgz     the release of 2014 (20 MB), downloaded; ARCHIVE_DIR=DIR takes your own copy in DIR
#
# outputs, in DIR (default: data/iwslt14_de_en; with SOURCE=en: data/iwslt14_en_de; of dsinit with _dsinit behind)
#   published/    the sentences of the archive without markup
#   raw/ text/ codes data-bin/ settings: see scripts/prepare.sh
#
# settings
#   SOURCE=de TARGET=en         direction
#   VARIANT=fairseq             as above; dsinit: 7,584 validation pairs as DS-Init has (section 7.1), every 23rd of the
#                               174,443 before cleaning, and 30,000 merges, JOINED=0. The paper's 159,000 training pairs
#                               are not what 1-175 tokens and ratio 1.5 leave (about 160,000); its limits it does not
#                               state.
#   JOINED=1                    one dictionary, as Admin's recipe has it (--share-all-embeddings); 0: one for each
#                               language, as fairseq's own recipe has it
#   SIZE=10000                  merges
#   JOINT_CODES=1 VOCABULARY_THRESHOLD=0 CODES= SOURCE_DICT= TARGET_DICT= WORKERS=<cores> MOSES=
#                               see scripts/prepare.sh; its other settings are part of what IWSLT'14 means here, and
#                               another choice is refused
#   CACHE= ARCHIVE_DIR= CHECKSUMS=   see docs/downloads.md
#   DRY_RUN=1                   print the commands, make nothing
#
# time: 3 minutes after the download; disk: 250 MB, of which 150 MB stay. Both are estimates from a smaller corpus.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
usage_and_exit_if_asked "$@"

SOURCE=${SOURCE:-de}
TARGET=${TARGET:-$([[ $SOURCE == en ]] && printf de || printf en)}
VARIANT=${VARIANT:-fairseq}
[[ $SOURCE-$TARGET == de-en || $SOURCE-$TARGET == en-de ]] || die "SOURCE-TARGET is $SOURCE-$TARGET; legal: de-en, en-de"
case $VARIANT in
    fairseq) DIR=$ROOT/data/iwslt14_${SOURCE}_$TARGET SIZE=${SIZE:-10000} JOINED=${JOINED:-1} ;;
    dsinit) DIR=$ROOT/data/iwslt14_${SOURCE}_${TARGET}_dsinit SIZE=${SIZE:-30000} JOINED=${JOINED:-0} ;;
    *) die "unknown VARIANT '$VARIANT'; legal values: fairseq dsinit" ;;
esac
(($# <= 1)) || die "one directory, not $#: $*"
DIR=${1:-$DIR}
DIR=${DIR%/}

meaning=(
    --source "$SOURCE" --target "$TARGET"
    --tokeniser moses --lower-case 1
    --clean tokens --min-length 1 --max-length 175 --ratio 1.5
    --subwords bpe --size "$SIZE" --joint-codes "${JOINT_CODES:-1}" --codes "${CODES:-}"
    --vocabulary-threshold "${VOCABULARY_THRESHOLD:-0}"
    --joined "$JOINED" --source-dict "${SOURCE_DICT:-}" --target-dict "${TARGET_DICT:-}"
    --workers "${WORKERS:-}"
)
VALID=every-23rd
[[ $VARIANT == fairseq ]] || VALID=$DIR/published/split/valid
fairseq_deep prepare "$DIR" "${meaning[@]}" --valid "$VALID" --settings-of "IWSLT'14"

claim "$DIR/published"
published=$DIR/published/sentences
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
        text ted --tags "$made/archive/de-en/train.tags.de-en.$language" "$made/train.$language"
        text ted --xml --straight-apostrophes "${tests[@]}" "$made/test.$language"
        text ted --xml "${tests[@]}" "$made/test.raw.$language"
    done
    run rm -rf -- "$made/archive"
    run mv -T -- "$made" "$published"
fi
train=$published/train
if [[ $VARIANT == dsinit ]]; then # every 23rd pair, before cleaning
    train=$DIR/published/split/train
    for language in de en; do
        once "$VALID.$language" text split --every 23 "$published/train.$language" "$train.$language" "$VALID.$language"
    done
fi

fairseq_deep prepare "$DIR" "${meaning[@]}" --train "$train" --valid "$VALID" \
    --test "test=$published/test" --raw "test=$published/test.raw" --changed test=apostrophes
