"""The files of the embedded corpus: reproducible, disjoint, as many as asked for."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from fairseq_plugins.demo.corpus import write_corpus

FILES = [f"{split}.{language}" for split in ("train", "valid", "test") for language in ("de", "en")]
SIZES = {"train": 8000, "valid": 200, "test": 200}


DIGEST = "f00f31e3d9ce1dfe0ec5f437b35574803c859abe592b76247d2463c0d430f558"
"""SHA-256 of the six files at the size of the demo; other text would make other scores than the published ones."""


def contents(directory: Path) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in FILES}


def test_the_demo_s_text_never_changes_and_its_splits_share_nothing(tmp_path: Path) -> None:
    write_corpus(tmp_path, **SIZES)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)
    texts = contents(tmp_path)
    assert hashlib.sha256(b"".join(texts[name] for name in sorted(texts))).hexdigest() == DIGEST
    words: dict[str, set[str]] = {}
    for language in ("de", "en"):
        lines = {split: texts[f"{split}.{language}"].decode().splitlines() for split in SIZES}
        assert {split: len(sentences) for split, sentences in lines.items()} == SIZES
        assert len(set(chain.from_iterable(lines.values()))) == sum(SIZES.values())
        words |= {f"{split}.{language}": set(re.findall(r"\w+", " ".join(lines[split]))) for split in lines}
    # Every word to be translated is known from training.
    assert words["test.de"] <= words["train.de"]


@pytest.mark.slow
def test_same_seed_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    code = "import sys, pathlib; from fairseq_plugins.demo.corpus import write_corpus as w; "
    code += "w(pathlib.Path(sys.argv[1]), 300, 20, 20, seed=7)"
    # This process has a hash seed of its own, drawn at random unless it was given.
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "command")], check=True, env=environment)
    write_corpus(tmp_path / "same", 300, 20, 20, seed=7)
    write_corpus(tmp_path / "other", 300, 20, 20, seed=8)
    same, other = contents(tmp_path / "same"), contents(tmp_path / "other")
    assert contents(tmp_path / "command") == same
    assert all(other[name] != content for name, content in same.items())


def test_held_out_sets_do_not_depend_on_the_training_size(tmp_path: Path) -> None:
    write_corpus(tmp_path / "small", 10, 20, 20)
    write_corpus(tmp_path / "large", 400, 20, 20)
    small, large = contents(tmp_path / "small"), contents(tmp_path / "large")
    assert all(small[name] == large[name] for name in FILES if not name.startswith("train"))
    assert large["train.de"].startswith(small["train.de"])
