#!/usr/bin/env bash
# Prepare WMT'14 English-French as fairseq's prepare-wmt14en2fr.sh and Admin's pre-process/wmt14en-fr.sh do.
#
#     scripts/prepare_wmt14_en_fr.sh [DIR] [--SETTING VALUE ...]
#
#     scripts/prepare_wmt14_en_fr.sh
#     scripts/prepare_wmt14_en_fr.sh --variant dsinit        as DS-Init has it
#
# DIR (default: data/wmt14_en_fr, or ..._dsinit) gets what fairseq-deep prepare writes, and original/: the archives.
# Settings: VARIANT, VALID, SIZE, JOINT_CODES, JOINED, VOCABULARY_THRESHOLD, TEST_SETS, APOSTROPHE, WORKERS, CACHE,
# ARCHIVE_DIR, CHECKSUMS, DRY_RUN. docs/data.md says what they and the variants mean; there, too: time and disk.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
read_settings "$@"

VARIANT=${VARIANT:-fairseq}
case $VARIANT in
    fairseq) name=wmt14_en_fr size=40000 valid=every-1333rd apostrophe=straight joint_codes=1 joined=1 threshold=0 ;;
    dsinit)
        name=wmt14_en_fr_dsinit size=32000 valid=newstest2012+newstest2013 apostrophe=keep
        joint_codes=0 joined=0 threshold=50
        ;;
    *) die "unknown VARIANT '$VARIANT'; legal values: fairseq dsinit" ;;
esac
set_directory "$ROOT/data/$name" "${words[@]}"
target=fr valid=${VALID:-$valid} apostrophe=${APOSTROPHE:-$apostrophe} normalise=train
case $valid in
    every-1333rd | newstest2013 | newstest2012+newstest2013) ;;
    *) die "unknown VALID '$valid'; legal values: every-1333rd newstest2013 newstest2012+newstest2013" ;;
esac
read -r -a test_sets <<<"${TEST_SETS:-newstest2014}"
texts=(europarl-v7 commoncrawl un news-commentary-v9 giga-fren)
trains=(
    training-parallel-europarl-v7/training/europarl-v7.fr-en
    training-parallel-commoncrawl/commoncrawl.fr-en
    training-parallel-un/un/undoc.2000.fr-en
    training-parallel-nc-v9/training/news-commentary-v9.fr-en
    training-giga-fren/giga-fren.release2.fixed
)
options=(--source en --target fr --normalise "$normalise" --aggressive --clean subwords --max-length 250 --ratio 1.5)
pass_on WORKERS
source "$ROOT/scripts/lib_wmt14.sh"
