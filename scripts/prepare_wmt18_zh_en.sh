#!/usr/bin/env bash
# Prepare WMT'18 Chinese-English as DS-Init has it (section 7.1): the training text as the organisers tokenised it.
#
#     scripts/prepare_wmt18_zh_en.sh [DIR] [--SETTING VALUE ...]
#
# DIR (default: data/wmt18_zh_en) gets what fairseq-deep prepare writes, and original/: the archives.
# Settings: SIZE, JOINT_CODES, JOINED, VOCABULARY_THRESHOLD, WORKERS, CACHE, ARCHIVE_DIR, CHECKSUMS, DRY_RUN.
# docs/data.md says what they mean; there, too: inputs, time and disk.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
read_settings "$@"

set_directory "$ROOT/data/wmt18_zh_en" "${words[@]}"
# shellcheck disable=SC2034 # read by the steps
source=zh target=en other=zh
source "$ROOT/scripts/lib_wmt18.sh"
