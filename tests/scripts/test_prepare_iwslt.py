"""prepare_iwslt14_de_en.sh from an archive of the real layout to data-bin, stopped, continued and called twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fairseq.data import Dictionary, data_utils

from tests.scripts import ted_release
from tests.scripts.fakes import without_binarising
from tests.scripts.running import contents, killed_at, refusal, run, times

SCRIPT = "prepare_iwslt14_de_en.sh"
CLEANED = ted_release.PAIRS + 2  # with the title and the description


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with spaces in its name, with the archive and no sums that its files would have to match."""
    directory = tmp_path_factory.mktemp("a place") / "with spaces"
    ted_release.write_archive(directory / "archives" / "de-en.tgz")
    (directory / "sums").touch()
    return directory


@pytest.fixture(scope="module")
def settings(place: Path) -> dict[str, str]:
    return {"ARCHIVE_DIR": str(place / "archives"), "CHECKSUMS": str(place / "sums"), "SIZE": "50", "JOINED": "0"}


@pytest.fixture(scope="module")
def prepared(place: Path, settings: dict[str, str]) -> Path:
    out = place / "out"
    ended = run(SCRIPT, out, **settings)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"kept {CLEANED:,} of {CLEANED + 3:,} pairs; dropped: 1 with an empty side, " in ended.stdout
    return out


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_the_sets_have_their_sentences_in_order(prepared: Path) -> None:
    wanted = ["Ein Talk", "TED Talk", *(pair[0] for pair in ted_release.pairs(ted_release.PAIRS, 1))]
    tokens = [line.lower().replace(", z.b.", " , z.b .") for line in wanted]
    every_23rd = [line for number, line in enumerate(tokens, start=1) if number % 23 == 0]
    assert lines(prepared / "text" / "valid.tok.de") == every_23rd
    assert lines(prepared / "text" / "train.tok.de") == [
        line for number, line in enumerate(tokens, start=1) if number % 23 != 0
    ]
    assert lines(prepared / "raw" / "valid.de") == [
        line for number, line in enumerate(wanted, start=1) if number % 23 == 0
    ]


def test_the_test_set_is_all_five_in_fairseqs_order(prepared: Path) -> None:
    names = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
    seeds = [2 + ted_release.TEST_SETS.index(name) for name in names]
    english = [pair[1] for seed in seeds for pair in ted_release.pairs(ted_release.SEGMENTS, seed)]
    assert lines(prepared / "raw" / "test.en") == english
    assert lines(prepared / "text" / "test.tok.en") == [
        line.lower().replace("it’s", "it &apos;s").replace(".", " .") for line in english
    ]


def test_subwords_join_to_the_tokens(prepared: Path) -> None:
    for split in ("train", "valid", "test"):
        for language in ("de", "en"):
            joined = [line.replace("@@ ", "") for line in lines(prepared / "text" / f"{split}.{language}")]
            assert joined == lines(prepared / "text" / f"{split}.tok.{language}")


def test_data_bin_holds_the_text(prepared: Path) -> None:
    for language in ("de", "en"):
        dictionary = Dictionary.load(str(prepared / "data-bin" / f"dict.{language}.txt"))
        for split in ("train", "valid", "test"):
            data = data_utils.load_indexed_dataset(str(prepared / "data-bin" / f"{split}.de-en.{language}"), dictionary)
            text = lines(prepared / "text" / f"{split}.{language}")
            if split == "train":
                assert [dictionary.string(sentence) for sentence in data] == text
            assert len(data) == len(text)
    assert (prepared / "test_sets").read_text() == "test\ttest\n"
    assert not (prepared / "work").exists()


def test_a_second_call_changes_nothing(prepared: Path, settings: dict[str, str]) -> None:
    before = contents(prepared), times(prepared)
    ended = run(SCRIPT, prepared, **settings)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.endswith(f"{prepared}: prepared already\n")
    assert (contents(prepared), times(prepared)) == before


def test_other_settings_are_refused(prepared: Path, settings: dict[str, str]) -> None:
    before = contents(prepared)
    assert refusal(SCRIPT, prepared, **{**settings, "SIZE": "60"}) == (
        f"{prepared} was made with other settings (SIZE=60; was SIZE=50); use another directory, or delete it"
    )
    assert contents(prepared) == before


def test_dsinit_splits_before_it_cleans(place: Path, settings: dict[str, str]) -> None:
    """7,584 validation pairs of DS-Init's section 7.1 are 174,443 // 23: of all pairs, not of those that are kept."""
    out = place / "dsinit"
    python = without_binarising(place)
    ended = run(SCRIPT, out, **{**settings, "VARIANT": "dsinit", "JOINED": "", "PYTHON": python})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    training = ["Ein Talk", "TED Talk", *(pair[0] for pair in ted_release.pairs(ted_release.PAIRS, 1)), "", "Ein Wort"]
    every_23rd = [line for number, line in enumerate([*training, "kurz"], start=1) if number % 23 == 0]
    assert lines(out / "raw" / "valid.de") == every_23rd
    assert len(lines(out / "text" / "train.de")) == CLEANED - len(every_23rd)
    assert "--joined-dictionary" not in (place / "asked").read_text()
    dry = run(SCRIPT, place / "x", DRY_RUN="1", VARIANT="dsinit")
    assert "learn-bpe --merges 30000 " in dry.stdout


@pytest.mark.slow
def test_killed_anywhere_it_continues_to_the_same_bytes(prepared: Path, settings: dict[str, str]) -> None:
    complete = contents(prepared)
    shutil.rmtree(prepared)
    for moment in ("published/sentences.partial/test.raw.de", "work/tokens/train.en", "data-bin.partial"):
        killed_at(prepared / moment, prepared / "published" / ".lock", SCRIPT, prepared, **settings)
        assert not (prepared / "data-bin").exists()
    ended = run(SCRIPT, prepared, **settings)
    assert ended.returncode == 0, ended.stderr
    assert contents(prepared) == complete


def test_a_dry_run_prints_the_commands_and_makes_nothing(place: Path, settings: dict[str, str]) -> None:
    before = contents(place)
    ended = run(SCRIPT, place / "dry run", DRY_RUN="1", **settings)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert contents(place) == before
    assert not (place / "dry run").exists()
    commands = [line for line in ended.stdout.splitlines() if not line.startswith("#")]
    steps = [line.split("fairseq_plugins.text ")[1].split()[0] for line in commands if "fairseq_plugins.text " in line]
    assert [step for number, step in enumerate(steps) if step not in steps[:number]] == [
        "unpack",
        "ted",
        "check",
        "describe",
        "copy",
        "tokenise",
        "clean",
        "split",
        "select",
        "learn-bpe",
        "apply-bpe",
    ]
    [described] = [line for line in commands if " describe " in line]
    assert " --tokeniser moses --subwords bpe --lower-case --changed test=apostrophes " in described
    assert " preprocess --source-lang de --target-lang en " in commands[-2]


def test_without_archive_dir_it_is_downloaded(place: Path) -> None:
    ended = run(SCRIPT, place / "x", DRY_RUN="1", CACHE=str(place / "cache"))
    url = "https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
    assert url in ended.stdout.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "changed", "line"),
    [
        (["a", "b"], {}, "one directory, not 2: a b"),
        (["a"], {"SOURCE": "fr"}, "SOURCE-TARGET is fr-en; legal: de-en, en-de"),
        (["a"], {"JOINED": "yes"}, "--joined yes: not 0 or 1 (fairseq-deep prepare --help says more)"),
        (
            ["a"],
            {"SIZE": "10k"},
            "--size 10k: not a whole number of at least 1 (fairseq-deep prepare --help says more)",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(
    tmp_path: Path, arguments: list[str], changed: dict[str, str], line: str
) -> None:
    assert refusal(SCRIPT, *(tmp_path / name for name in arguments), **changed).replace(f"{tmp_path}/", "") == line
    assert list(tmp_path.iterdir()) == []


def test_an_archive_of_something_else_is_one_line(place: Path, tmp_path: Path, settings: dict[str, str]) -> None:
    ted_release.write_archive(tmp_path / "de-en.tgz", {"train.tags.de-en.de": "x\n"})
    found = refusal(SCRIPT, place / "other", **{**settings, "ARCHIVE_DIR": str(tmp_path)})
    assert found.endswith("archive/de-en/IWSLT14.TED.dev2010.de-en.de.xml: no such file")
    assert not (place / "other" / "published" / "sentences").exists()


def test_a_cut_off_archive_is_one_line(place: Path, tmp_path: Path, settings: dict[str, str]) -> None:
    whole = (place / "archives" / "de-en.tgz").read_bytes()
    (tmp_path / "de-en.tgz").write_bytes(whole[: len(whole) // 2])
    found = refusal(SCRIPT, place / "other", **{**settings, "ARCHIVE_DIR": str(tmp_path)})
    assert found.startswith(f"{tmp_path}/de-en.tgz: ")
