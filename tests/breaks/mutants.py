"""Breaks made from the source itself: another operator, another constant, a statement less."""

from __future__ import annotations

import ast
import random
import re
import subprocess
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Break:
    """A deliberate mistake.

    Attributes:
        name: a word for ``--only`` and the table; a mutant has its place.
        file: the file that is broken.
        fragment: what the mistake replaces.
        replacement: the mistake.
        what: the mistake in words.
        tests: where a test is likely to notice it; these run first.
        where: offset of the fragment in the file, in characters; by default it has to occur exactly once.
    """

    name: str
    file: str
    fragment: str
    replacement: str
    what: str
    tests: tuple[str, ...]
    where: int | None = None


OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
"""How each operator is written, and what stands in its place in a mutant."""
Span = tuple[int, int, str]
"""First and last offset in the source, in bytes as Python's parser counts, and what replaces what stands there."""


class _Spans(ast.NodeVisitor):
    """Collect the spans of a module; annotations, docstrings and the words of an error are no behaviour."""

    def __init__(self, source: str) -> None:
        self.source = source.encode()
        self.starts = [0]
        for line in self.source.split(b"\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.spans: list[Span] = []

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self._between(node.left, node.op, node.right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, node.op, right)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
            self._between(left, operator, right)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace(node, f"bool({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value))
        elif isinstance(node.value, (int, float)):
            self._replace(node, str(node.value + 1))

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._replace(node, "pass")
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arguments(self, node: ast.arguments) -> None:
        for default in [*node.defaults, *filter(None, node.kw_defaults)]:
            self.visit(default)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace(node, "pass")

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    def _range(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        first = self.starts[node.lineno - 1] + node.col_offset
        return first, self.starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)

    def _text(self, node: ast.expr) -> str:
        first, last = self._range(node)
        return self.source[first:last].decode()

    def _replace(self, node: ast.expr | ast.stmt, replacement: str) -> None:
        self.spans.append((*self._range(node), replacement))

    def _between(self, left: ast.expr, operator: ast.AST, right: ast.expr) -> None:
        """Exchange the operator, which stands between its operands, perhaps beside brackets and line ends."""
        if type(operator) in OPERATORS:
            written, other = OPERATORS[type(operator)]
            first, last = self._range(left)[1], self._range(right)[0]
            place = re.search(re.escape(written).replace(r"\ ", r"\s+").encode(), self.source[first:last])
            if place is not None:
                self.spans.append((first + place.start(), first + place.end(), other))


def mutants_of(root: Path, file: str, lines: Collection[int] | None = None) -> Iterator[Break]:
    """The mutants of one file of the package.

    Args:
        root: of the checkout.
        file: below ``root``.
        lines: numbers of lines, from 1, in which a mutant has to begin; by default it may in any.
    """
    source = (root / file).read_text(encoding="utf-8")
    collected = _Spans(source)
    collected.visit(ast.parse(source))
    tests = likely_tests(root, file)
    for first, last, replacement in sorted(set(collected.spans)):
        line = collected.source.count(b"\n", 0, first) + 1
        if lines is None or line in lines:
            fragment = collected.source[first:last].decode()
            where = len(collected.source[:first].decode())
            what = f"`{' '.join(fragment.split())[:40]}` is `{replacement[:40]}`"
            yield Break(f"{file}:{line}", file, fragment, replacement, what, tests, where)


FURTHER = {
    "core": ("tests/equivalence", "tests/contract"),
    "methods": ("tests/contract",),
    "patches": ("tests/faults",),
}
"""What all models and trainings promise, by the part of the package that it rests on."""


def likely_tests(root: Path, file: str) -> tuple[str, ...]:
    """Where a test is likely to notice a change of ``file``: the file of its name, else the folder of its part."""
    part = Path(file).relative_to("fairseq_plugins")
    folders = [Path("tests", *part.parts[:depth]) for depth in reversed(range(len(part.parts)))]
    candidates = [*(folder / f"test_{part.stem}.py" for folder in folders), *folders]
    nearest = [str(path) for path in candidates if (root / path).exists()][:1]
    return (*nearest, *FURTHER.get(part.parts[0], ()))


def changed_lines(root: Path, revision: str) -> dict[str, set[int]]:
    """Lines of each module of the package that were changed or added since ``revision``, by file."""
    difference = ["git", "-C", str(root), "diff", "-U0", revision, "--", "fairseq_plugins/*.py"]
    changed: dict[str, set[int]] = {}
    lines: set[int] = set()
    for line in subprocess.run(difference, capture_output=True, check=True, text=True).stdout.splitlines():
        if line.startswith("+++ b/"):
            lines = changed.setdefault(line.removeprefix("+++ b/"), set())
        elif hunk := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line):
            lines.update(range(int(hunk[1]), int(hunk[1]) + int(hunk[2] or 1)))
    return changed


def sample(mutants: Sequence[Break], most: int, seed: int) -> list[Break]:
    """At most so many of them, drawn at random and in their order."""
    if len(mutants) <= most:
        return list(mutants)
    return [mutants[index] for index in sorted(random.Random(seed).sample(range(len(mutants)), most))]
