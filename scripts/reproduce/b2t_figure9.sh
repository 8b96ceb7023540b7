#!/usr/bin/env bash
# B2T connection (Takase et al., Findings of ACL 2023), Figure 9: 6, 12, 18, 36 and 50 layers.
# --out runs/b2t_table1 does not train again what Table 1 has, 6 and 18 layers.
# Put Google's wmt16_en_de.tar.gz, whose link is dead, into ARCHIVE_DIR, or set VARIANT=wmt16-raw (docs/data.md).
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# A figure of validation losses: the report draws them, and nothing is translated.
replaced_by reproduce B2T 'Figure 9' "$@"
