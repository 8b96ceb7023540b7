"""The mistakes of ``listed.yaml``, with the tests that are likely to notice them."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.breaks.mutants import Break, likely_tests

ROOT = Path(__file__).resolve().parents[2]
LISTED = yaml.safe_load(Path(__file__).with_name("listed.yaml").read_text(encoding="utf-8"))


def _broken(name: str, file: str, **mistake: str) -> Break:
    path = f"fairseq_plugins/{file}"
    return Break(name, path, tests=likely_tests(ROOT, path), **mistake)


BREAKS = tuple(_broken(name, **mistake) for name, mistake in LISTED.items())
