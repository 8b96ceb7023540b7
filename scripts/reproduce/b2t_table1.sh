#!/usr/bin/env bash
# B2T connection (Takase et al., Findings of ACL 2023), Table 1: eight methods at 6 and 18 layers, newstest2010 to 2016.
# Put Google's wmt16_en_de.tar.gz, whose link is dead, into ARCHIVE_DIR, or set VARIANT=wmt16-raw (docs/data.md).
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# Length penalty 0.6 for newstest2014 and 1 for all others.
replaced_by reproduce B2T 'Table 1' "$@" \
    --evaluate 'newstest2014 --length-penalty 0.6' \
    --evaluate 'newstest2010 newstest2011 newstest2012 newstest2013 newstest2015 newstest2016'
