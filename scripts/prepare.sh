#!/usr/bin/env bash
# Prepare a parallel corpus for training: check, tokenise, clean, split into subwords, binarise.
#
# usage: [SETTING=VALUE ...] scripts/prepare.sh DIR train=PREFIX valid=PREFIX|every-Nth [NAME=PREFIX ...]
#
#   SOURCE=de TARGET=en scripts/prepare.sh data/mine train=text/train valid=text/dev test=text/test
#   scripts/prepare.sh data/wmt train=europarl train=commoncrawl valid=newstest2013 newstest2014=newstest2014
#
# inputs
#   PREFIX        two parallel files PREFIX.SOURCE and PREFIX.TARGET, or these with .gz; UTF-8, a sentence a line
#   train=        may be given several times; the files are put behind one another
#   valid=        a set of its own, or every-23rd (any number): every 23rd training pair, after cleaning
#   NAME=         a test set; any number of them, any names
#   NAME.raw=     the references of a set as published, where they are not what is to be tokenised
#   NAME.changed= how the text of a set differs from these: apostrophes (' for ’), punctuation (normalised)
#
# outputs, in DIR
#   raw/          <set>.<language>: the development and test sets untouched, for sacreBLEU
#   text/         <set>.tok.<language>: in tokens; <set>.<language>: in subwords
#   codes         merges of byte-pair encoding, or sentencepiece.model; with JOINT_CODES=0 each with .<language> behind
#   data-bin/     for training; test_sets says which test set is `test`, `test1`, ... in it
#   text.json     what the text is in, as scripts/evaluate.sh wants to know it: tokens, subwords, case
#   settings      what all this was made with; a call with other settings or other text is refused
#
# settings
#   SOURCE=de TARGET=en         languages: the ends of the file names, and the rules of the tokeniser
#   NORMALISE=none              none, train or all: one form for punctuation, no control characters; train is the
#                               training text and what is split off it
#   TOKENISER=moses             moses, or none for text that has its tokens
#   GIVEN_TRUECASED=0           1: the first word of a sentence stands as inside sentences (Moses' truecaser)
#   GIVEN_TOKENISER=            moses: the text that is given is in Moses' tokens; goes with TOKENISER=none
#   GIVEN_SUBWORDS=             bpe or sentencepiece: it is in subwords; goes with TOKENISER=none SUBWORDS=none. With both,
#                               each test set needs its NAME.raw=
#   GIVEN_LOWER_CASE=0          1: all its letters are small
#   AGGRESSIVE=0                1: split words at hyphens
#   ESCAPE=1                    0: no &apos; for ' and the like
#   LOWER_CASE=0                1: all letters small
#   CLEAN=tokens                tokens, subwords or none: what the lengths below are counted in; whole sets that were
#                               given for validation and test are never cleaned
#   MIN_LENGTH=1 MAX_LENGTH=250 of both sides of a training pair
#   RATIO=1.5                   most tokens of one side for each of the other
#   SUBWORDS=bpe                bpe, sentencepiece or none
#   SIZE=32000                  merges, or pieces of sentencepiece
#   JOINT_CODES=1               merges, or a model, learned on both languages together; 0: on each by itself, SIZE each
#   CODES=                      a file of merges, or a sentencepiece model, to use instead of learning; with
#                               JOINT_CODES=0 two files, CODES.SOURCE and CODES.TARGET
#   VOCABULARY_THRESHOLD=0      with bpe: split subwords that are rarer than that in the training text of a language
#   JOINED=1                    one dictionary for both languages; 0: one for each. Goes with either JOINT_CODES
#   TYPES=0                     most types of a dictionary, the rarest of them left out; 0: all
#   SOURCE_DICT= TARGET_DICT=   dictionaries (dict.<language>.txt) to use instead of making them
#   WORKERS=<cores>             processes; the result does not depend on it
#   MOSES=                      a checkout of Moses: use its Perl tools
#   DRY_RUN=1                   print the commands, make nothing
#
# time: 29,000 pairs (Multi30k) take 45 seconds of processor time; disk: about 10 times the text,
# half of which is freed at the end (DIR/work).
set -euo pipefail
{ # Read whole before it runs: an edit of this file does not reach a running job.
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
usage_and_exit_if_asked "$@"

SOURCE=${SOURCE:-de}
TARGET=${TARGET:-en}
NORMALISE=${NORMALISE:-none}
TOKENISER=${TOKENISER:-moses}
GIVEN_TRUECASED=${GIVEN_TRUECASED:-0}
GIVEN_TOKENISER=${GIVEN_TOKENISER:-}
GIVEN_SUBWORDS=${GIVEN_SUBWORDS:-}
GIVEN_LOWER_CASE=${GIVEN_LOWER_CASE:-0}
AGGRESSIVE=${AGGRESSIVE:-0}
ESCAPE=${ESCAPE:-1}
LOWER_CASE=${LOWER_CASE:-0}
CLEAN=${CLEAN:-tokens}
MIN_LENGTH=${MIN_LENGTH:-1}
MAX_LENGTH=${MAX_LENGTH:-250}
RATIO=${RATIO:-1.5}
SUBWORDS=${SUBWORDS:-bpe}
SIZE=${SIZE:-32000}
JOINT_CODES=${JOINT_CODES:-1}
CODES=${CODES:-}
VOCABULARY_THRESHOLD=${VOCABULARY_THRESHOLD:-0}
JOINED=${JOINED:-1}
TYPES=${TYPES:-0}
SOURCE_DICT=${SOURCE_DICT:-}
TARGET_DICT=${TARGET_DICT:-}
# (nproc would answer with OMP_NUM_THREADS where that is set, which is about threads inside a process.)
WORKERS=${WORKERS:-$(env -u OMP_NUM_THREADS nproc)}
MOSES=${MOSES:-}
export MOSES

# ---- what was asked for ------------------------------------------------------------------------------------------

(($# >= 1)) || die "no directory given; scripts/prepare.sh --help says more"
DIR=${1%/}
[[ -n $DIR ]] || die "'$1' cannot be the directory to make"
shift
[[ $DIR != -* ]] || die "unknown option '$DIR'; scripts/prepare.sh --help says more"
[[ $DIR != *=* ]] || die "the first argument is the directory to make, not '$DIR'"
# fairseq takes a comma in a path for the end of it.
[[ $DIR != *,* ]] || die "$DIR: a comma in the name of the directory; fairseq cannot read it"

LANGUAGES=("$SOURCE" "$TARGET")
TRAIN=()
TESTS=()
EVERY=
declare -A PREFIX=() RAW=() CHANGED=()

take_set() {
    local name=${1%%=*} prefix=${1#*=}
    [[ $1 == *=* && -n $prefix ]] || die "'$1' is no NAME=PREFIX"
    case $name in
        train) TRAIN+=("$prefix") ;;
        *.raw) RAW[${name%.raw}]=$prefix ;;
        *.changed) CHANGED[${name%.changed}]=$prefix ;;
        *)
            [[ $name =~ ^[A-Za-z0-9][A-Za-z0-9_.-]*$ && $name != *.tok ]] ||
                die "'$name' cannot be the name of a set: letters, digits, '-', '_' and '.', not .tok at the end"
            [[ -z ${PREFIX[$name]:-} ]] || die "$name= is given twice; only train= may be"
            PREFIX[$name]=$prefix
            [[ $name == valid ]] || TESTS+=("$name")
            ;;
    esac
}
for argument in "$@"; do take_set "$argument"; done

[[ ${#TRAIN[@]} -gt 0 ]] || die "no train=PREFIX given"
[[ -n ${PREFIX[valid]:-} ]] || die "no valid=PREFIX given (or valid=every-23rd: that part of the training pairs)"
if [[ ${PREFIX[valid]} =~ ^every-([0-9]+)(st|nd|rd|th)?$ ]]; then
    EVERY=${BASH_REMATCH[1]}
    ((EVERY >= 2)) || die "valid=${PREFIX[valid]} would leave no training pair"
    unset 'PREFIX[valid]'
fi
for name in "${!RAW[@]}"; do
    [[ -n ${PREFIX[$name]:-} ]] || die "$name.raw= is given without $name="
done
for name in "${!CHANGED[@]}"; do
    [[ -n ${RAW[$name]:-} ]] || die "$name.changed= is given without $name.raw="
    for change in ${CHANGED[$name]//,/ }; do require_choice "$name.changed" "$change" apostrophes punctuation; done
done

[[ $SOURCE != "$TARGET" ]] || die "SOURCE and TARGET are both '$SOURCE'; name two languages"
require_choice NORMALISE "$NORMALISE" none train all
require_choice TOKENISER "$TOKENISER" moses none
require_choice GIVEN_TOKENISER "${GIVEN_TOKENISER:-none}" moses none
require_choice GIVEN_SUBWORDS "${GIVEN_SUBWORDS:-none}" bpe sentencepiece none
require_choice CLEAN "$CLEAN" tokens subwords none
require_choice SUBWORDS "$SUBWORDS" bpe sentencepiece none
for name in AGGRESSIVE ESCAPE LOWER_CASE GIVEN_LOWER_CASE JOINED JOINT_CODES GIVEN_TRUECASED; do
    require_choice "$name" "${!name}" 0 1
done
for name in MIN_LENGTH MAX_LENGTH SIZE WORKERS; do require_number "$name" "${!name}"; done
for name in VOCABULARY_THRESHOLD TYPES; do
    [[ ${!name} == 0 ]] || require_number "$name" "${!name}"
done
if [[ ${GIVEN_SUBWORDS:-none} != none ]]; then
    [[ $TOKENISER$SUBWORDS == nonenone ]] || die "GIVEN_SUBWORDS=$GIVEN_SUBWORDS goes with TOKENISER=none SUBWORDS=none"
fi
if [[ ${GIVEN_TOKENISER:-none} != none ]]; then
    [[ $TOKENISER == none ]] || die "GIVEN_TOKENISER=$GIVEN_TOKENISER goes with TOKENISER=none: the text has its tokens"
fi
for name in "${TESTS[@]}"; do
    [[ ${GIVEN_TOKENISER:-none}${GIVEN_SUBWORDS:-none} == nonenone || -n ${RAW[$name]:-} ]] ||
        die "no $name.raw=PREFIX given: the text of $name comes in tokens or subwords, and scores want it as published"
done
[[ $VOCABULARY_THRESHOLD == 0 || $SUBWORDS == bpe ]] || die "VOCABULARY_THRESHOLD goes with SUBWORDS=bpe"
[[ -z $CODES || $SUBWORDS != none ]] || die "CODES is given, but SUBWORDS=none"
[[ $JOINT_CODES == 1 || $SUBWORDS != none ]] || die "JOINT_CODES=0 is given, but SUBWORDS=none"
[[ $TOKENISER != none || $AGGRESSIVE$ESCAPE == 01 ]] || die "AGGRESSIVE=1 and ESCAPE=0 go with TOKENISER=moses"
[[ $CLEAN != none || "$MIN_LENGTH $MAX_LENGTH $RATIO" == '1 250 1.5' ]] ||
    die "MIN_LENGTH, MAX_LENGTH or RATIO is given, but CLEAN=none"
[[ $TYPES == 0 || -z $SOURCE_DICT$TARGET_DICT ]] || die "TYPES is given, but so is a dictionary"
[[ $RATIO =~ ^[1-9][0-9]*(\.[0-9]+)?$ ]] || die "RATIO must be a number of at least 1, not '$RATIO'"
[[ $JOINED == 0 || -z $TARGET_DICT ]] || die "TARGET_DICT is given, but JOINED=1: one dictionary is SOURCE_DICT"

# ---- the files ---------------------------------------------------------------------------------------------------

# file_of PREFIX LANGUAGE: the file itself, or the one with .gz.
file_of() {
    if [[ ! -e $1.$2 && -e $1.$2.gz ]]; then printf '%s' "$1.$2.gz"; else printf '%s' "$1.$2"; fi
}

# fingerprint FILE: what tells one text from another.
fingerprint() {
    ((!DRY_RUN)) || return 0
    sha256sum <"$1" | cut -c 1-16
}

declare -A INPUT=()
SOURCE_INPUTS=()
TARGET_INPUTS=()
TEXTS=()
remember_text() {
    require_file "$2"
    TEXTS+=("$1=$(fingerprint "$2")")
}
for index in "${!TRAIN[@]}"; do
    SOURCE_INPUTS+=("$(file_of "${TRAIN[index]}" "$SOURCE")")
    TARGET_INPUTS+=("$(file_of "${TRAIN[index]}" "$TARGET")")
    remember_text "train.$SOURCE" "${SOURCE_INPUTS[index]}"
    remember_text "train.$TARGET" "${TARGET_INPUTS[index]}"
done
GIVEN=("${TESTS[@]}")
[[ -n $EVERY ]] || GIVEN=(valid "${TESTS[@]}")
for name in "${GIVEN[@]}"; do
    for language in "${LANGUAGES[@]}"; do
        INPUT[$name.$language]=$(file_of "${PREFIX[$name]}" "$language")
        remember_text "$name.$language" "${INPUT[$name.$language]}"
        INPUT[$name.raw.$language]=${INPUT[$name.$language]}
        if [[ -n ${RAW[$name]:-} ]]; then
            INPUT[$name.raw.$language]=$(file_of "${RAW[$name]}" "$language")
            remember_text "$name.raw.$language" "${INPUT[$name.raw.$language]}"
        fi
    done
done
for name in SOURCE_DICT TARGET_DICT; do
    [[ -z ${!name} ]] || remember_text "$name" "${!name}"
done
# What stands behind the names of merges and models: nothing, or the language.
CODES_ENDS=('')
((JOINT_CODES)) || CODES_ENDS=(".$SOURCE" ".$TARGET")
for end in "${CODES_ENDS[@]}"; do
    [[ -z $CODES ]] || remember_text "CODES$end" "$CODES$end"
done
# Settings that came later than others are remembered only where they are chosen: what was prepared before stays valid.
LATER=()
((JOINT_CODES)) || LATER+=("JOINT_CODES=0")
[[ $TYPES == 0 ]] || LATER+=("TYPES=$TYPES")
((!GIVEN_TRUECASED)) || LATER+=("GIVEN_TRUECASED=1")
[[ -z $GIVEN_SUBWORDS ]] || LATER+=("GIVEN_SUBWORDS=$GIVEN_SUBWORDS")

# check_texts: every pair of files is UTF-8, not empty and of equal length.
check_texts() {
    local name index language
    for index in "${!TRAIN[@]}"; do corpora check "${SOURCE_INPUTS[index]}" "${TARGET_INPUTS[index]}"; done
    for name in "${GIVEN[@]}"; do
        corpora check "${INPUT[$name.$SOURCE]}" "${INPUT[$name.$TARGET]}"
        [[ -n ${RAW[$name]:-} ]] || continue
        for language in "${LANGUAGES[@]}"; do
            corpora check "${INPUT[$name.$language]}" "${INPUT[$name.raw.$language]}"
        done
    done
    # Text in subwords that was not said to be would be scored with its marks.
    [[ $TOKENISER$SUBWORDS$GIVEN_SUBWORDS != nonenone ]] || corpora marks "${SOURCE_INPUTS[@]}" "${TARGET_INPUTS[@]}"
}

require_package
# Before settings say that Perl made the tokens.
if [[ -n $MOSES ]]; then
    require_command perl
    [[ -e $MOSES/scripts/tokenizer/tokenizer.perl || -e $MOSES/tokenizer/tokenizer.perl ]] ||
        die "MOSES=$MOSES: neither tokenizer/tokenizer.perl nor scripts/tokenizer/tokenizer.perl is there"
fi
claim "$DIR"
# Settings name the text by its content: where they are remembered, it has been checked. Bad text leaves none, so that
# the same directory serves when it has been mended.
[[ -f $DIR/settings ]] || check_texts
remember_settings "$DIR" "SOURCE=$SOURCE" "TARGET=$TARGET" "NORMALISE=$NORMALISE" "TOKENISER=$TOKENISER" \
    "AGGRESSIVE=$AGGRESSIVE" "ESCAPE=$ESCAPE" "LOWER_CASE=$LOWER_CASE" "CLEAN=$CLEAN" "MIN_LENGTH=$MIN_LENGTH" \
    "MAX_LENGTH=$MAX_LENGTH" "RATIO=$RATIO" "SUBWORDS=$SUBWORDS" "SIZE=$SIZE" \
    "VOCABULARY_THRESHOLD=$VOCABULARY_THRESHOLD" "JOINED=$JOINED" "valid=${EVERY:+every-$EVERY}" \
    "moses=$([[ -n $MOSES ]] && printf Perl || printf Python)" \
    "${LATER[@]}" "${TEXTS[@]}"

# What the text is in: as it is given, or as it is made here.
[[ $TOKENISER != none ]] && tokens=$TOKENISER || tokens=${GIVEN_TOKENISER:-none}
[[ $SUBWORDS != none ]] && subwords=$SUBWORDS || subwords=${GIVEN_SUBWORDS:-none}
described=(--tokeniser "$tokens" --subwords "$subwords")
[[ $LOWER_CASE$GIVEN_LOWER_CASE == 00 ]] || described+=(--lower-case)
((!GIVEN_TRUECASED)) || described+=(--truecased)
for name in valid "${TESTS[@]}"; do
    [[ -z ${CHANGED[$name]:-} ]] || described+=(--changed "$name=${CHANGED[$name]}")
    [[ $NORMALISE != all && ! ($NORMALISE == train && $name == valid && -n $EVERY) ]] ||
        described+=(--changed "$name=punctuation")
done
corpora describe "${described[@]}" "$DIR/text.json"

WORK=$DIR/work
if [[ -e $DIR/data-bin && -e $DIR/test_sets ]] && ((!DRY_RUN)); then
    rm -rf -- "$WORK"
    say "$DIR: prepared already, kept"
    exit 0
fi

# ---- stages: each gets the name to write as its last argument ---------------------------------------------------

# tokenised SET LANGUAGE INPUT ... OUTPUT
tokenised() {
    local name=$1 language=$2
    local -a options=(--language "$language" --kind "$TOKENISER" --workers "$WORKERS")
    shift 2
    [[ $NORMALISE != all && ! ($NORMALISE == train && $name == train) ]] || options+=(--normalise)
    ((!AGGRESSIVE)) || options+=(--aggressive)
    ((ESCAPE)) || options+=(--no-escape)
    ((!LOWER_CASE)) || options+=(--lower-case)
    corpora tokenise "${options[@]}" "$@"
}

# cleaned PREFIX SET OUTPUT: OUTPUT/SET.<language> and OUTPUT/kept, the numbers of the lines that stay.
cleaned() {
    run mkdir -p -- "$3"
    corpora clean --min "$MIN_LENGTH" --max "$MAX_LENGTH" --ratio "$RATIO" "$1.$SOURCE" "$1.$TARGET" \
        "$3/$2.$SOURCE" "$3/$2.$TARGET" "$3/kept"
}

# split_off FROM OUTPUT: train and valid out of FROM/train, and the raw lines of valid.
split_off() {
    local from=$1 to=$2 language
    run mkdir -p -- "$to"
    for language in "${LANGUAGES[@]}"; do
        corpora split --every "$EVERY" "$from/train.$language" "$to/train.$language" "$to/valid.$language"
    done
    [[ $CLEAN != tokens ]] || corpora split --every "$EVERY" "$from/kept" "$to/train.kept" "$to/valid.kept"
    raw_of_split_off "$to" "$SOURCE" "${SOURCE_INPUTS[@]}"
    raw_of_split_off "$to" "$TARGET" "${TARGET_INPUTS[@]}"
}

raw_of_split_off() {
    local to=$1 language=$2
    local -a which=(--every "$EVERY")
    shift 2
    [[ $CLEAN != tokens ]] || which=(--lines "$to/valid.kept")
    corpora select "${which[@]}" "$@" "$to/valid.raw.$language"
}

# learned END OUTPUT: merges or a model, of the language .END or of both.
learned() {
    local -a from=("$FROM/train$1")
    [[ -n $1 ]] || from=("$FROM/train.$SOURCE" "$FROM/train.$TARGET")
    case $SUBWORDS in
        bpe) corpora learn-bpe --merges "$SIZE" "${from[@]}" "$2" ;;
        *) corpora learn-sentencepiece --size "$SIZE" "${from[@]}" "$2" ;;
    esac
}

# model_of LANGUAGE: what splits its words.
model_of() {
    if ((JOINT_CODES)); then printf '%s' "$MODEL"; else printf '%s' "$MODEL.$1"; fi
}

# vocabulary LANGUAGE OUTPUT: subwords of the training text and their counts, none of them split as rare.
vocabulary() {
    corpora apply-bpe --codes "$(model_of "$1")" --workers "$WORKERS" "$FROM/train.$1" "$WORK/unfiltered.$1"
    corpora count "$WORK/unfiltered.$1" --vocabulary "$2"
    run rm -f -- "$WORK/unfiltered.$1"
}

# in_subwords LANGUAGE INPUT OUTPUT
in_subwords() {
    local language=$1
    local -a rare=()
    shift
    [[ $VOCABULARY_THRESHOLD == 0 ]] ||
        rare=(--vocabulary "$DIR/vocabulary.$language" --threshold "$VOCABULARY_THRESHOLD")
    case $SUBWORDS in
        bpe) corpora apply-bpe --codes "$(model_of "$language")" "${rare[@]}" --workers "$WORKERS" "$@" ;;
        sentencepiece) corpora apply-sentencepiece --model "$(model_of "$language")" --workers "$WORKERS" "$@" ;;
        none) placed "$@" ;;
    esac
}

# without_subwords FILE OUTPUT: tokens of text that came in subwords.
without_subwords() {
    local joined='s/@@\( \|$\)//g'
    [[ $GIVEN_SUBWORDS != sentencepiece ]] || joined='s/ //g; s/▁/ /g; s/^ //'
    if ((DRY_RUN)); then run sed "$joined" "$1"; else sed "$joined" "$1" >"$2"; fi
}

# placed FILE OUTPUT: the same file under a second name, or a copy where a file can have only one.
placed() {
    run cp --link -- "$1" "$2" 2>/dev/null || corpora copy "$1" "$2"
}

selected() { corpora select --lines "$1" "$2" "$3"; }

copied() { corpora copy "$1" "$2"; }

binarised() {
    local -a options=(--source-lang "$SOURCE" --target-lang "$TARGET" --workers "$WORKERS" --destdir "$1")
    local -a tests=("${TESTS[@]/#/$DIR/text/}")
    options+=(--trainpref "$DIR/text/train" --validpref "$DIR/text/valid")
    ((${#TESTS[@]} == 0)) || options+=(--testpref "$(IFS=,; printf '%s' "${tests[*]}")")
    ((!JOINED)) || options+=(--joined-dictionary)
    [[ $TYPES == 0 ]] || options+=(--nwordssrc "$TYPES" --nwordstgt "$TYPES")
    [[ -z $SOURCE_DICT ]] || options+=(--srcdict "$SOURCE_DICT")
    [[ -z $TARGET_DICT ]] || options+=(--tgtdict "$TARGET_DICT")
    deep preprocess "${options[@]}"
}

# named_test_sets OUTPUT: fairseq's name and the given name of each test set.
named_test_sets() {
    local index
    if ((DRY_RUN)); then return 0; fi
    for index in "${!TESTS[@]}"; do
        printf 'test%s\t%s\n' "${index#0}" "${TESTS[index]}"
    done >"$1"
}

# ---- from text to numbers ----------------------------------------------------------------------------------------

# Subwords that the text came in stand where its tokens would, until the tokens are made of them.
TOKENS=$DIR/text
[[ ${GIVEN_SUBWORDS:-none} == none ]] || TOKENS=$WORK/given
for name in "${GIVEN[@]}"; do
    for language in "${LANGUAGES[@]}"; do
        make_once "$DIR/raw/$name.$language" copied "${INPUT[$name.raw.$language]}"
        make_once "$TOKENS/$name.tok.$language" tokenised "$name" "$language" "${INPUT[$name.$language]}"
    done
done
make_once "$WORK/tokens/train.$SOURCE" tokenised train "$SOURCE" "${SOURCE_INPUTS[@]}"
make_once "$WORK/tokens/train.$TARGET" tokenised train "$TARGET" "${TARGET_INPUTS[@]}"

FROM=$WORK/tokens
FROM_TRAINING=(train)
if [[ $CLEAN == tokens ]]; then
    make_once "$WORK/cleaned" cleaned "$FROM/train" train
    FROM=$WORK/cleaned
fi
if [[ -n $EVERY ]]; then
    make_once "$WORK/split" split_off "$FROM"
    FROM=$WORK/split
    FROM_TRAINING=(train valid)
fi

MODEL=$DIR/codes
[[ $SUBWORDS != sentencepiece ]] || MODEL=$DIR/sentencepiece.model
[[ $SUBWORDS != none ]] || CODES_ENDS=()
for end in "${CODES_ENDS[@]}"; do
    if [[ -n $CODES ]]; then
        make_once "$MODEL$end" copied "$CODES$end"
    else
        make_once "$MODEL$end" learned "$end"
    fi
done
if [[ $VOCABULARY_THRESHOLD != 0 ]]; then
    for language in "${LANGUAGES[@]}"; do make_once "$DIR/vocabulary.$language" vocabulary "$language"; done
fi

for name in "${FROM_TRAINING[@]}"; do
    for language in "${LANGUAGES[@]}"; do
        make_once "$WORK/subwords/$name.$language" in_subwords "$language" "$FROM/$name.$language"
    done
    SUBWORDS_FROM=$WORK/subwords
    if [[ $CLEAN == subwords ]]; then
        make_once "$WORK/cleaned-$name" cleaned "$WORK/subwords/$name" "$name"
        SUBWORDS_FROM=$WORK/cleaned-$name
    fi
    for language in "${LANGUAGES[@]}"; do
        make_once "$DIR/text/$name.$language" placed "$SUBWORDS_FROM/$name.$language"
        # What cleaning took out of the subwords goes from the tokens, too: line k stays line k.
        as_kept=(placed)
        [[ $CLEAN != subwords ]] || as_kept=(selected "$SUBWORDS_FROM/kept")
        as_tokens=("${as_kept[@]}" "$FROM/$name.$language")
        [[ $TOKENS == "$DIR/text" ]] || as_tokens=(without_subwords "$DIR/text/$name.$language")
        make_once "$DIR/text/$name.tok.$language" "${as_tokens[@]}"
        [[ $name != valid ]] || make_once "$DIR/raw/valid.$language" "${as_kept[@]}" "$FROM/valid.raw.$language"
    done
done
for name in "${GIVEN[@]}"; do
    for language in "${LANGUAGES[@]}"; do
        make_once "$DIR/text/$name.$language" in_subwords "$language" "$TOKENS/$name.tok.$language"
        [[ $TOKENS == "$DIR/text" ]] ||
            make_once "$DIR/text/$name.tok.$language" without_subwords "$DIR/text/$name.$language"
    done
done

make_once "$DIR/test_sets" named_test_sets
make_once "$DIR/data-bin" binarised
run rm -rf -- "$WORK"
((DRY_RUN)) || say "$DIR: prepared"
}; exit
