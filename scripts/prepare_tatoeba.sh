#!/usr/bin/env bash
# Prepare sentence pairs of Tatoeba, German to English, for comparisons that take hours and not days.
#
#     scripts/prepare_tatoeba.sh DIR [--SETTING VALUE ...] [OPTION ...]
#
# DIR gets what fairseq-deep prepare writes. RAW holds train, valid and test (.de and .en, or these with .gz); without it
# the export for Anki is downloaded, of which every 40th pair goes to test and every 40th of the rest to valid. Pairs of
# both that are near copies of training pairs are dropped. A second test set, multi30k, is test_2016_flickr, from the
# folder MULTI30K or the network. Options: those of fairseq-deep prepare, also as JOINED=0 in the environment.
# Settings: SIZE, WORKERS, RAW, MULTI30K, CACHE, ARCHIVE_DIR, CHECKSUMS, DRY_RUN; see docs/data.md.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
read_settings "$@"
[[ ${#words[@]} -gt 0 && ${words[0]} != -* ]] || die "usage: prepare_tatoeba.sh DIR; --help says more"

DIR=${words[0]%/}
options=(--source de --target en --size "${SIZE:-4000}")
pass_on "${OF_PREPARE[@]}"
for word in "${options[@]:6}" "${words[@]:1}"; do given+=" $word"; done
note_call
claim "$DIR.sets"
if [[ -z ${RAW:-} ]]; then
    fairseq_deep download deu-eng.zip https://www.manythings.org/anki/deu-eng.zip
    archive=${ARCHIVE_DIR:-$CACHE}/deu-eng.zip
    # Each export is another text.
    RAW=$DIR.sets/export-$( ((DRY_RUN)) || cksum <"$archive" | cut -d ' ' -f 1)
    once "$RAW/archive" text unpack --only deu.txt "$archive" "$RAW/archive"
    once "$RAW/by" text columns "$RAW/archive/deu.txt" "$RAW/en" "$RAW/de" "$RAW/by"
    for language in de en; do
        once "$RAW/test.$language" text split --every 40 "$RAW/$language" "$RAW/rest.$language" "$RAW/test.$language"
        once "$RAW/valid.$language" text split --every 40 "$RAW/rest.$language" "$RAW/train.$language" "$RAW/valid.$language"
    done
fi
if [[ -z ${MULTI30K:-} ]]; then
    export CACHE=$CACHE/multi30k
    for language in de en; do
        fairseq_deep download "test_2016_flickr.$language.gz" \
            "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/test_2016_flickr.$language.gz"
    done
    MULTI30K=${ARCHIVE_DIR:-$CACHE}
fi
# file PREFIX LANGUAGE: the file of a side, as it is or packed.
file() { [[ -e $1.$2 || ! -e $1.$2.gz ]] && printf '%s' "$1.$2" || printf '%s' "$1.$2.gz"; }
run mkdir -p -- "$DIR.sets"
# Each call makes these anew: files of another RAW would be mixed with this one's training pairs.
for set in valid test; do
    sides=()
    for part in train $set; do sides+=("$(file "$RAW/$part" de)" "$(file "$RAW/$part" en)"); done
    text drop-near-copies "${sides[@]}" "$DIR.sets/$set.de" "$DIR.sets/$set.en"
done
pass_on WORKERS
fairseq_deep prepare "$DIR" "${options[@]}" --train "$RAW/train" --valid "$DIR.sets/valid" \
    --test "test=$DIR.sets/test" "multi30k=$MULTI30K/test_2016_flickr" "${words[@]:1}"
note_prepared
