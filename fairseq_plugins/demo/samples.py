"""Output of the demo after the report: ten translations of each method, and a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fairseq_plugins.pipeline.leaderboard import FIRST, Column, score_of
from fairseq_plugins.pipeline.results import EVALUATION, HYPOTHESES, Run
from fairseq_plugins.pipeline.verdicts import verdict_on_training
from fairseq_plugins.scoring.text import read_sentences

SAMPLES = 10
TEST = "test"
NOTHING = 5.0
"""With a lower BLEU a method has learned at most a language model of the target."""
Block = list[tuple[str, str]]
"""One sentence: source, reference and each method's translation, as (name, text)."""


def blocks(data: Path, languages: tuple[str, str], runs: Mapping[str, Run]) -> list[Block]:
    """Test sentences with their translations, evenly spread over the test set.

    Args:
        data: the prepared directory.
        languages: source and target.
        runs: the trainings by method; those without a translation are skipped.
    """
    source, reference = (read_sentences(data / "raw" / f"{TEST}.{language}") for language in languages)
    texts = {"source": source, "reference": reference}
    for method, run in runs.items():
        if (path := run.directory / EVALUATION / TEST / HYPOTHESES).is_file():
            texts[method] = read_sentences(path)
    count = min(SAMPLES, len(source))
    numbers = [place * len(source) // count for place in range(count)]
    return [[(name, lines[number]) for name, lines in texts.items()] for number in numbers]


def as_text(shown: Sequence[Block]) -> str:
    """The samples for a terminal."""
    return "\n\n".join("\n".join(f"  {name:<12} {sentence}" for name, sentence in block) for block in shown)


def seen(runs: Mapping[str, Run]) -> str:
    """Which methods failed to train, and the scores of the others, the best first."""
    every = {method: score_of(run, Column(TEST, FIRST)) for method, run in runs.items()}
    scores = {method: score for method, score in every.items() if score is not None}
    failed = [
        method
        for method, run in runs.items()
        if verdict_on_training(run).diverged or scores.get(method, NOTHING) < NOTHING
    ]
    ranked = sorted(scores, key=lambda method: -scores[method])
    ranking = ", ".join(f"{method} {scores[method]:.1f}" for method in ranked) or "no translation"
    failures = f"{', '.join(failed)} failed to train" if failed else "every method trained"
    return f"Seen: {failures}; BLEU: {ranking}."
