"""``fairseq-score --sacrebleu`` and ``--sentence-bleu`` end in a TypeError.

The first passes open files to sacrebleu, which takes lists of sentences; the second calls the scorer as it was before
it had a configuration. https://github.com/facebookresearch/fairseq/issues/3914 and
https://github.com/facebookresearch/fairseq/issues/5056
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import sacrebleu
from fairseq.scoring import bleu
from fairseq_cli import score

from fairseq_plugins.patches.wrapping import wrap


def _sentences(lines: Iterable[str]) -> list[str]:
    return [line.rstrip("\n") for line in lines]


def score_with_today_s_libraries(cli_main: Callable[[], Any]) -> Any:
    """``fairseq-score`` that calls both scorers by their current signatures."""
    corpus_bleu, scorer = sacrebleu.corpus_bleu, bleu.Scorer

    def bleu_of_files(hypotheses: Iterable[str], references: Iterable[Iterable[str]]) -> Any:
        return corpus_bleu(_sentences(hypotheses), [_sentences(lines) for lines in references])

    def configured_scorer(*given: Any) -> Any:
        if len(given) == 1:
            return scorer(given[0])
        pad, eos, unk = given
        return scorer(bleu.BleuConfig(pad=pad, eos=eos, unk=unk))

    with (
        mock.patch.object(sacrebleu, "corpus_bleu", bleu_of_files),
        mock.patch.object(bleu, "Scorer", configured_scorer),
    ):
        return cli_main()


def apply() -> None:
    """Wrap the command; nothing else in the process changes."""
    wrap(score, "cli_main", score_with_today_s_libraries)
