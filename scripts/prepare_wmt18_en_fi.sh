#!/usr/bin/env bash
# Prepare WMT'18 English-Finnish as DS-Init has it (section 7.1): the training text as the organisers tokenised and truecased
# it, newstest2017 for validation, newstest2018 as test set, 32,000 merges for each language by itself.
#
# usage: [SETTING=VALUE ...] scripts/prepare_wmt18_en_fi.sh [DIR]
#
# inputs, downloaded from data.statmt.org, or copied by you into ARCHIVE_DIR under these names
#   wmt18-fi-en-corpus.gz  preprocessed/fi-en/corpus.gz of the translation task of 2018: a pair a line, Finnish, tab,
#                            English (3.3 million)
#   wmt{17,18}-test.tgz     the test.tgz of both years, whose checksums are known
#
# outputs, in DIR (default: data/wmt18_en_fi)
#   original/     the archives, unpacked, and how words are cased in them; may be deleted at the end
#   raw/ text/ codes.en codes.fi data-bin/ test_sets settings: see scripts/prepare.sh, which does the rest
#
# settings
#   SIZE=32000                  merges
#   JOINT_CODES=0               1: merges for both languages together
#   JOINED=0                    1: one dictionary
#   VOCABULARY_THRESHOLD=50     see scripts/prepare.sh; docs/usage of the authors' toolkit
#   WORKERS=<cores>             processes
#   MOSES=                      a checkout of Moses: use its Perl tools
#   CACHE=data/cache ARCHIVE_DIR=   where downloads are kept; where your own copies are
#   CHECKSUMS=scripts/checksums
#   DRY_RUN=1                   print the commands, make nothing
# What else scripts/prepare.sh can be told is part of what the paper's text is; another choice is refused.
#
# The test sets are made like the training text: normalised punctuation, Moses' tokens (hyphens split), and truecased
# by what the training text itself shows; the organisers' own truecaser is not needed.
#
# time and disk: half a day, 15 GB, of which 5 GB stay. Both are estimates: nobody has run this script on all the data yet.
set -euo pipefail
{ # Read whole before it runs: an edit of this file does not reach a running job.
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=scripts/wmt.sh
source "$(dirname "${BASH_SOURCE[0]}")/wmt.sh"
usage_and_exit_if_asked "$@"

(($# <= 1)) || die "one directory, not $#: $*"
fixed_settings "WMT'18 English-Finnish" SOURCE=en TARGET=fi
wmt18 fi-en "${1:-$ROOT/data/wmt18_en_fi}"
}; exit
