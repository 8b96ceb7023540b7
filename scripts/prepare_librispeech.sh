#!/usr/bin/env bash
# Prepare LibriSpeech for speech to text, as in the B2T paper's Table 5, by fairseq's own prep_librispeech_data.py.
#
#     PREP_PYTHON=PYTHON scripts/prepare_librispeech.sh [DIR] [--SETTING VALUE ...]
#
# fairseq's program needs packages of its own, and torchaudio with sox_effects, which torchaudio 2.9 took out:
#
#     python3 -m venv prep
#     prep/bin/pip install 'torch<2.9' 'torchaudio<2.9' pandas soundfile sentencepiece fairseq-fixed==0.12.3.1
#     PREP_PYTHON=prep/bin/python scripts/prepare_librispeech.sh
#
# DIR (default: data/librispeech) gets data-bin/, raw/, features/ and LibriSpeech/, and cannot be moved afterwards.
# Settings: PREP_PYTHON, SIZE, CACHE, ARCHIVE_DIR, CHECKSUMS, DRY_RUN; see docs/data.md, also for time and disk.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
read_settings "$@"

PREP_PYTHON=${PREP_PYTHON:-$PYTHON} SIZE=${SIZE:-10000}
[[ $SIZE =~ ^[1-9][0-9]*$ ]] || die "SIZE must be a whole number of at least 1, not '$SIZE'"
train=(train-clean-100 train-clean-360 train-other-500)
dev=(dev-clean dev-other)
tests=(test-clean test-other)
set_directory "$ROOT/data/librispeech" "${words[@]}"
# fairseq's tables separate path, place and length by colons, and its program the options of SentencePiece by spaces.
[[ $(realpath -m -- "$DIR") != *[:[:space:]]* ]] || die "$DIR: fairseq does not support a colon or a space in this path"
fairseq=$("$PREP_PYTHON" -c 'import os
from importlib.util import find_spec
print(os.path.dirname(find_spec("fairseq").origin))' 2>/dev/null) || die "$PREP_PYTHON has no fairseq; see $0 --help"
program=$fairseq/examples/speech_to_text/prep_librispeech_data.py
if ((!DRY_RUN)) && [[ ! -e $DIR/features.made ]]; then # before 61 GB are downloaded
    [[ -e $program ]] || die "$program: no such file; install fairseq-fixed, which has it, for PREP_PYTHON"
    "$PREP_PYTHON" -c 'import pandas, sentencepiece, soundfile, torchaudio.sox_effects' 2>/dev/null ||
        die "$PREP_PYTHON cannot import pandas, sentencepiece, soundfile and torchaudio.sox_effects; see $0 --help"
fi

note_call
claim "$DIR"
if [[ -f $DIR/settings && $(<"$DIR/settings") != "SIZE=$SIZE" ]]; then
    die "$DIR was made with other settings (SIZE=$SIZE; was $(<"$DIR/settings")); use another directory, or delete it"
fi
((DRY_RUN)) || printf 'SIZE=%s\n' "$SIZE" >"$DIR/settings"

if [[ ! -e $DIR/features.made ]]; then
    for part in "${train[@]}" "${dev[@]}" "${tests[@]}"; do
        [[ ! -e $DIR/LibriSpeech/$part ]] || continue
        fairseq_deep download "$part.tar.gz" "https://www.openslr.org/resources/12/$part.tar.gz" \
            "https://us.openslr.org/resources/12/$part.tar.gz" "https://openslr.elda.org/resources/12/$part.tar.gz"
        once "$DIR/$part.unpacked" text unpack --only "*LibriSpeech/$part/*" \
            "${ARCHIVE_DIR:-$CACHE}/$part.tar.gz" "$DIR/$part.unpacked"
        run mkdir -p -- "$DIR/LibriSpeech"
        run mv -T -- "$DIR/$part.unpacked/LibriSpeech/$part" "$DIR/LibriSpeech/$part"
        run rm -rf -- "$DIR/$part.unpacked"
    done

    # fairseq's program goes on where it was stopped; the last features may then be half written, and are made again.
    # It imports `examples`, which is inside fairseq; with that directory itself on the path, fairseq's own `logging`
    # would take the place of Python's.
    last=$(find "$DIR/features" -name '*.npy' -printf '%T@ %p\0' 2>/dev/null | sort -zn | tail -zn 1 | tr -d '\0') || true
    [[ -z $last ]] || run rm -f -- "${last#* }"
    run mkdir -p -- "$DIR/features" "$DIR/.python"
    run ln -sfn -- "$(realpath -m -- "$DIR/LibriSpeech")" "$DIR/features/LibriSpeech"
    run ln -sfn -- "$fairseq/examples" "$DIR/.python/examples"
    run env PYTHONPATH="$DIR/.python" "$PREP_PYTHON" "$program" \
        --output-root "$DIR/features" --vocab-type unigram --vocab-size "$SIZE"
    run touch -- "$DIR/features.made"
fi

((!DRY_RUN)) || exit 0
if [[ ! -e $DIR/data-bin ]]; then
    # Absolute: awk takes a=b/c for a variable.
    made=$DIR/data-bin.partial features=$(realpath -m -- "$DIR/features")
    rm -rf -- "$made"
    mkdir -p -- "$made" "$DIR/raw"
    awk 'NR == 1 || FNR > 1' "$features"/train-{clean-100,clean-360,other-500}.tsv >"$made/train.tsv"
    awk 'NR == 1 || FNR > 1' "$features"/dev-{clean,other}.tsv >"$made/dev.tsv"
    for part in "${dev[@]}" "${tests[@]}"; do
        cp -- "$features/$part.tsv" "$made"
        # The column tgt_text.
        awk -F '\t' 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "tgt_text") column = i; next } { print $column }' \
            "$features/$part.tsv" >"$DIR/raw/$part.en"
        printf '%s\t%s\n' "$part" "$part"
    done >"$DIR/test_sets"
    cp -- "$features/config.yaml" "$features/spm_unigram$SIZE".{model,txt} "$made"
    mv -T -- "$made" "$DIR/data-bin"
fi
note_prepared
say "$DIR: prepared"
