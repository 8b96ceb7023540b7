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
# outputs, in DIR (default: data/iwslt14_de_en; with SOURCE=en: data/iwslt14_en_de)
#   published/    the sentences of the archive without markup
#   raw/ text/ codes data-bin/ settings: see scripts/prepare.sh, which does the rest
#
# settings
#   SOURCE=de TARGET=en         direction
#   JOINED=1                    one dictionary, as Admin's recipe has it (--share-all-embeddings); 0: one for each
#                               language, as fairseq's own recipe has it
#   SIZE=10000                  merges (DS-Init's IWSLT table: 30000)
#   CODES= SOURCE_DICT= TARGET_DICT=   merges and dictionaries of somebody's checkpoints, instead of learning them
#   WORKERS=<cores>             processes
#   MOSES=                      a checkout of Moses: use its Perl tools (the test set comes out the same without)
#   CACHE= ARCHIVE_DIR=         where downloads are kept; where your own copies are
#   DRY_RUN=1                   print the commands, make nothing
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
export JOINED=${JOINED:-1}
export SIZE=${SIZE:-10000}
# The rest is what "IWSLT'14" means; text prepared otherwise goes through scripts/prepare.sh.
export NORMALISE=none TOKENISER=moses AGGRESSIVE=0 ESCAPE=1 LOWER_CASE=1 SUBWORDS=bpe VOCABULARY_THRESHOLD=0
export CLEAN=tokens MIN_LENGTH=1 MAX_LENGTH=175 RATIO=1.5

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
DIR=${1:-$ROOT/data/iwslt14_${SOURCE}_$TARGET}
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

claim "$DIR/published"
if [[ ! -e $DIR/published/sentences ]]; then
    require_package
    fetch de-en.tgz "${URLS[@]}"
fi
make_once "$DIR/published/sentences" sentences
FROM=$DIR/published/sentences
"$ROOT/scripts/prepare.sh" "$DIR" train="$FROM/train" valid=every-23rd test="$FROM/test" test.raw="$FROM/test.raw"
}; exit
