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
#   raw/ text/ codes data-bin/ settings: see scripts/prepare.sh, which does the rest
#
# settings
#   SOURCE=de TARGET=en         direction
#   VARIANT=fairseq             as above; dsinit: 7,584 validation pairs as DS-Init has (section 7.1), every 23rd of the
#                               174,443 before cleaning, and 30,000 merges, JOINED=0. The paper's 159,000 training pairs
#                               are not what 1-175 tokens and ratio 1.5 leave (about 160,000); its limits it does not
#                               state.
#   JOINED=1                    one dictionary, as Admin's recipe has it (--share-all-embeddings); 0: one for each
#                               language, as fairseq's own recipe has it
#   JOINT_CODES=1               0: merges for each language by itself
#   VOCABULARY_THRESHOLD=0      see scripts/prepare.sh
#   SIZE=10000                  merges
#   CODES= SOURCE_DICT= TARGET_DICT=   merges and dictionaries of somebody's checkpoints, instead of learning them
#   WORKERS=<cores>             processes
#   MOSES=                      a checkout of Moses: use its Perl tools (the test set comes out the same without)
#   CACHE= ARCHIVE_DIR=         where downloads are kept; where your own copies are
#   CHECKSUMS=scripts/checksums
#   DRY_RUN=1                   print the commands, make nothing
# What else scripts/prepare.sh can be told is part of what IWSLT'14 means here; another choice is refused.
#
# time: 3 minutes after the download; disk: 250 MB, of which 150 MB stay. Both are estimates from a smaller corpus.
set -euo pipefail
{ # Read whole before it runs: an edit of this file does not reach a running job.
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
usage_and_exit_if_asked "$@"

SOURCE=${SOURCE:-de}
TARGET=${TARGET:-$([[ $SOURCE == en ]] && printf de || printf en)}
export SOURCE TARGET
VARIANT=${VARIANT:-fairseq}
require_choice VARIANT "$VARIANT" fairseq dsinit
fixed_settings "IWSLT'14" NORMALISE=none TOKENISER=moses AGGRESSIVE=0 ESCAPE=1 LOWER_CASE=1 SUBWORDS=bpe CLEAN=tokens \
    MIN_LENGTH=1 MAX_LENGTH=175 RATIO=1.5 TYPES=0
[[ $VARIANT != dsinit ]] || open_settings SIZE=30000 JOINED=0
open_settings SIZE=10000 JOINED=1

URLS=(
    "https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
    # The first publisher's own; his server moved in 2020.
    "https://wit3.fbk.eu/archive/2014-01/texts/de/en/de-en.tgz"
)
# fairseq's order; the test set is all of them.
TEST_SETS=(TED.dev2010 TEDX.dev2012 TED.tst2010 TED.tst2011 TED.tst2012)

[[ ${1:-} != -* ]] || die "unknown option '$1'; scripts/prepare_iwslt14_de_en.sh --help says more"
(($# <= 1)) || die "one directory, not $#: $*"
[[ $SOURCE-$TARGET == de-en || $SOURCE-$TARGET == en-de ]] || die "SOURCE-TARGET is $SOURCE-$TARGET; legal: de-en, en-de"
DEFAULT=$ROOT/data/iwslt14_${SOURCE}_$TARGET
[[ $VARIANT != dsinit ]] || DEFAULT+=_dsinit
DIR=${1:-$DEFAULT}
DIR=${DIR%/}
require_choice JOINED "$JOINED" 0 1
require_number SIZE "$SIZE"

# sentences OUTPUT: what the archive says, without its markup, one sentence a line.
sentences() {
    local to=$1 from=$1/archive/de-en language name
    local -a files
    run mkdir -p -- "$to"
    corpora unpack --sums "$CHECKSUMS" "$(archive de-en.tgz)" "$to/archive"
    for language in de en; do
        files=()
        for name in "${TEST_SETS[@]}"; do files+=("$from/IWSLT14.$name.de-en.$language.xml"); done
        corpora ted --tags "$from/train.tags.de-en.$language" "$to/train.$language"
        corpora ted --xml --straight-apostrophes "${files[@]}" "$to/test.$language"
        corpora ted --xml "${files[@]}" "$to/test.raw.$language"
    done
    run rm -rf -- "$to/archive"
}

# split_before_cleaning OUTPUT: every 23rd pair apart.
split_before_cleaning() {
    local language
    run mkdir -p -- "$1"
    for language in de en; do
        corpora split --every 23 "$FROM/train.$language" "$1/train.$language" "$1/valid.$language"
    done
}

claim "$DIR/published"
if [[ ! -e $DIR/published/sentences ]]; then
    require_package
    fetch de-en.tgz "${URLS[@]}"
fi
make_once "$DIR/published/sentences" sentences
FROM=$DIR/published/sentences
TRAIN=$FROM/train VALID=every-23rd
if [[ $VARIANT == dsinit ]]; then
    TRAIN=$DIR/published/split/train VALID=$DIR/published/split/valid
    make_once "$DIR/published/split" split_before_cleaning
fi
"$ROOT/scripts/prepare.sh" "$DIR" train="$TRAIN" valid="$VALID" test="$FROM/test" test.raw="$FROM/test.raw" \
    test.changed=apostrophes
}; exit
