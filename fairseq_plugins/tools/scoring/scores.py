"""The scores of one or several systems on one test set, and the form in which they are stored.

``Scores.as_dict()`` is the content of ``score.json``:

- ``schema``: 2. A later number means that a field below changed its meaning.
- ``made_by``: versions of ``fairseq-deep``, ``sacrebleu`` and Python.
- ``sentences``, ``references``: their numbers.
- ``language_pair``, ``lower_case``.
- ``remarks``: which scores were left out and why.
- ``warnings``: reasons to doubt a number.
- ``systems``: a list of ``{name, runs, metrics}``; each metric is ``{name, value, values, deviation, reference_length,
  signature, higher_is_better, used_by}``. ``value`` is the mean over ``values``, one for each run; ``deviation`` their
  standard deviation (n - 1), null for one run; ``reference_length`` the tokens of the references. ``signature`` is the
  library's; if tokens were scored, ``tokens:`` and ``compounds:split`` after it name the text.
- ``metrics``: the metrics of the first system again: for a single run, this is everything.
- ``significance``: a list of ``{system, baseline, metric, test, samples, difference, p, p_values, signature}``, as in
  :mod:`fairseq_plugins.tools.scoring.significance`.

All scores are in points and not rounded.
"""

import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.scoring.metrics import TASKS, Metric, Value, metric_named, value_of
from fairseq_plugins.tools.scoring.significance import Comparison
from fairseq_plugins.tools.scoring.suspicions import reference_suspicions, suspicions
from fairseq_plugins.tools.scoring.text import Forms, Outputs, Text

SCHEMA = 2


@dataclass(frozen=True)
class SystemScore:
    """A score of a system: a value for each run."""

    metric: Metric
    values: tuple[Value, ...]

    @property
    def mean(self) -> float:
        """Mean over the runs."""
        return statistics.fmean(value.value for value in self.values)

    @property
    def deviation(self) -> float | None:
        """Standard deviation over the runs (n - 1); None for a single run."""
        return statistics.stdev(value.value for value in self.values) if len(self.values) > 1 else None

    def __str__(self) -> str:
        """The score, with its deviation over several runs."""
        return f"{self.mean:.2f}" + (f" ± {self.deviation:.2f}" if self.deviation is not None else "")


@dataclass(frozen=True)
class System:
    """All scores of one system, by the metric's name."""

    name: str
    scores: Mapping[str, SystemScore]

    @property
    def runs(self) -> int:
        """Number of outputs (seeds)."""
        return len(next(iter(self.scores.values())).values)


@dataclass(frozen=True)
class Scores:
    """Everything that was computed about one test set."""

    test_set: Forms
    lower_case: bool
    metrics: tuple[Metric, ...]
    systems: tuple[System, ...]
    remarks: tuple[str, ...]
    warnings: tuple[str, ...]
    significance: tuple[Comparison, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain data in the form that the module's docstring describes."""
        systems = []
        for system in self.systems:
            metrics = [
                {
                    "name": score.metric.name,
                    "value": score.mean,
                    "values": [value.value for value in score.values],
                    "deviation": score.deviation,
                    "reference_length": score.values[0].reference_length,
                    "signature": score.values[0].signature,
                    "higher_is_better": score.metric.higher_is_better,
                    "used_by": score.metric.used_by,
                }
                for score in system.scores.values()
            ]
            systems.append({"name": system.name, "runs": system.runs, "metrics": metrics})
        references = self.test_set.plain.references
        return {
            "schema": SCHEMA,
            "made_by": made_by(),
            "sentences": len(references[0]),
            "references": len(references),
            "language_pair": self.test_set.language_pair,
            "lower_case": self.lower_case,
            "remarks": list(self.remarks),
            "warnings": list(self.warnings),
            "metrics": systems[0]["metrics"],
            "systems": systems,
            "significance": [asdict(comparison) for comparison in self.significance],
        }


def made_by() -> dict[str, str]:
    """Return the versions of the programs behind the numbers."""
    try:
        own = version("fairseq-deep")
    except PackageNotFoundError:
        own = "not installed"
    return {"fairseq-deep": own, "sacrebleu": version("sacrebleu"), "python": platform.python_version()}


def score(
    systems: Mapping[str, Outputs],
    references: Sequence[Sequence[str]],
    *,
    tokenised_systems: Mapping[str, Outputs] | None = None,
    tokenised_references: Sequence[Sequence[str]] | None = None,
    language_pair: str | None = None,
    metrics: Sequence[str] | None = None,
    lower_case: bool = False,
) -> Scores:
    """Score the outputs of one or several systems on one test set.

    Args:
        systems: detokenised translations by name of the system; a list of such lists for several runs of it.
        references: detokenised references, one list for each.
        tokenised_systems: the same translations in Moses tokens; sacremoses makes them if they are missing.
        tokenised_references: the same references in Moses tokens.
        language_pair: such as ``en-de``; tokenising needs it, and compounds are split for ``en-de`` only.
        metrics: keys of :data:`~fairseq_plugins.tools.scoring.metrics.METRICS`; None for the scores of a translation.
        lower_case: lower-case both sides first, as for the tables of IWSLT'14.

    Raises:
        UserError: a text where a list of texts is meant, unequal counts, an unknown metric, a metric without the text
            it reads, a library not installed.
    """
    tokens = None
    if tokenised_systems is not None and tokenised_references is not None:
        tokens = Text.of(tokenised_systems, tokenised_references)
    test_set = Forms(Text.of(systems, references), tokens, language_pair)
    chosen, left_out = _chosen_metrics(test_set, metrics)
    scored: dict[str, dict[str, SystemScore]] = {name: {} for name in test_set.plain.systems}
    for metric in chosen:
        text, made = test_set.text(metric.reads), test_set.made_from(metric.reads)
        for name, scores in scored.items():
            values = [value_of(metric, run, text.references, lower_case=lower_case) for run in text.systems[name]]
            signed = tuple(replace(value, signature=value.signature + made) for value in values)
            scores[metric.name] = SystemScore(metric, signed)
    warnings: list[str] = []
    if test_set.tokens is None or any(metric.reads == "plain" for metric in chosen):
        every = test_set.plain.references
        warnings += [line for reference in every for line in reference_suspicions(reference)]
        for name, output in test_set.plain.every_run().items():
            warnings += suspicions(name, output, every[0], lower_case=lower_case)
    return Scores(
        test_set,
        lower_case,
        metrics=chosen,
        systems=tuple(System(name, scores) for name, scores in scored.items()),
        remarks=left_out,
        warnings=tuple(warnings),
    )


def _chosen_metrics(test_set: Forms, names: Sequence[str] | None) -> tuple[tuple[Metric, ...], tuple[str, ...]]:
    """Return the metrics to compute, and a remark for each default one that is left out; or a UserError."""
    chosen: dict[Metric, None] = {}
    left_out = []
    for metric in map(metric_named, TASKS["translation"] if names is None else names):
        why = test_set.why_not(metric.reads)
        if names is None and metric.reads.endswith("compounds") and test_set.language_pair != "en-de":
            why = f"tables print it for WMT'14 En-De; --language-pair en-de or --metrics {metric.scorer} adds it"
        if why and names is not None:
            raise UserError(f"{metric.name}: {why}")
        if why:
            left_out.append(f"{metric.name} left out: {why}")
        else:
            chosen[metric] = None
    return tuple(chosen), tuple(left_out)
