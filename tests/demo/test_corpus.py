"""The embedded corpus is fixed, by a checksum."""

import hashlib
import re
from itertools import chain
from pathlib import Path

from fairseq_plugins.tools.demo.corpus import write_corpus

FILES = [f"{split}.{language}" for split in ("train", "valid", "test") for language in ("de", "en")]
SIZES = {"train": 8000, "valid": 200, "test": 200}
DIGEST = "f00f31e3d9ce1dfe0ec5f437b35574803c859abe592b76247d2463c0d430f558"
"""SHA-256 of the six files at the size of the demo; other text would make other scores than the published ones."""


def test_the_demo_s_text_never_changes_and_its_splits_share_nothing(tmp_path: Path) -> None:
    write_corpus(tmp_path, **SIZES)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)
    texts = {name: (tmp_path / name).read_bytes() for name in FILES}
    assert hashlib.sha256(b"".join(texts[name] for name in sorted(texts))).hexdigest() == DIGEST
    words: dict[str, set[str]] = {}
    for language in ("de", "en"):
        lines = {split: str(texts[f"{split}.{language}"], "utf-8").splitlines() for split in SIZES}
        assert {split: len(sentences) for split, sentences in lines.items()} == SIZES
        assert len(set(chain.from_iterable(lines.values()))) == sum(SIZES.values())
        words |= {f"{split}.{language}": set(re.findall(r"\w+", " ".join(lines[split]))) for split in lines}
    # Every word to be translated is known from training.
    assert words["test.de"] <= words["train.de"]
