# shellcheck shell=bash
# Functions that every script here shares. Sourced, never run.
#
# Every step leaves its file or directory whole, or not at all. So a script that was stopped anywhere (Ctrl-C, kill -9,
# a full disk) continues when it is called again, and makes the same bytes.
set -euo pipefail

# -h, --help: print the comment at the head of the calling script. Those of reproduce/ are all used alike.
if [[ " $* " == *" -h "* || " $* " == *" --help "* ]]; then
    sed -n '2,/^[^#]/{/^#/!d;s/^# \{0,1\}//;p;}' "$0"
    [[ $0 != */reproduce/* || $0 == */multi30k* || $0 == */tatoeba* ]] ||
        printf 'Usage: %s [NAME ...] [OPTION ...]; options: fairseq-deep reproduce --help\n' "$0"
    exit 0
fi

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
PYTHON=${PYTHON:-${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python}}
[[ -n $PYTHON || ! -x $ROOT/.venv/bin/python ]] || PYTHON=$ROOT/.venv/bin/python
# Sorting and byte order are the same for every user. The programs that a script calls get the same settings.
export PYTHON=${PYTHON:-python3} CACHE=${CACHE:-$ROOT/data/cache} DRY_RUN=${DRY_RUN:-0} LC_ALL=C.UTF-8

say() { printf '%s\n' "$*"; }

die() {
    printf 'error: %s\n' "$*" >&2
    exit 2
}

# A command that has started this script says it itself.
interrupted() {
    [[ -n ${FAIRSEQ_DEEP_SAYS_HOW_TO_CONTINUE-} ]] ||
        printf '\ninterrupted; the same command continues where this one stopped\n' >&2
    exit 130
}

# require_switch NAME: the variable NAME is 0 or 1; any other word is an expression for Bash, which can hold commands.
require_switch() { [[ ${!1} == [01] ]] || die "unknown $1 '${!1}'; legal values: 0 1"; }

# require_numbers NAME ...: the same for whole numbers; 010 becomes 10, which is 8 for Bash.
require_numbers() {
    local name
    for name in "$@"; do
        [[ ${!name} =~ ^[0-9]{1,18}$ ]] || die "$name must be a whole number, not '${!name}'"
        printf -v "$name" '%d' "$((10#${!name}))"
    done
}

[[ " $* " != *" --dry-run "* ]] || DRY_RUN=1
require_switch DRY_RUN
trap interrupted INT TERM

# replaced_by COMMAND [ARGUMENT ...]: fairseq-deep COMMAND in place of this script.
replaced_by() {
    # The scripts of tables take OUT and DATA as the other ones of reproduce/ do.
    [[ $1 != reproduce || -z ${OUT:-} ]] || set -- "$@" --out "$OUT"
    [[ $1 != reproduce || -z ${DATA:-} ]] || set -- "$@" --data "$DATA"
    ((!DRY_RUN)) || set -- "$@" --dry-run
    exec "$PYTHON" -m fairseq_plugins.tools.cli "$@"
}

# run COMMAND [ARGUMENT ...]: run it; under DRY_RUN=1 only print it, as one could type it.
run() {
    if ((DRY_RUN)); then
        printf '%q ' "$@"
        printf '\n'
    else
        "$@"
    fi
}

# fairseq_deep COMMAND [ARGUMENT ...]: the same for a command that reports an interruption itself.
fairseq_deep() {
    trap 'exit 130' INT TERM
    run "$PYTHON" -m fairseq_plugins.tools.cli "$@"
    trap interrupted INT TERM
}

# text STEP [ARGUMENT ...]: one step of the preparation of text.
text() { run "$PYTHON" -m fairseq_plugins.tools.text "$@"; }

# once TARGET COMMAND [ARGUMENT ...]: run it unless TARGET is there. For commands that leave it whole or not at all.
once() {
    [[ ! -e $1 ]] || return 0
    run mkdir -p -- "$(dirname -- "$1")"
    "${@:2}"
}

# read_settings ARGUMENT ...: the settings that the head of the script lists, each as an option (--size 8000) or a
# variable of the environment (SIZE=8000), become such variables; all other arguments stay in `words`.
read_settings() {
    local name
    names=" $(sed -n '/^# Settings:/,/^[^#]/{/^#/p}' "$0" | grep -oE '[A-Z][A-Z0-9_]+' | tr '\n' ' ') "
    words=()
    while (($#)); do
        name=${1#--} name=${name%%=*} name=${name//-/_}
        if [[ $1 == --dry-run ]]; then
            DRY_RUN=1
        elif [[ $1 != --* || $names != *" ${name^^} "* ]]; then
            words+=("$1")
        elif [[ $1 == *=* ]]; then
            export "${name^^}=${1#*=}"
        else
            (($# > 1)) || die "$1 needs a value"
            export "${name^^}=$2"
            shift
        fi
        shift
    done
    require_switch DRY_RUN
    for name in JOINED JOINT_CODES; do [[ $names != *" $name "* || -z ${!name:-} ]] || require_switch "$name"; done
    # Those that change the text, for note_call. The archives are checked, unless CHECKSUMS names others.
    given=
    for name in $names; do
        [[ " WORKERS CACHE ARCHIVE_DIR TEST_SETS MULTI30K DRY_RUN PREP_PYTHON VARIANT " == *" $name "* || -z ${!name:-} ]] ||
            given+=" $name=${!name}"
    done
}

# note_call: note how this script was called, as the lines "# Data:" of configs/ have it, before the first step.
# Another call that goes on with the text adds a line; whatever is in DIR already may come from anywhere.
note_call() {
    local line="scripts/${0##*/}$given"
    [[ $names != *" VARIANT "* || $VARIANT == fairseq ]] || line="VARIANT=$VARIANT $line"
    if ((DRY_RUN)); then
        say "$DIR/prepared_by: $line"
    elif [[ -e $DIR/calls || -z $(ls -- "$DIR" 2>/dev/null) ]]; then
        mkdir -p -- "$DIR" 2>/dev/null || die "$DIR: cannot be made"
        grep -sqxF -- "$line" "$DIR/calls" || { printf '%s\n' "$line" >>"$DIR/calls"; } 2>/dev/null ||
            die "$DIR: cannot be written"
    fi
}

# note_prepared: the text is whole; fairseq-deep run copies the note.
note_prepared() { [[ ! -e $DIR/calls ]] || run mv -T -- "$DIR/calls" "$DIR/prepared_by"; }

# Options of fairseq-deep prepare that the small corpora also take from the environment.
# shellcheck disable=SC2034 # read by the scripts
OF_PREPARE=(
    NORMALISE TOKENISER GIVEN_TRUECASED GIVEN_TOKENISER GIVEN_SUBWORDS GIVEN_LOWER_CASE AGGRESSIVE ESCAPE LOWER_CASE
    CLEAN MIN_LENGTH MAX_LENGTH RATIO SUBWORDS JOINT_CODES CODES VOCABULARY_THRESHOLD JOINED TYPES SOURCE_DICT TARGET_DICT
)

# pass_on SETTING ...: those that the environment has, as `options` for fairseq-deep prepare.
pass_on() {
    local name option
    for name in "$@"; do
        option=${name,,}
        [[ -z ${!name:-} ]] || options+=("--${option//_/-}" "${!name}")
    done
}

# set_directory DEFAULT [DIR]: DIR is where the result goes, and DIR/original where archives are unpacked.
set_directory() {
    local name
    for name in "${@:2}"; do [[ $name != -* ]] || die "unknown option '$name'; --help lists the settings"; done
    (($# <= 2)) || die "one directory, not $(($# - 1)): ${*:2}"
    DIR=${2:-$1}
    DIR=${DIR%/} original=${DIR%/}/original
}

# claim DIR: keep a second job out of DIR until this one and all its children have ended, however they end.
claim() {
    ((!DRY_RUN)) || return 0
    local lock
    mkdir -p -- "$1" || exit 2
    { exec {lock}>"$1/.lock"; } 2>/dev/null || die "$1: cannot be written"
    command -v flock >/dev/null || die "flock, which keeps a second job out of $1, is not installed"
    flock --nonblock "$lock" || die "$1: in use by another job; wait for it, or use another directory"
}

# exit_if_prepared: where DIR/original, which is not needed any more, was deleted. Other sets cannot be made any more.
exit_if_prepared() {
    [[ -e $DIR/data-bin && -e $DIR/test_sets && ! -e $original ]] || return 0
    local name other="; it cannot be changed without $original, so use another directory"
    # shellcheck disable=SC2154 # set by the scripts; WMT'18 has no choice
    for name in "${test_sets[@]}"; do
        cut -f 2 -- "$DIR/test_sets" | grep -qxF -- "$name" || die "$DIR: prepared without $name$other"
    done
    for name in VALID APOSTROPHE; do
        [[ -z ${!name:-} || ! -e $DIR/prepared_by ]] || grep -qwF -- "$name=${!name}" "$DIR/prepared_by" ||
            die "$DIR: prepared without $name=${!name}$other"
    done
    say "$DIR: prepared already ($original is deleted)"
    exit
}
