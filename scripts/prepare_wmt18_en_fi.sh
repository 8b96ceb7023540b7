#!/usr/bin/env bash
# Prepare WMT'18 English-Finnish as DS-Init has it (section 7.1): the training text as the organisers tokenised and truecased
# it, newstest2017 for validation, newstest2018 as test set, 32,000 merges for each language by itself.
#
# usage: [SETTING=VALUE ...] scripts/prepare_wmt18_en_fi.sh [DIR]
#
# inputs, downloaded from data.statmt.org, or copied by you into ARCHIVE_DIR under these names
#   wmt18-fi-en-corpus.gz  preprocessed/fi-en/corpus.gz of the translation task of 2018: a pair a line, Finnish, tab,
#                            English (3.3 million)
#   wmt{17,18}-test.tgz     the test.tgz of both years, whose checksums are known
#
# outputs, in DIR (default: data/wmt18_en_fi)
#   original/     the archives, unpacked, and how words are cased in them; may be deleted at the end
#   raw/ text/ codes.en codes.fi data-bin/ test_sets settings: see scripts/prepare.sh, which does the rest
#
# settings
#   SIZE=32000                  merges
#   JOINT_CODES=0 JOINED=0      1: merges for both languages together; one dictionary
#   VOCABULARY_THRESHOLD=50     as docs/usage of the authors' toolkit has it
#   WORKERS=<cores> MOSES=      see scripts/prepare.sh; its other settings are part of what the paper's text is, and
#                               another choice is refused
#   CACHE= ARCHIVE_DIR= CHECKSUMS=   see docs/downloads.md
#   DRY_RUN=1                   print the commands, make nothing
#
# The test sets are made like the training text: normalised punctuation, Moses' tokens (hyphens split), and truecased
# by what the training text itself shows; the organisers' own truecaser is not needed.
#
# time and disk: half a day, 15 GB, of which 5 GB stay. Both are estimates: nobody has run this script on all the data yet.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
usage_and_exit_if_asked "$@"
(($# <= 1)) || die "one directory, not $#: $*"

DIR=${1:-$ROOT/data/wmt18_en_fi}
DIR=${DIR%/}
original=$DIR/original
meaning=(
    --source en --target "fi" --tokeniser none --given-tokeniser moses --given-truecased 1 --clean none
    --size "${SIZE:-32000}" --joint-codes "${JOINT_CODES:-0}" --joined "${JOINED:-0}"
    --vocabulary-threshold "${VOCABULARY_THRESHOLD:-50}" --workers "${WORKERS:-}"
)
fairseq_deep prepare "$DIR" "${meaning[@]}" --settings-of "WMT'18 English-Finnish"
if [[ -e $DIR/data-bin && -e $DIR/test_sets && ! -e $original ]]; then
    say "$DIR: prepared already, kept ($original is deleted)"
    exit
fi

fairseq_deep wmt --pair en-fi --to "$original" newstest2017 newstest2018
claim "$original/test"
archive=wmt18-fi-en-corpus.gz
if [[ ! -e $original/training/train.en ]]; then
    path=wmt18/translation-task/preprocessed/fi-en/corpus.gz
    fairseq_deep download "$archive" "https://data.statmt.org/$path" "http://data.statmt.org/$path"
fi
once "$original/training/train.en" text columns "${ARCHIVE_DIR:-$CACHE}/$archive" \
    "$original/training/train.fi" "$original/training/train.en"

# The test sets as the training text is: its punctuation, tokens and case.
for language in en "fi"; do
    once "$original/truecaser.$language" \
        text learn-truecaser "$original/training/train.$language" "$original/truecaser.$language"
    for name in newstest2017 newstest2018; do
        tokens=$original/tokens/$name.$language
        once "$tokens" text tokenise --language "$language" --normalise --aggressive \
            "$original/test/$name.$language" "$tokens.tokens"
        once "$tokens" text truecase --model "$original/truecaser.$language" "$tokens.tokens" "$tokens"
        run rm -f -- "$tokens.tokens"
    done
done
fairseq_deep prepare "$DIR" "${meaning[@]}" --train "$original/training/train" \
    --valid "$original/tokens/newstest2017" \
    --test "newstest2018=$original/tokens/newstest2018" \
    --raw "valid=$original/test/newstest2017" "newstest2018=$original/test/newstest2018" \
    --changed valid=punctuation newstest2018=punctuation
