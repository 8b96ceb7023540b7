"""``fairseq-deep doctor``: run every check and print what it found.

Exit code 0 if training can start, 1 if it cannot.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from fairseq_plugins.doctor import machine, packages, plugin
from fairseq_plugins.doctor.finding import Check, Finding, Level
from fairseq_plugins.options import OneLineParser

CHECKS: tuple[Check, ...] = (
    Check("versions", packages.python),
    Check("versions", packages.packages),
    Check("versions", packages.fairseq_distribution),
    Check("machine", machine.processor),
    Check("machine", machine.disk),
    Check("machine", machine.shared_memory),
    Check("machine", machine.numpy_bridge),
    Check("machine", machine.gpus),
    Check("machine", machine.variables),
    Check("machine", machine.moses),
    Check("fairseq", plugin.importing),
    Check("fairseq", plugin.extensions, needs_fairseq=True),
    Check("fairseq", plugin.user_directory),
    Check("fairseq", plugin.architectures, needs_fairseq=True),
    Check("patches of fairseq's bugs", plugin.fairseq_patches, needs_fairseq=True),
)
"""In the order in which they are printed, grouped by topic."""

WIDTH = 118


def main(argv: Sequence[str]) -> int:
    """Run the checks and print the findings."""
    arguments = _parser().read(argv)
    findings = examine(CHECKS)
    print(as_json(findings) if arguments.json else as_text(findings))
    return int(any(finding.level is Level.ERROR for _, finding in findings))


def _parser() -> OneLineParser:
    parser = OneLineParser(
        prog="fairseq-deep doctor",
        description="Report on this environment and on what in it would stop a training or spoil it. "
        "Exit code 0: training can start; 1: it cannot.",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    return parser


def examine(checks: Iterable[Check]) -> list[tuple[str, Finding]]:
    """Return all findings with their topics, without those that need fairseq if it cannot be imported."""
    found: list[tuple[str, Finding]] = []
    for check in checks:
        if not check.needs_fairseq or plugin.obstacle() is None:
            found += [(check.topic, finding) for finding in _run(check)]
    return found


def _run(check: Check) -> list[Finding]:
    """Run a check; if it fails, that is a finding, and the other checks still run."""
    try:
        return list(check.run())
    except Exception as error:
        return [Finding(Level.WARNING, check.topic, f"this check failed: {type(error).__name__}: {error}")]


def as_json(findings: Sequence[tuple[str, Finding]]) -> str:
    """Return everything as JSON, the conclusion first."""
    can_train = not any(finding.level is Level.ERROR for _, finding in findings)
    listed = [{"topic": topic, **asdict(finding)} for topic, finding in findings]
    return json.dumps({"training_can_start": can_train, "findings": listed}, indent=1, ensure_ascii=False)


def as_text(findings: Sequence[tuple[str, Finding]]) -> str:
    """Return a paragraph for each topic, the conclusion last."""
    lines: list[str] = []
    for topic in dict.fromkeys(topic for topic, _ in findings):
        of_topic = [finding for of, finding in findings if of == topic]
        width = max(len(finding.about) for finding in of_topic) + 2
        lines += ["", topic]
        for finding in of_topic:
            lines += _lines(finding, width)
    return "\n".join([*lines[1:], "", conclusion([finding for _, finding in findings])])


def _lines(finding: Finding, width: int) -> list[str]:
    head = f"  {finding.level.value:<9}{finding.about:<{width}}"
    indent = " " * len(head)
    thread = f" ({finding.thread})" if finding.thread else ""
    says = textwrap.wrap(finding.says + thread, WIDTH - len(head), break_long_words=False, break_on_hyphens=False)
    lines = [head + says[0], *(indent + line for line in says[1:])]
    return [*lines, *([f"{indent}-> {finding.cure}"] if finding.cure else [])]


def conclusion(findings: Sequence[Finding]) -> str:
    """Return one line: whether training can start, and what to look at."""
    errors = [finding.about for finding in findings if finding.level is Level.ERROR]
    if errors:
        return f"training cannot start: {', '.join(dict.fromkeys(errors))}"
    warnings = [finding.about for finding in findings if finding.level is Level.WARNING]
    look = f"; look at: {', '.join(dict.fromkeys(warnings))}" if warnings else ""
    return f"training can start{look}"
