#!/usr/bin/env bash
# Prepare WikiText-103 for language models of words, as in the B2T paper's Table 4: 267,744 types, split as published.
#
#     scripts/prepare_wikitext103.sh [DIR] [--SETTING VALUE ...]
#
# DIR (default: data/wikitext103) gets raw/ (train, valid and test as published), text.json and data-bin/.
# Settings: WORKERS, CACHE, ARCHIVE_DIR, CHECKSUMS, DRY_RUN; see docs/data.md, also for time and disk.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
read_settings "$@"

set_directory "$ROOT/data/wikitext103" "${words[@]}"
note_call
claim "$DIR"

if [[ ! -e $DIR/raw ]]; then
    fairseq_deep download wikitext-103-v1.zip https://wikitext.smerity.com/wikitext-103-v1.zip \
        https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-103-v1.zip
    made=$DIR/raw.partial
    run rm -rf -- "$made"
    text unpack --only '*.tokens' "${ARCHIVE_DIR:-$CACHE}/wikitext-103-v1.zip" "$made/archive"
    for split in train valid test; do
        run mv -- "$made/archive/wikitext-103/wiki.$split.tokens" "$made/$split"
    done
    run rm -rf -- "$made/archive"
    run mv -T -- "$made" "$DIR/raw"
fi

text describe --tokeniser none "$DIR/text.json"
# fairseq's own binarisation writes the dictionary last.
once "$DIR/data-bin/dict.txt" run "$PYTHON" -m fairseq_plugins.tools.cli preprocess --destdir "$DIR/data-bin" \
    --only-source --workers "${WORKERS:-$(nproc)}" \
    --trainpref "$DIR/raw/train" --validpref "$DIR/raw/valid" --testpref "$DIR/raw/test"
note_prepared
say "$DIR: prepared"
