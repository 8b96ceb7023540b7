#!/usr/bin/env bash
# B2T connection (Takase et al., Findings of ACL 2023), Table 8: without LayerNorm, newstest2010 to 2016.
# Put Google's wmt16_en_de.tar.gz, whose link is dead, into ARCHIVE_DIR, or set VARIANT=wmt16-raw (docs/data.md).
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
replaced_by reproduce B2T 'Table 8' "$@"
