# shellcheck shell=bash
# What every script here shares: messages, DRY_RUN, one job a directory. Sourced, never run:
#
#     set -euo pipefail
#     source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
#
# Every step leaves its file or directory whole, or not at all. So a script that was stopped anywhere (Ctrl-C, kill -9,
# a full disk) continues when it is called again, and makes the same bytes.

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

# Where downloads are kept.
CACHE=${CACHE:-$ROOT/data/cache}

# What one script was told, the programs that it calls know.
export DRY_RUN PYTHON CACHE

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

# fairseq_deep COMMAND [ARGUMENT ...]: a command that prints its own steps under DRY_RUN=1, and says itself when it is
# interrupted.
fairseq_deep() {
    local -a dry_run=()
    ((!DRY_RUN)) || dry_run=(--dry-run)
    INTERRUPTION_IS_SAID=1
    "$PYTHON" -m fairseq_plugins.cli "$@" "${dry_run[@]}"
    INTERRUPTION_IS_SAID=0
}
# shellcheck disable=SC2034 # read by the trap below
INTERRUPTION_IS_SAID=0

# once TARGET COMMAND [ARGUMENT ...]: run it unless TARGET is there. For commands that leave it whole or not at all.
once() {
    local target=$1
    shift
    [[ ! -e $target ]] || return 0
    run mkdir -p -- "$(dirname -- "$target")"
    "$@"
}

# text STEP [ARGUMENT ...]: one step of the preparation of text.
text() { run "$PYTHON" -m fairseq_plugins.text "$@"; }

# claim DIR: keep a second job out of DIR until this one and all its children have ended, however they end.
claim() {
    ((!DRY_RUN)) || return 0
    require_command flock
    local problem lock
    problem=$(mkdir -p -- "$1" 2>&1) || die "$1: cannot be made: ${problem##*: }"
    { exec {lock}>"$1/.lock"; } 2>/dev/null || die "$1: cannot be written"
    flock --nonblock "$lock" || die "$1: another job is at work there; wait for it, or give another directory"
}

# Bash would take another word for the name of a variable.
[[ $DRY_RUN == [01] ]] || die "unknown DRY_RUN '$DRY_RUN'; legal values: 0 1"

# Ctrl-C and kill say so once; what was half-made has a name of its own.
trap '((INTERRUPTION_IS_SAID)) ||
    printf "\ninterrupted; the same command continues where this one stopped\n" >&2; exit 130' INT TERM
