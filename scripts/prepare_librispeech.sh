#!/usr/bin/env bash
# Prepare LibriSpeech for speech to text, as in the B2T paper's Table 5: download, then fairseq's own
# examples/speech_to_text/prep_librispeech_data.py (80 filter banks, 10,000 SentencePiece units).
#
# usage: [SETTING=VALUE ...] PREP_PYTHON=PYTHON scripts/prepare_librispeech.sh [DIR]
#
# fairseq's program needs torchaudio with sox_effects, which torchaudio 2.9 took out, and pandas, soundfile and
# sentencepiece. So it gets a Python of its own; what it makes does not depend on that:
#
#   python3 -m venv prep
#   prep/bin/pip install 'torch<2.9' 'torchaudio<2.9' pandas soundfile sentencepiece fairseq-fixed==0.12.3.1
#   PREP_PYTHON=prep/bin/python scripts/prepare_librispeech.sh
#
# inputs
#   {train-clean-100,train-clean-360,train-other-500,dev-clean,dev-other,test-clean,test-other}.tar.gz
#                 downloaded from openslr.org (61 GB); ARCHIVE_DIR=DIR takes your own copies in DIR
#
# outputs, in DIR (default: data/librispeech)
#   LibriSpeech/  the recordings; may be deleted at the end
#   features/     fbank80.zip and what else fairseq's program makes
#   data-bin/     train, dev, dev-clean, dev-other, test-clean, test-other (.tsv), config.yaml and the units, for the
#                 task speech_to_text; train is the three training parts, dev is dev-clean and dev-other
#   raw/          dev-clean.en, dev-other.en, test-clean.en and test-other.en: the text of the four sets
#   test_sets     their names
#   The tables name DIR/features by its full path: DIR cannot be moved afterwards.
#
# settings
#   PREP_PYTHON=                see above; default: the Python of everything else
#   SIZE=10000                  units of SentencePiece
#   CACHE= ARCHIVE_DIR=         where downloads are kept; where your own copies are
#   CHECKSUMS=scripts/checksums
#   DRY_RUN=1                   print the commands, make nothing
#
# time: a day; disk: 400 GB, of which 120 GB stay. Both are estimates: nobody has run this script on all the data yet.
set -euo pipefail
{ # Read whole before it runs: an edit of this file does not reach a running job.
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
usage_and_exit_if_asked "$@"

PREP_PYTHON=${PREP_PYTHON:-$PYTHON}
SIZE=${SIZE:-10000}
TRAIN=(train-clean-100 train-clean-360 train-other-500)
DEV=(dev-clean dev-other)
TEST=(test-clean test-other)

(($# <= 1)) || die "one directory, not $#: $*"
DIR=${1:-$ROOT/data/librispeech}
DIR=${DIR%/}
require_number SIZE "$SIZE"
# fairseq's tables separate path, place and length by colons, and its program the options of SentencePiece by spaces.
[[ $(realpath -m -- "$DIR") != *[:[:space:]]* ]] || die "$DIR: a colon or a space in its path; fairseq cannot read it"

# fairseq_directory: where the fairseq of PREP_PYTHON is; its examples are inside.
fairseq_directory() {
    "$PREP_PYTHON" -c 'import os
from importlib.util import find_spec
print(os.path.dirname(find_spec("fairseq").origin))' 2>/dev/null || die "$PREP_PYTHON has no fairseq; see $0 --help"
}

# prep ARGUMENT ...: fairseq's program. It imports `examples`, which is inside fairseq; with that directory itself on
# the path, fairseq's own `logging` would take the place of Python's.
prep() {
    run mkdir -p -- "$DIR/.python"
    run ln -sfn -- "$FAIRSEQ/examples" "$DIR/.python/examples"
    run env PYTHONPATH="$DIR/.python" "$PREP_PYTHON" "$FAIRSEQ/examples/speech_to_text/prep_librispeech_data.py" "$@"
}

require_prep() {
    local program=$FAIRSEQ/examples/speech_to_text/prep_librispeech_data.py
    ((!DRY_RUN)) || return 0
    [[ -e $program ]] || die "$program: no such file; install fairseq-fixed, which has it, for PREP_PYTHON"
    "$PREP_PYTHON" -c 'import pandas, sentencepiece, soundfile, torchaudio.sox_effects' 2>/dev/null ||
        die "$PREP_PYTHON cannot import pandas, sentencepiece, soundfile and torchaudio.sox_effects, which fairseq's" \
            "preparation needs; $0 --help says how to make a PREP_PYTHON that can"
}

# features OUTPUT: an empty file that says that DIR/features is whole. The program goes on where it was stopped; the
# last features may then be half written, and are made again.
features() {
    local last
    run mkdir -p -- "$DIR/features"
    last=$(find "$DIR/features" -name '*.npy' -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -n 1) || true
    [[ -z $last ]] || run rm -f -- "${last#* }"
    run ln -sfn -- "$(realpath -m -- "$DIR/LibriSpeech")" "$DIR/features/LibriSpeech"
    prep --output-root "$DIR/features" --vocab-type unigram --vocab-size "$SIZE"
    run touch -- "$1"
}

# table OUTPUT PART ...: the manifests of several parts as one.
table() {
    local output=$1 part
    shift
    for part in "$@"; do require_file "$DIR/features/$part.tsv"; done
    ((!DRY_RUN)) || return 0
    head -n 1 -- "$DIR/features/$1.tsv" >"$output"
    for part in "$@"; do tail -n +2 -- "$DIR/features/$part.tsv"; done >>"$output"
}

binarised() {
    local part
    run mkdir -p -- "$1"
    table "$1/train.tsv" "${TRAIN[@]}"
    table "$1/dev.tsv" "${DEV[@]}"
    for part in "${DEV[@]}" "${TEST[@]}"; do table "$1/$part.tsv" "$part"; done
    run cp -- "$DIR/features/config.yaml" "$DIR/features/spm_unigram$SIZE".{model,txt} "$1"
}

# text_of PART OUTPUT: the column tgt_text of its table.
text_of() {
    ((!DRY_RUN)) || return 0
    awk -F '\t' 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "tgt_text") column = i; next } { print $column }' \
        "$DIR/data-bin/$1.tsv" >"$2"
}

named_test_sets() {
    ((!DRY_RUN)) || return 0
    for part in "${DEV[@]}" "${TEST[@]}"; do printf '%s\t%s\n' "$part" "$part"; done >"$1"
}

# recordings PART OUTPUT: the directory LibriSpeech/PART of the archive PART.tar.gz.
recordings() {
    corpora unpack --only "*LibriSpeech/$1/*" --sums "$CHECKSUMS" "$(archive "$1.tar.gz")" "$2.archive"
    run mv -T -- "$2.archive/LibriSpeech/$1" "$2"
    run rm -rf -- "$2.archive"
}

require_package
FAIRSEQ=$(fairseq_directory)
claim "$DIR"
remember_settings "$DIR" "SIZE=$SIZE"
# Before 61 GB are downloaded.
[[ -e $DIR/features.made ]] || require_prep
for part in "${TRAIN[@]}" "${DEV[@]}" "${TEST[@]}"; do
    if [[ ! -e $DIR/features.made ]]; then
        [[ -e $DIR/LibriSpeech/$part ]] ||
            fetch "$part.tar.gz" "https://www.openslr.org/resources/12/$part.tar.gz" \
                "https://us.openslr.org/resources/12/$part.tar.gz" "https://openslr.elda.org/resources/12/$part.tar.gz"
        make_once "$DIR/LibriSpeech/$part" recordings "$part"
    fi
done
make_once "$DIR/features.made" features
make_once "$DIR/data-bin" binarised
for part in "${DEV[@]}" "${TEST[@]}"; do make_once "$DIR/raw/$part.en" text_of "$part"; done
make_once "$DIR/test_sets" named_test_sets
say "$DIR: prepared"
}; exit
