#!/usr/bin/env bash
# Prepare Multi30k (task 1: picture captions), German to English, for small comparisons.
#
#     scripts/prepare_multi30k.sh DIR
#
#   DIR   gets what scripts/prepare.sh writes; the test set is test_2016_flickr
#
# 29,000 training pairs, of which the usual cleaning (ratio 1.5) keeps 28,332, and 1,014 validation pairs; cased, Moses
# tokens, joint BPE with a joined dictionary. There is no published recipe behind it.
#
# Settings: SOURCE=de TARGET=en (or the other way round), SIZE=4000 merges, RAW=DIR with train.de[.gz], val.de[.gz],
# test_2016_flickr.de[.gz], ... instead of a download, ARCHIVE_DIR and CACHE as for every download, DRY_RUN=1, and all
# settings of prepare.sh.
#
# Time: a minute. Disk: 40 MB.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
usage_and_exit_if_asked "$@"
(($# == 1)) || die "usage: prepare_multi30k.sh DIR; --help says more"

export SOURCE=${SOURCE:-de} TARGET=${TARGET:-en} SIZE=${SIZE:-4000}
if [[ -z ${RAW:-} ]]; then
    # Their names say nothing of the corpus, so they have a folder of their own.
    export CACHE=$CACHE/multi30k
    for part in train val test_2016_flickr; do
        for language in "$SOURCE" "$TARGET"; do
            fairseq_deep download "$part.$language.gz" \
                "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/$part.$language.gz"
        done
    done
    RAW=${ARCHIVE_DIR:-$CACHE}
fi
"$ROOT/scripts/prepare.sh" "$1" "train=$RAW/train" "valid=$RAW/val" "test=$RAW/test_2016_flickr"
