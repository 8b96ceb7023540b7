# shellcheck shell=bash
# What the preparations of WMT's data share: where the archives are, what is in them, how many lines that is. Sourced
# after lib.sh, by scripts that set SOURCE, TARGET and ORIGINAL, the directory to unpack into.
# shellcheck disable=SC2153

# Lines of each side of a training text, as others have counted them (English-French: tensorflow/lingvo; News Commentary
# 12 from a published log of fairseq's script), and of each test set (sacreBLEU). They hold for the archives whose
# checksums are known; others are not counted.
declare -A LINES=(
    [europarl-v7.de-en]=1920209 [commoncrawl.de-en]=2399123
    [news-commentary-v9.de-en]=201288 [news-commentary-v12.de-en]=270769
    [europarl-v7.fr-en]=2007723 [commoncrawl.fr-en]=3244152 [news-commentary-v9.fr-en]=183251
    [undoc.2000.fr-en]=12886831 [giga-fren.release2.fixed]=22520376
    [newstest2010]=2489 [newstest2011]=3003 [newstest2012]=3003 [newstest2013]=3000 [newstest2014]=3003
    [newstest2015]=2169 [newstest2016]=2999
)

# Test sets, as sacreBLEU has them: directory on the server, archive, SGML files without language and ending.
declare -A TEST_SET=(
    [newstest2010]="wmt10 test.tgz test/newstest2010-src test/newstest2010-src"
    [newstest2011]="wmt11 test.tgz newstest2011-src newstest2011-src"
    [newstest2012]="wmt12 test.tgz test/newstest2012-src test/newstest2012-src"
    [newstest2013]="wmt13 test.tgz test/newstest2013-src test/newstest2013-src"
    [newstest2014]="wmt14 test-full.tgz test-full/newstest2014-PAIR-src test-full/newstest2014-PAIR-ref"
    [newstest2015]="wmt15 test.tgz test/newstest2015-ende-src test/newstest2015-ende-ref"
    [newstest2016]="wmt16/translation-task test.tgz test/newstest2016-ende-src test/newstest2016-ende-ref"
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
    local language found
    ((!DRY_RUN)) || return 0
    if [[ -z $(known_sum "$1") ]]; then
        say "$3: $1 is not a known archive, its lines are not counted"
        : >"$4"
        return 0
    fi
    for language in "$SOURCE" "$TARGET"; do
        found=$(line_count "$2.$language")
        [[ $found == "${LINES[$3]}" ]] || die "$2.$language: ${LINES[$3]} lines expected, $found found"
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
    local name=$1 server file source target archive directory pair=${TARGET}${SOURCE}
    local -a urls
    require_choice 'test set' "$name" "${!TEST_SET[@]}"
    read -r server file source target <<<"${TEST_SET[$name]}"
    source=${source/PAIR/$pair}.$SOURCE.sgm
    target=${target/PAIR/$pair}.$TARGET.sgm
    archive=${server%%/*}-$file
    directory=$ORIGINAL/${archive%.tgz}
    mapfile -t urls < <(addresses "$server/$file")
    unpack_once "$directory" "$archive" --only "*$source" --only "*$target" "${urls[@]}"
    make_once "$ORIGINAL/test/$name.$SOURCE" corpora sgm --like "$directory/$target" "$directory/$source"
    make_once "$ORIGINAL/test/$name.$TARGET" corpora sgm --like "$directory/$source" "$directory/$target"
    make_once "$ORIGINAL/test/$name.lines" counted "$archive" "$ORIGINAL/test/$name" "$name"
}

# normalised NAME: ORIGINAL/normalised/NAME.<language>: a test set with the punctuation of the training text, as a
# validation set has it in the published preparations, while the test sets keep their own.
normalised() {
    local language
    for language in "$SOURCE" "$TARGET"; do
        make_once "$ORIGINAL/normalised/$1.$language" corpora normalise --language "$language" \
            "$ORIGINAL/test/$1.$language"
    done
}

# stop_if_finished DIR: nothing is left to do where DIR is finished and its original/ has been deleted to save disk.
stop_if_finished() {
    if [[ -e $1/data-bin && -e $1/test_sets && ! -e $ORIGINAL ]] && ((!DRY_RUN)); then
        say "$1: prepared already, kept ($ORIGINAL is deleted, so the settings cannot be compared)"
        exit 0
    fi
}

# held_out_sets: validation and test sets as VALID and NAMES say, added to the caller's `sets`.
held_out_sets() {
    local name
    if [[ $VALID == newstest2013 ]]; then
        test_set newstest2013
        normalised newstest2013
        sets+=("valid=$ORIGINAL/normalised/newstest2013" "valid.raw=$ORIGINAL/test/newstest2013")
    else
        sets+=("valid=$VALID")
    fi
    for name in "${NAMES[@]}"; do
        [[ $name == newstest2013 && $VALID == newstest2013 ]] || test_set "$name"
        sets+=("$name=$ORIGINAL/test/$name")
    done
}
