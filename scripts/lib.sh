# shellcheck shell=bash
# What every script here shares: messages, DRY_RUN, stages that are renamed when whole, settings that may not change
# under a result, one job a directory. Sourced, never run:
#
#     set -euo pipefail
#     source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
#
# A stage is a command that gets the name to write as its last argument. It writes NAME.partial, which is renamed to
# NAME when the command has succeeded; what is there under its own name is therefore whole, and is kept. So a script
# that was stopped anywhere (Ctrl-C, kill -9, a full disk) continues when it is called again, and makes the same bytes.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
DRY_RUN=${DRY_RUN:-0}
# Sorting and byte order are the same for every user.
export LC_ALL=C.UTF-8

if [[ -z ${PYTHON:-} ]]; then
    if [[ -n ${VIRTUAL_ENV:-} ]]; then
        PYTHON=$VIRTUAL_ENV/bin/python
    elif [[ -x $ROOT/.venv/bin/python ]]; then
        PYTHON=$ROOT/.venv/bin/python
    else
        PYTHON=python3
    fi
fi

# What one script was told, the scripts that it calls know.
export DRY_RUN PYTHON

# say WORD ...: one line about what is done now.
say() { printf '%s\n' "$*"; }

# die WORD ...: one line about what is wrong, exit code 2.
die() {
    printf 'error: %s\n' "$*" >&2
    exit 2
}

# header: the comment at the head of the calling script.
header() { sed -n '2,/^[^#]/{/^#/!d;s/^# \{0,1\}//;p;}' "$0"; }

# usage_and_exit_if_asked "$@": print that where -h or --help is among the arguments.
usage_and_exit_if_asked() {
    local argument
    for argument in "$@"; do
        if [[ $argument == -h || $argument == --help ]]; then
            header
            exit 0
        fi
    done
}

require_command() {
    local name
    for name in "$@"; do
        command -v "$name" >/dev/null || die "$name is needed and not installed"
    done
}

# require_file FILE ...: it is there, it can be read, it is not empty. (Not under DRY_RUN: earlier stages made nothing.)
require_file() {
    local file
    ((!DRY_RUN)) || return 0
    for file in "$@"; do
        [[ -e $file ]] || die "$file: no such file"
        [[ -f $file && -r $file ]] || die "$file: cannot be read"
        [[ -s $file ]] || die "$file: empty"
    done
}

# require_number NAME VALUE: VALUE is a whole number from 1 on.
require_number() {
    [[ $2 =~ ^[1-9][0-9]*$ ]] || die "$1 must be a whole number of at least 1, not '$2'"
}

# require_choice NAME VALUE LEGAL ...
require_choice() {
    local name=$1 value=$2 legal
    shift 2
    for legal in "$@"; do
        [[ $value != "$legal" ]] || return 0
    done
    die "unknown $name '$value'; legal values: $*"
}

# open_settings NAME=VALUE ...: settings of the user's choice, exported; VALUE where nothing was chosen.
open_settings() {
    local setting name
    for setting in "$@"; do
        name=${setting%%=*}
        declare -gx "$name=${!name:-${setting#*=}}"
    done
}

# fixed_settings WHAT NAME=VALUE ...: settings that are part of what WHAT means, exported. Another choice is refused.
fixed_settings() {
    local what=$1 setting name value
    shift
    for setting in "$@"; do
        name=${setting%%=*} value=${setting#*=}
        [[ -z ${!name:-} || ${!name} == "$value" ]] ||
            die "$name=${!name} is given, but $what means ${name}=${value:-(none)}; scripts/prepare.sh takes text of" \
                "your own with any setting"
        declare -gx "$name=$value"
    done
}

# make_directory DIR: it is there, with all above it.
make_directory() {
    local problem
    problem=$(mkdir -p -- "$1" 2>&1) || die "$1: cannot be made: ${problem##*: }"
}

# require_package: the Python that runs the stages has this package. (Looked up, not imported: that takes seconds.)
require_package() {
    "$PYTHON" -c 'import sys; from importlib.util import find_spec as has
sys.exit(not (has("fairseq_plugins") and has("fairseq")))' 2>/dev/null ||
        die "$PYTHON cannot import fairseq_plugins and fairseq: run 'make setup', or set PYTHON"
}

# run COMMAND [ARGUMENT ...]: run it; under DRY_RUN=1 only print it, as one could type it.
run() {
    if ((DRY_RUN)); then
        printf '%q ' "$@"
        printf '\n'
        return 0
    fi
    "$@"
}

# deep COMMAND [ARGUMENT ...]: fairseq-deep, of the same Python as everything else.
deep() { run "$PYTHON" -m fairseq_plugins.cli "$@"; }

# corpora STEP [ARGUMENT ...]: one step of the preparation of text.
corpora() { run "$PYTHON" -m fairseq_plugins.text "$@"; }

# make_once TARGET COMMAND [ARGUMENT ...]: the stage. Never call it where a failure is caught (`if`, `||`, `&&`): bash
# would then go on after a failed command inside it.
make_once() {
    local target=$1 partial=$1.partial
    shift
    if [[ -e $target ]]; then
        say "$target: there already, kept"
        return 0
    fi
    if ((DRY_RUN)); then
        printf '# %s\n' "$target"
        "$@" "$partial"
        return 0
    fi
    say "$target: making it"
    rm -rf -- "$partial"
    make_directory "$(dirname -- "$target")"
    "$@" "$partial"
    [[ -e $partial ]] || die "$target: '$1' did not make it"
    mv -T -- "$partial" "$target"
}

# claim DIR: keep a second job out of DIR until this one and all its children have ended, however they end.
claim() {
    ((!DRY_RUN)) || return 0
    make_directory "$1"
    require_command flock
    local lock
    { exec {lock}>"$1/.lock"; } 2>/dev/null || die "$1: cannot be written"
    flock --nonblock "$lock" || die "$1: another job is at work there; wait for it, or give another directory"
}

# remember_settings DIR NAME=VALUE ...: what the results in DIR are made with. A later call with other values stops:
# nothing is ever kept that was made with other settings.
remember_settings() {
    local file=$1/settings new
    shift
    new=$(printf '%s\n' "$@")
    ((!DRY_RUN)) || return 0
    if [[ -f $file ]]; then
        local changed
        changed=$(diff <(printf '%s\n' "$new") "$file" | sed -n 's/^< //p; s/^> \(.*\)/was \1/p' | paste -sd ';' - |
            sed 's/;/; /g') || true
        [[ -z $changed ]] ||
            die "${file%/settings} was made with other settings ($changed); give another directory, or delete it"
        return 0
    fi
    { printf '%s\n' "$new" >"$file.partial" && mv -- "$file.partial" "$file"; } 2>/dev/null ||
        die "$file: cannot be written; is the disk full?"
}

# Where downloads are kept. ARCHIVE_DIR=DIR uses your own copies in DIR instead, and never the network.
# CHECKSUMS names the file of known sums; every user may pin more there.
CACHE=${CACHE:-$ROOT/data/cache}
ARCHIVE_DIR=${ARCHIVE_DIR:-}
CHECKSUMS=${CHECKSUMS:-$ROOT/scripts/checksums}

# archive NAME: the path that `fetch NAME ...` leaves it under.
archive() { printf '%s\n' "${ARCHIVE_DIR:-$CACHE}/$1"; }

# known_sum NAME: its MD5, SHA-1 or SHA-256 as in CHECKSUMS, or nothing.
known_sum() { NAME=$1 awk '$2 == ENVIRON["NAME"] { print $1; exit }' "$CHECKSUMS"; }

# sum_of FILE [KNOWN]: its sum, of the kind of the sum KNOWN (told by its length); SHA-256 without one.
sum_of() {
    local kind=sha256sum
    [[ ${#2} != 32 ]] || kind=md5sum
    [[ ${#2} != 40 ]] || kind=sha1sum
    "$kind" <"$1" | cut -d ' ' -f 1
}

# what_is_wrong NAME FILE: nothing where FILE is what NAME should be, otherwise what is wrong with it, in one line.
# Without a known sum, the archive is read to its end: a mirror's error page and a cut-off file are noticed.
what_is_wrong() {
    local known found
    known=$(known_sum "$1")
    if [[ -n $known ]]; then
        found=$(sum_of "$2" "$known")
        [[ $known == "$found" ]] || printf 'wrong checksum: %s expected, %s found\n' "$known" "$found"
        return 0
    fi
    "$PYTHON" -m fairseq_plugins.text check-archive --name "$1" "$2" 2>&1 >/dev/null | tail -n 1 |
        sed 's/^error: //' || true
}

# download URL FILE: what is missing at the end of FILE. A connection that breaks is taken up again as long as it brings
# anything. Fails with curl's code, and with the caller's `problem` set.
download() {
    local url=$1 file=$2 before after code status
    local -a progress=(--silent)
    [[ ! -t 2 ]] || progress=(--progress-bar)
    while true; do
        before=$(stat -c %s -- "$file" 2>/dev/null || printf 0)
        code=0
        status=$(curl --fail --location --continue-at - --retry 3 --connect-timeout 30 --speed-limit 1000 \
            --speed-time 60 "${progress[@]}" --write-out '%{http_code}' --output "$file" "$url") || code=$?
        # 416: there is nothing behind what we have, so it is all; whether it is the right file is checked next.
        ((code)) && [[ $status != 416 ]] || return 0
        after=$(stat -c %s -- "$file" 2>/dev/null || printf 0)
        case $code in
            6) problem='no such host' ;;
            7) problem='no connection' ;;
            22) problem="HTTP status $status" ;;
            23) die "$file: cannot be written; is the disk full?" ;;
            28) problem='no answer in time' ;;
            *) problem="curl's error $code" ;;
        esac
        ((after > before && code != 33)) || return "$code"
    done
}

# from_mirrors NAME URL ...: each in turn until one has given NAME. What went wrong is added to the caller's `problems`,
# and `restart` is set where a part on the disk was in the way: a server cannot continue it, or it belongs to
# another file.
from_mirrors() {
    local name=$1 part=$CACHE/$1.part url code problem began
    shift
    for url in "$@"; do
        began=0
        [[ ! -s $part ]] || began=1
        say "$name: from $url"
        code=0
        download "$url" "$part" || code=$?
        if ((code)); then
            problems+=("$url: $problem")
            [[ $code != 33 && $code != 36 ]] || restart=1
            continue
        fi
        problem=$(what_is_wrong "$name" "$part")
        [[ -n $problem ]] || return 0
        mv -T -- "$part" "$CACHE/$name.wrong"
        problems+=("$url: ${problem#"$part: "}")
        ((!began)) || restart=1
    done
    return 1
}

# fetch NAME URL ...: the file NAME, from the first of these mirrors that has it, under `archive NAME`. An interrupted
# download is continued. What has the wrong sum, or is not whole, is kept as NAME.wrong and never used.
fetch() {
    local name=$1 target part lock problem restart=0
    local -a problems=()
    target=$(archive "$name")
    part=$target.part
    shift
    [[ -r $CHECKSUMS ]] || die "$CHECKSUMS: cannot be read; CHECKSUMS names the file of known sums"
    if ((DRY_RUN)); then
        [[ -n $ARCHIVE_DIR ]] || printf 'curl --output %q %q\n' "$target" "$1"
        return 0
    fi
    if [[ -n $ARCHIVE_DIR ]]; then
        [[ -e $target ]] || die "$target: no such file; ARCHIVE_DIR is set, so it is not downloaded from $*"
        require_file "$target"
        problem=$(what_is_wrong "$name" "$target")
        [[ -z $problem ]] || die "$target: ${problem#"$target: "}"
        return 0
    fi
    require_command curl flock md5sum sha1sum sha256sum
    make_directory "$CACHE"
    # A second job waits here for the first one's download, then finds it.
    { exec {lock}>"$CACHE/.$name.lock"; } 2>/dev/null || die "$CACHE: cannot be written"
    flock "$lock"
    if [[ -e $target ]]; then
        say "$target: there already, kept"
    elif from_mirrors "$name" "$@" || { ((restart)) && rm -f -- "$part" && from_mirrors "$name" "$@"; }; then
        [[ -n $(known_sum "$name") ]] || printf '%s: this sum is not pinned; scripts/checksums could say: %s  %s\n' \
            "$target" "$(sum_of "$part" '')" "$name"
        mv -T -- "$part" "$target"
    else
        problem=$(printf '%s; ' "${problems[@]}")
        [[ ! -e $target.wrong ]] || problem+="what came is kept as $target.wrong; "
        die "$target: not downloaded: ${problem}or put a copy of your own into a directory and set ARCHIVE_DIR to it"
    fi
    exec {lock}>&-
}

# unpack_once DIR NAME [--only PATTERN ...] URL ...: the archive NAME, unpacked as DIR. With DIR there, the archive is
# needed no more. --only unpacks the members whose paths match a pattern, such as '*.de-en.*'.
unpack_once() {
    local dir=$1 name=$2
    local -a only=()
    shift 2
    while [[ $1 == --only ]]; do
        only+=(--only "$2")
        shift 2
    done
    [[ -e $dir ]] || fetch "$name" "$@"
    make_once "$dir" corpora unpack --sums "$CHECKSUMS" "${only[@]}" "$(archive "$name")"
}

# Bash would take another word for the name of a variable.
require_choice DRY_RUN "$DRY_RUN" 0 1

# Ctrl-C and kill say so once; what was half-made has a name of its own.
trap 'printf "\ninterrupted; the same command continues where this one stopped\n" >&2; exit 130' INT TERM
