#!/usr/bin/env bash
# Prepare enwik8 for language models of bytes, as in the ReZero paper: 90 million bytes to train, twice 5 million.
#
#     scripts/prepare_enwik8.sh [DIR] [--SETTING VALUE ...]
#
# DIR (default: data/enwik8) gets raw/ (the bytes), text/ (the number of each byte), text.json and data-bin/.
# Settings: WORKERS, CACHE, ARCHIVE_DIR, CHECKSUMS, DRY_RUN; see docs/data.md, also for time and disk.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
read_settings "$@"

set_directory "$ROOT/data/enwik8" "${words[@]}"
note_call
claim "$DIR"

if [[ ! -e $DIR/raw ]]; then
    fairseq_deep download enwik8.zip https://mattmahoney.net/dc/enwik8.zip http://mattmahoney.net/dc/enwik8.zip \
        https://cs.fit.edu/~mmahoney/compression/enwik8.zip https://data.deepai.org/enwik8.zip
    made=$DIR/raw.partial
    run rm -rf -- "$made"
    text unpack --only enwik8 "${ARCHIVE_DIR:-$CACHE}/enwik8.zip" "$made/archive"
    text cut-bytes "$made/archive/enwik8" "$made"
    run rm -rf -- "$made/archive"
    run mv -T -- "$made" "$DIR/raw"
fi

for split in train valid test; do
    once "$DIR/text/$split.txt" text bytes "$DIR/raw/$split" "$DIR/text/$split.txt"
done
text describe --tokeniser bytes "$DIR/text.json"
# fairseq's own binarisation writes the dictionary last.
once "$DIR/data-bin/dict.txt" run "$PYTHON" -m fairseq_plugins.tools.cli preprocess --destdir "$DIR/data-bin" \
    --only-source --workers "${WORKERS:-$(nproc)}" \
    --trainpref "$DIR/text/train.txt" --validpref "$DIR/text/valid.txt" --testpref "$DIR/text/test.txt"
note_prepared
say "$DIR: prepared"
