# shellcheck shell=bash
# What the preparations of WMT's data share: where the archives are, what is in them, how many lines that is. Sourced
# after lib.sh, by scripts that set SOURCE, TARGET, ORIGINAL (the directory to unpack into) and APOSTROPHE.
# shellcheck disable=SC2153

# Lines of each side of a training text, as others have counted them (English-French: tensorflow/lingvo; News Commentary
# 12 from a published log of fairseq's script), and of each test set (sacreBLEU; from 2017 on each pair has its own).
# They hold for the archives whose checksums are known; others, and texts that are not in this list, are not counted.
declare -A LINES=(
    [europarl-v7.de-en]=1920209 [commoncrawl.de-en]=2399123
    [news-commentary-v9.de-en]=201288 [news-commentary-v12.de-en]=270769
    [europarl-v7.fr-en]=2007723 [commoncrawl.fr-en]=3244152 [news-commentary-v9.fr-en]=183251
    [undoc.2000.fr-en]=12886831 [giga-fren.release2.fixed]=22520376
    [newstest2010]=2489 [newstest2011]=3003 [newstest2012]=3003 [newstest2013]=3000 [newstest2014]=3003
    [newstest2014-filtered.en-de]=2737 [newstest2015]=2169 [newstest2016]=2999
    [newstest2017.en-de]=3004 [newstest2017.en-fi]=3002 [newstest2017.zh-en]=2001
    [newstest2018.en-de]=2998 [newstest2018.en-fi]=3000 [newstest2018.zh-en]=3981
)

# Test sets, as sacreBLEU has them: directory on the server, archive, SGML files without language and ending. PAIR is
# the pair with English behind (deen), DIRECTION that of the translation (ende).
declare -A TEST_SET=(
    [newstest2010]="wmt10 test.tgz test/newstest2010-src test/newstest2010-src"
    [newstest2011]="wmt11 test.tgz newstest2011-src newstest2011-src"
    [newstest2012]="wmt12 test.tgz test/newstest2012-src test/newstest2012-src"
    [newstest2013]="wmt13 test.tgz test/newstest2013-src test/newstest2013-src"
    [newstest2014]="wmt14 test-full.tgz test-full/newstest2014-PAIR-src test-full/newstest2014-PAIR-ref"
    [newstest2014-filtered]="wmt14 test-filtered.tgz test/newstest2014-PAIR-src test/newstest2014-PAIR-ref"
    [newstest2015]="wmt15 test.tgz test/newstest2015-DIRECTION-src test/newstest2015-DIRECTION-ref"
    [newstest2016]="wmt16/translation-task test.tgz test/newstest2016-DIRECTION-src test/newstest2016-DIRECTION-ref"
    [newstest2017]="wmt17/translation-task test.tgz test/newstest2017-DIRECTION-src test/newstest2017-DIRECTION-ref"
    [newstest2018]="wmt18/translation-task test.tgz test/newstest2018-DIRECTION-src test/newstest2018-DIRECTION-ref"
)

# addresses PATH: one a line; the workshops until 2015 are on the one server, the later ones on the other.
addresses() {
    case $1 in
        */translation-task/*) printf '%s\n' "https://data.statmt.org/$1" "http://data.statmt.org/$1" ;;
        *) printf '%s\n' "https://www.statmt.org/$1" "https://statmt.org/$1" "http://www.statmt.org/$1" ;;
    esac
}

# line_count FILE: of the file itself, or of the one with .gz.
line_count() {
    if [[ -e $1 ]]; then wc -l <"$1"; else gzip -dc -- "$1.gz" | wc -l; fi
}

# counted ARCHIVE PREFIX NAME OUTPUT: as many lines as there must be, where the archive is one that is known.
counted() {
    local language found expected=${LINES[$3.$SOURCE-$TARGET]:-${LINES[$3]:-}}
    ((!DRY_RUN)) || return 0
    if [[ -z $expected || -z $(known_sum "$1") ]]; then
        say "$3: how many lines $1 should give is not known, they are not counted"
        : >"$4"
        return 0
    fi
    for language in "$SOURCE" "$TARGET"; do
        found=$(line_count "$2.$language")
        [[ $found == "$expected" ]] || die "$2.$language: $expected lines expected, $found found"
    done
    printf '%s\n' "$found" >"$4"
}

# on_the_hub PATH: the address of the same files as a zip archive of the Hugging Face Hub, or of its mirror HF_ENDPOINT.
on_the_hub() {
    local rest=${1#*/}
    printf '%s\n' "${HF_ENDPOINT:-https://huggingface.co}/datasets/wmt/${1%%/*}/resolve/main-zip/${rest%.t*}.zip"
}

# training_text PATH MEMBER: unpack both sides of a training text, count them, and add them to the caller's `sets`.
# Where no address of the publisher gives the archive, the zip archive of the Hugging Face Hub does.
#     PATH      of the archive on the server
#     MEMBER    in the archive, without the language
training_text() {
    local archive=${1##*/} zip directory name=${2##*/}
    local -a urls
    zip=${archive%.t*}.zip
    directory=$ORIGINAL/${archive%.t*}
    mapfile -t urls < <(addresses "$1")
    if [[ -e $(archive "$zip") && ! -e $(archive "$archive") ]]; then
        archive=$zip urls=("$(on_the_hub "$1")")
    elif [[ ! -e $directory && -z $ARCHIVE_DIR && $DRY_RUN == 0 ]] && ! (fetch "$archive" "${urls[@]}"); then
        say "$name: $zip instead"
        archive=$zip urls=("$(on_the_hub "$1")")
    fi
    unpack_once "$directory" "$archive" --only "*$name.$SOURCE*" --only "*$name.$TARGET*" "${urls[@]}"
    make_once "$directory.lines" counted "$archive" "$directory/$2" "$name"
    sets+=("train=$directory/$2")
}

# test_set NAME: ORIGINAL/test/NAME.<language>, as published.
test_set() {
    local name=$1 server file source target archive directory pair
    local -a urls
    require_choice 'test set' "$name" "${!TEST_SET[@]}"
    read -r server file source target <<<"${TEST_SET[$name]}"
    pair=$TARGET$SOURCE
    [[ $TARGET != en ]] || pair=$SOURCE$TARGET
    source=${source/PAIR/$pair} target=${target/PAIR/$pair}
    source=${source/DIRECTION/$SOURCE$TARGET}.$SOURCE.sgm
    target=${target/DIRECTION/$SOURCE$TARGET}.$TARGET.sgm
    archive=${server%%/*}-$file
    directory=$ORIGINAL/${archive%.tgz}
    mapfile -t urls < <(addresses "$server/$file")
    unpack_once "$directory" "$archive" --only "*$source" --only "*$target" "${urls[@]}"
    make_once "$ORIGINAL/test/$name.$SOURCE" corpora sgm --like "$directory/$target" "$directory/$source"
    make_once "$ORIGINAL/test/$name.$TARGET" corpora sgm --like "$directory/$source" "$directory/$target"
    make_once "$ORIGINAL/test/$name.lines" counted "$archive" "$ORIGINAL/test/$name" "$name"
}

# straightened INPUT OUTPUT: ' for ’.
straightened() {
    run cp -- "$1" "$2"
    run sed --in-place "s/’/'/g" "$2"
}

# validation_set NAME ...: ORIGINAL/test/VALID.<language>, these sets behind one another, and where training text is
# normalised ORIGINAL/normalised/VALID.<language>: with its punctuation, as a validation set has it in the published
# preparations, while the test sets keep their own.
validation_set() {
    local name language
    local -a files
    for name in "$@"; do test_set "$name"; done
    files=("${@/#/$ORIGINAL/test/}")
    for language in "$SOURCE" "$TARGET"; do
        (($# == 1)) ||
            make_once "$ORIGINAL/test/$VALID.$language" corpora select --every 1 "${files[@]/%/.$language}"
        [[ $NORMALISE == none ]] || make_once "$ORIGINAL/normalised/$VALID.$language" \
            corpora normalise --language "$language" "${files[@]/%/.$language}"
    done
}

# stop_if_finished DIR: nothing is left to do where DIR is finished and its original/ has been deleted to save disk.
stop_if_finished() {
    if [[ -e $1/data-bin && -e $1/test_sets && ! -e $ORIGINAL ]] && ((!DRY_RUN)); then
        say "$1: prepared already, kept ($ORIGINAL is deleted, so the settings cannot be compared)"
        exit 0
    fi
}

# held_out_sets: validation and test sets as VALID and NAMES say, added to the caller's `sets`. VALID is every-Nth, a
# test set, or several with + between; APOSTROPHE is straight or keep.
held_out_sets() {
    local name language
    local -a years=()
    if [[ $VALID == every-* ]]; then
        sets+=("valid=$VALID")
    else
        IFS=+ read -r -a years <<<"$VALID"
        validation_set "${years[@]}"
        if [[ $NORMALISE == none ]]; then
            sets+=("valid=$ORIGINAL/test/$VALID")
        else
            sets+=("valid=$ORIGINAL/normalised/$VALID" "valid.raw=$ORIGINAL/test/$VALID" valid.changed=punctuation)
        fi
    fi
    for name in "${NAMES[@]}"; do
        [[ " ${years[*]} " == *" $name "* ]] || test_set "$name"
        if [[ $APOSTROPHE == keep ]]; then
            sets+=("$name=$ORIGINAL/test/$name")
        else
            for language in "$SOURCE" "$TARGET"; do
                make_once "$ORIGINAL/straight/$name.$language" straightened "$ORIGINAL/test/$name.$language"
            done
            sets+=("$name=$ORIGINAL/straight/$name" "$name.raw=$ORIGINAL/test/$name" "$name.changed=apostrophes")
        fi
    done
}

# ---- WMT'18, tokenised and truecased by its organisers ---------------------------------------------------------------

# columns FIRST SECOND OUTPUT: the two columns of the training text as OUTPUT/train.<language>.
columns() {
    run mkdir -p -- "$3"
    corpora columns "$(archive "$TRAINING_ARCHIVE")" "$3/train.$1" "$3/train.$2"
}

# in_tokens NAME LANGUAGE OUTPUT: a test set as the training text is.
in_tokens() {
    local -a segment=("$PYTHON" -m jieba --quiet --delimiter ' ' "$ORIGINAL/test/$1.$2")
    if [[ $2 == zh ]]; then
        if ((DRY_RUN)); then run "${segment[@]}"; else "${segment[@]}" >"$3"; fi
        return 0
    fi
    corpora tokenise --language "$2" --normalise --aggressive --workers "$WORKERS" "$ORIGINAL/test/$1.$2" "$3.tokens"
    corpora truecase --model "$ORIGINAL/truecaser.$2" --workers "$WORKERS" "$3.tokens" "$3"
    run rm -f -- "$3.tokens"
}

# wmt18 PAIR DIR: all of it. PAIR is the directory on the server and says what the columns are.
wmt18() {
    local pair=$1 name language
    DIR=${2%/}
    ORIGINAL=$DIR/original
    TRAINING_ARCHIVE=wmt18-$pair-corpus.gz
    fixed_settings "WMT'18 $pair" NORMALISE=none TOKENISER=none GIVEN_TOKENISER=moses GIVEN_TRUECASED=1 AGGRESSIVE=0 \
        ESCAPE=1 LOWER_CASE=0 CLEAN=none MIN_LENGTH=1 MAX_LENGTH=250 RATIO=1.5 SUBWORDS=bpe TYPES=0 CODES= \
        SOURCE_DICT= TARGET_DICT=
    open_settings SIZE=32000 JOINT_CODES=0 JOINED=0 VOCABULARY_THRESHOLD=50
    WORKERS=${WORKERS:-$(env -u OMP_NUM_THREADS nproc)}
    require_number WORKERS "$WORKERS"
    require_package
    stop_if_finished "$DIR"
    [[ " $SOURCE $TARGET " != *" zh "* || $DRY_RUN == 1 ]] || "$PYTHON" -c 'import jieba' 2>/dev/null ||
        die "$PYTHON cannot import jieba, which splits the Chinese test sets into words: pip install jieba"
    claim "$ORIGINAL"
    [[ -e $ORIGINAL/training ]] || fetch "$TRAINING_ARCHIVE" \
        "https://data.statmt.org/wmt18/translation-task/preprocessed/$pair/corpus.gz" \
        "http://data.statmt.org/wmt18/translation-task/preprocessed/$pair/corpus.gz"
    make_once "$ORIGINAL/training" columns "${pair%-*}" "${pair#*-}"
    for language in "$SOURCE" "$TARGET"; do
        [[ $language == zh ]] ||
            make_once "$ORIGINAL/truecaser.$language" corpora learn-truecaser "$ORIGINAL/training/train.$language"
    done
    for name in newstest2017 newstest2018; do
        test_set "$name"
        for language in "$SOURCE" "$TARGET"; do
            make_once "$ORIGINAL/tokens/$name.$language" in_tokens "$name" "$language"
        done
    done
    "$ROOT/scripts/prepare.sh" "$DIR" train="$ORIGINAL/training/train" \
        valid="$ORIGINAL/tokens/newstest2017" valid.raw="$ORIGINAL/test/newstest2017" valid.changed=punctuation \
        newstest2018="$ORIGINAL/tokens/newstest2018" newstest2018.raw="$ORIGINAL/test/newstest2018" \
        newstest2018.changed=punctuation
}
