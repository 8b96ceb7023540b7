#!/usr/bin/env bash
# B2T connection (Takase et al., Findings of ACL 2023), Table 9: headlines, without LayerNorm.
# There is no script for the text: put your own through fairseq-deep prepare. DATA/headline is for 6 layers, the 3.8 million
# pairs of Rush et al. (2015); DATA/headline_extended for 18, these and the authors' 13 million, which are not public.
# The report has the paper's numbers if the prepared_by of these says: text of your own, by fairseq-deep prepare.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
replaced_by reproduce B2T 'Table 9' "$@"
