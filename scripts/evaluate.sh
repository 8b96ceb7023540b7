#!/usr/bin/env bash
# Average the checkpoints of a run, translate the test sets, and score the translations.
#
#     [NAME=VALUE ...] scripts/evaluate.sh RUN DATA [TEST_SET ...]
#
#     RUN        a directory of scripts/train.sh
#     DATA       the directory made by scripts/prepare*.sh that it was trained on
#     TEST_SET   names in DATA/test_sets; default: all of them, or `test` where there is no such file
#
# It writes
#     RUN/averaged.pt                    the mean of the checkpoints
#     RUN/evaluation/TEST_SET/
#         self-check.json                what score the references would get, had they been translated
#         generate.log                   what fairseq-generate printed
#         hypotheses.tok references.tok  tokenised, without subwords, in the order of the test set
#         hypotheses.txt references.txt  detokenised translations; the references as they were published
#         score.json score.txt           all scores, each with its signature
#         signature                      one line: everything that the score depends on
# For a language model: self-check.json, eval-lm.log, score.json, score.txt and signature.
#
# Before anything is translated, the references that were binarised go the way of a translation: subwords joined,
# detokenised. With less than 99 BLEU against the published ones the script stops and shows where they differ.
#
# Every sentence of a test set is translated once, or the script stops: the translations are counted against the
# published references and against the binarised ones. What is there already is kept; with other settings the script
# stops, and OUTPUT=DIR puts the results elsewhere.
#
# Settings (of the environment):
#     AVERAGE=          last-epochs=N, last-updates=N, best=N, none (the last checkpoint), or the path of a checkpoint;
#                       default: as the published row of the configuration says; where there is none, the last 5
#                       checkpoints saved by update or 10 saved by epoch, or fewer where there are fewer
#     EMA=0             1: average the moving averages of the weights that a training with ema.store_ema keeps
#     BEAM=             default: generation.beam of the configuration
#     LENGTH_PENALTY=   default: generation.lenpen of the configuration
#     CONTEXT_WINDOW=   language models: tokens of context that are not counted; default: of the configuration
#     METRICS=          names for fairseq-deep score; default: those of the task
#     MAX_TOKENS=       size of a batch: default 4000, for speech 50000 (frames)
#     DEVICE=auto       auto, cpu or gpu
#     ACCEPT_REFERENCES=   a reason to go on where these differ; it stands in the signature
#     REMOVE_BPE= TOKENISED= LOWER_CASED=0 REFERENCES=DATA/raw   for a directory that no script has prepared:
#                       subword_nmt, sentencepiece or none, as for fairseq-generate; moses or none; 1 where all letters are
#                       small; the directory of the published references, TEST_SET.LANGUAGE. DATA/text.json says the rest
#     OUTPUT=           default: RUN/evaluation. With another directory, the mean of the checkpoints is put there too
#     MOSES=            a checkout of Moses: detokenise with its Perl script instead of sacremoses
#     DRY_RUN=0         1: only print the commands
#
# The same as options: fairseq-deep evaluate --help. Time: minutes on a GPU. Disk: one checkpoint without its optimiser, and the text.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
usage_and_exit_if_asked "$@"
require_package
exec "$PYTHON" -m fairseq_plugins.cli evaluate --from-environment "$@"
