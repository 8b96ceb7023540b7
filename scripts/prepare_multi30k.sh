#!/usr/bin/env bash
# Prepare Multi30k (task 1: picture captions), German to English, for small comparisons.
#
#     scripts/prepare_multi30k.sh DIR [--SETTING VALUE ...] [OPTION ...]
#
# DIR gets what fairseq-deep prepare writes; test is test_2016_flickr, and test_2017 is test_2017_flickr. A RAW without
# the second is prepared without it. Options: those of fairseq-deep prepare, also as JOINED=0 in the environment.
# Settings: SOURCE, TARGET, SIZE, WORKERS, RAW, CACHE, ARCHIVE_DIR, CHECKSUMS, DRY_RUN; see docs/data.md.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
read_settings "$@"
[[ ${#words[@]} -gt 0 && ${words[0]} != -* ]] || die "usage: prepare_multi30k.sh DIR; --help says more"

DIR=${words[0]%/}
SOURCE=${SOURCE:-de} TARGET=${TARGET:-en}
if [[ -z ${RAW:-} ]]; then
    # The names of the files do not tell the corpus, so they have a folder of their own.
    export CACHE=$CACHE/multi30k
    for part in train val test_2016_flickr test_2017_flickr; do
        for language in "$SOURCE" "$TARGET"; do
            fairseq_deep download "$part.$language.gz" \
                "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/$part.$language.gz"
        done
    done
    RAW=${ARCHIVE_DIR:-$CACHE}
fi
sets=(--train "$RAW/train" --valid "$RAW/val" --test "test=$RAW/test_2016_flickr")
[[ -e $RAW/test_2017_flickr.$SOURCE || -e $RAW/test_2017_flickr.$SOURCE.gz ]] && sets+=("test_2017=$RAW/test_2017_flickr")
options=(--source "$SOURCE" --target "$TARGET" --size "${SIZE:-4000}")
pass_on "${OF_PREPARE[@]}"
for word in "${options[@]:6}" "${words[@]:1}"; do given+=" $word"; done
note_call
pass_on WORKERS
fairseq_deep prepare "${words[0]}" "${options[@]}" "${sets[@]}" "${words[@]:1}"
note_prepared
