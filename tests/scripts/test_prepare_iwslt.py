"""prepare_iwslt14_de_en.sh from an archive of the real layout to subwords, and called twice."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.scripts import archives
from tests.scripts.fakes import without_binarising
from tests.scripts.running import completed, contents, refusal, times
from tests.texts import read as lines

SCRIPT = "prepare_iwslt14_de_en.sh"
MARKED = {"de": ["Ein Haus, z.B. dies."], "en": ["It’s a house, e.g. this."]}
DROPPED = {"de": ["", "Ein Wort", "kurz"], "en": ["nothing", "one " * 176, "far too long for it"]}


def sentences() -> dict[str, dict[str, Sequence[str]]]:
    """The sentences of the release by set: a marked pair, then 99 made-up ones, and three bad ones in the training."""
    source = archives.Source()
    rows = [
        row
        for row in zip(*source.take(200, *MARKED).values(), strict=True)
        if 0.7 < len(archives.tokens(row[0]).split()) / len(archives.tokens(row[1]).split()) < 1.4
    ]
    training = dict(zip(MARKED, zip(*rows[:99], strict=True), strict=True))
    sets: dict[str, dict[str, Sequence[str]]] = {
        "train": {language: [*MARKED[language], *training[language], *DROPPED[language]] for language in MARKED}
    }
    for name in archives.TED_SETS:
        taken = source.take(3, *MARKED)
        sets[name] = {language: [*MARKED[language], *taken[language]] for language in MARKED}
    return sets


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with spaces in its name, with the archive."""
    directory = tmp_path_factory.mktemp("a place") / "with spaces"
    files = {}
    for name, text in sentences().items():
        for language in text:
            if name == "train":
                files[f"de-en/train.tags.de-en.{language}"] = archives.ted_talk(text[language])
            else:
                files[f"de-en/IWSLT14.{name}.de-en.{language}.xml"] = archives.ted_test_set(text[language])
    archives.write_archive(directory / "archives" / "de-en.tgz", files)
    return directory


@pytest.fixture(scope="module")
def settings(place: Path) -> dict[str, str]:
    archives = {"ARCHIVE_DIR": str(place / "archives"), "CHECKSUMS": "/dev/null"}
    return {**archives, "SIZE": "50", "JOINED": "0", "PYTHON": without_binarising(place)}


@pytest.fixture(scope="module")
def prepared(place: Path, settings: dict[str, str]) -> Path:
    assert "kept 102 of 105 pairs; dropped: 1 with an empty side, " in completed(SCRIPT, place / "out", **settings)
    return place / "out"


def test_the_sets_have_their_sentences_in_order(prepared: Path) -> None:
    training = ["Ein Talk", "TED Talk", *sentences()["train"]["de"]][:-3]  # the title and the description are text, too
    assert lines(prepared / "raw" / "valid.de") == training[22::23]
    assert len(lines(prepared / "text" / "train.tok.de")) == 102 - 102 // 23
    assert lines(prepared / "text" / "train.tok.de")[:3] == ["ein talk", "ted talk", "ein haus , z.b. dies ."]
    # The test set is all five in fairseq's order, with straight apostrophes in its tokens alone.
    references = [line for name in archives.TED_SETS for line in sentences()[name]["en"]]
    assert lines(prepared / "raw" / "test.en") == references
    assert lines(prepared / "text" / "test.tok.en")[0] == "it &apos;s a house , e.g. this ."
    assert (prepared / "test_sets").read_text() == "test\ttest\n"
    assert not (prepared / "work").exists()
    called = "scripts/prepare_iwslt14_de_en.sh JOINED=0 SIZE=50 CHECKSUMS=/dev/null\n"
    assert (prepared / "prepared_by").read_text() == called
    for language in MARKED:
        for split in ("train", "valid", "test"):
            cut = lines(prepared / "text" / f"{split}.{language}")
            assert [line.replace("@@ ", "") for line in cut] == lines(prepared / "text" / f"{split}.tok.{language}")


def test_a_second_call_changes_nothing(prepared: Path, settings: dict[str, str]) -> None:
    before = contents(prepared), times(prepared)
    assert completed(SCRIPT, prepared, **settings).endswith(f"{prepared}: prepared already\n")
    assert refusal(SCRIPT, prepared, **{**settings, "SIZE": "60"}) == (
        f"{prepared} was made with other settings (SIZE=60; was SIZE=50); use another directory, or delete it"
    )
    assert (contents(prepared), times(prepared)) == before


@pytest.mark.slow
def test_dsinit_splits_before_it_cleans(place: Path, settings: dict[str, str]) -> None:
    """7,584 validation pairs of DS-Init's section 7.1 are 174,443 // 23: of all pairs, not of those that are kept."""
    out = place / "dsinit"
    completed(SCRIPT, out, **{**settings, "VARIANT": "dsinit", "JOINED": ""})
    training = ["Ein Talk", "TED Talk", *sentences()["train"]["de"]]
    assert lines(out / "raw" / "valid.de") == training[22::23]
    assert len(lines(out / "text" / "train.de")) == 102 - len(training[22::23])
    assert "--joined-dictionary" not in (place / "asked").read_text()
