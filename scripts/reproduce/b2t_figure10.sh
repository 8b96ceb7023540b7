#!/usr/bin/env bash
# B2T connection (Takase et al., Findings of ACL 2023), Figure 10: DeepNet and B2T, 100 layers on each side, small
# batches.
# Put Google's wmt16_en_de.tar.gz, whose link is dead, into ARCHIVE_DIR, or set VARIANT=wmt16-raw (docs/data.md).
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# A figure of validation losses: the report draws them, and nothing is translated.
replaced_by reproduce B2T 'Figure 10' "$@"
