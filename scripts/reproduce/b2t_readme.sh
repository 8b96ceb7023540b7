#!/usr/bin/env bash
# B2T connection (Takase et al., Findings of ACL 2023), README: 18 layers with word dropout.
#
#     scripts/reproduce/b2t_readme.sh [NAME ...]
#
# The text is Google's WMT'16 English-German, whose link is dead: put wmt16_en_de.tar.gz into a directory and name it by
# ARCHIVE_DIR, or set VARIANT=wmt16-raw, which builds the text from the parts that are still published.
# Settings: OUT=DIR DATA=DIR SEEDS="1 2" SMOKE=1 DRY_RUN=1 ARCHIVE_DIR=DIR, and those of train.sh and evaluate.sh;
# fairseq-deep reproduce --help says what they are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
usage_and_exit_if_asked "$@"
require_package
# Length penalty 0.6 for newstest2014 and 1 for all others.
exec "$PYTHON" -m fairseq_plugins.cli reproduce B2T README "$@" \
    --evaluate 'newstest2014 --length-penalty 0.6' \
    --evaluate 'newstest2010 newstest2011 newstest2012 newstest2013 newstest2015 newstest2016' \
    --from-environment
