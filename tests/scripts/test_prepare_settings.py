"""A setting that the head of a script names does something there, as an option and in the environment."""

from __future__ import annotations

import re
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from fairseq_plugins.cli.main import main
from fairseq_plugins.pipeline.prepare_settings import Settings
from fairseq_plugins.pipeline.workspace import SETTINGS, Workspace
from tests.scripts.running import ROOT, refusal, run

SCRIPTS = sorted(path for path in (ROOT / "scripts").glob("*.sh") if not path.name.startswith("lib"))
CORPORA = [script for script in SCRIPTS if script.name.startswith("prepare_")]
OPTIONS = {setting.name.upper() for setting in fields(Settings)}

OTHER = {
    "SOURCE": "en",
    "TARGET": "de",
    "VALID": "newstest2013",
    "TEST_SETS": "newstest2012",
    "CODES": "/my/codes",
    "SOURCE_DICT": "/my/dict",
    "TARGET_DICT": "/my/dict",
    "CACHE": "/my/cache",
    "ARCHIVE_DIR": "/my/archives",
    "CHECKSUMS": "/my/sums",
    "APOSTROPHE": "keep",
    "VARIANT": "dsinit",
    "PREP_PYTHON": "/no/python",
    "RAW": "/my/raw",
}
"""Another value than any default; of a name that is not here it is a number."""


def documented(script: Path) -> list[str]:
    """The names that the head of a script lists as settings."""
    head = script.read_text(encoding="utf-8").split("set -euo pipefail")[0]
    listed = re.split(r"[.;]\s", head.partition("# Settings:")[2])[0]
    return re.findall(r"\b([A-Z][A-Z_]+)\b", listed)


def test_every_setting_that_a_script_reads_is_in_its_head_and_in_a_table_of_the_documentation() -> None:
    pages = [(ROOT / "docs" / name).read_text(encoding="utf-8").splitlines() for name in ("data.md", "downloads.md")]
    first_cells = [line.split("|")[1] for page in pages for line in page if line.startswith("| `")]
    explained = {name for cell in first_cells for name in re.findall(r"`([A-Z_]+)`", cell)} | OPTIONS
    for script in CORPORA:
        text = script.read_text(encoding="utf-8").split("set -euo pipefail")[1]
        for shared in re.findall(r"scripts/(lib_\w+\.sh)", text):
            text += (ROOT / "scripts" / shared).read_text(encoding="utf-8")
        read = set(re.findall(r"\$\{([A-Z][A-Z_]+):-", text)) - {"BASH_SOURCE"}
        assert read - set(documented(script)) == set(), script.name
        assert set(documented(script)) - explained == set(), script.name


def dry_run(script: Path, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return run(script.name, "/no/where", "--dry-run", *words, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("script", CORPORA, ids=lambda path: path.name)
def test_a_documented_setting_changes_what_is_done_or_is_refused(script: Path) -> None:
    plain = dry_run(script)
    ignored = []
    for name in documented(script):
        value = OTHER.get(name, "5")
        if name in ("JOINED", "JOINT_CODES"):
            # Whichever of the two is not the default here.
            value = "1" if ("--joined-dictionary" if name == "JOINED" else "codes.partial") not in plain.stdout else "0"
        if name == "VALID" and "normalised/newstest2013" in plain.stdout:
            value = "every-100th"
        if name == "APOSTROPHE" and "/straight/" not in plain.stdout:
            value = "straight"
        changed = dry_run(script, **{name: value})
        told = changed.returncode == 2 and changed.stderr.startswith("error: ") and changed.stderr.count("\n") == 1
        if name != "DRY_RUN" and not told and (changed.returncode or changed.stdout == plain.stdout):
            ignored.append(name)
    assert ignored == []


@pytest.mark.parametrize("script", ["prepare_iwslt14_de_en.sh", "prepare_multi30k.sh"])
def test_a_setting_is_an_option_or_a_variable_of_the_environment(script: str) -> None:
    path = ROOT / "scripts" / script
    option = dry_run(path, "--size", "77", "--vocabulary-threshold=5", "--source", "en", "--target", "de")
    variable = dry_run(path, SIZE="77", VOCABULARY_THRESHOLD="5", SOURCE="en", TARGET="de")
    assert (option.returncode, option.stderr) == (variable.returncode, variable.stderr) == (0, "")
    assert option.stdout == variable.stdout
    for word in ("--merges 77", "--threshold 5", "--source-lang en --target-lang de"):
        assert word in option.stdout


def test_what_the_name_of_a_corpus_means_cannot_be_set_otherwise(tmp_path: Path) -> None:
    place = tmp_path / "made"
    for script, name, value in (
        ("prepare_wmt14_en_de.sh", "NORMALISE", "all"),
        ("prepare_wmt14_en_fr.sh", "RATIO", "7"),
        ("prepare_wmt18_zh_en.sh", "LOWER_CASE", "1"),
        ("prepare_iwslt14_de_en.sh", "MAX_LENGTH", "9"),
    ):
        said = f"{name}={value} is set, but this corpus has its own; for other settings use scripts/prepare.sh"
        assert refusal(script, place, **{name: value}) == said
        option = f"--{name.lower().replace('_', '-')}"
        assert refusal(script, place, option, value) == f"unknown option '{option}'; --help lists the settings"
    assert refusal("prepare_enwik8.sh", place, "--workers") == "--workers needs a value"
    assert not place.exists()


def check(directory: Path, *words: str) -> int:
    return main(["prepare", str(directory), *words, "--check"])


def test_a_directory_made_with_other_settings_is_refused_before_anything_is_downloaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    meant = Settings(size=3, workers=1)
    Workspace(tmp_path).remember([*meant.remembered(None).items(), ("train.de", "1"), ("CODES", "2")])
    assert check(tmp_path, "--size", "3") == 0
    assert check(tmp_path, "--size", "3", "--valid", "every-23rd") == 2
    assert check(tmp_path, "--size", "3", "--types", "5") == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "was made with other settings (valid=every-23; was valid=)" in first
    assert "other settings (TYPES=5)" in second


def test_the_settings_of_earlier_releases_are_these_settings(tmp_path: Path) -> None:
    """Words of a directory that the release before typed settings has made."""
    (tmp_path / SETTINGS).write_text(
        "SOURCE=en\nTARGET=de\nNORMALISE=train\nTOKENISER=moses\nAGGRESSIVE=1\nESCAPE=0\nLOWER_CASE=0\nCLEAN=subwords\n"
        "MIN_LENGTH=1\nMAX_LENGTH=30\nRATIO=2.5\nSUBWORDS=bpe\nSIZE=40\nVOCABULARY_THRESHOLD=3\nJOINED=0\n"
        "valid=every-10\nmoses=Python\nJOINT_CODES=0\nTYPES=9\nGIVEN_TRUECASED=1\ntrain.de=b7\n"
    )
    words = "--source en --target de --normalise train --aggressive 1 --escape 0 --clean subwords --max-length 30"
    words += " --ratio 2.5 --size 40 --vocabulary-threshold 3 --joined 0 --valid every-10th --joint-codes 0 --types 9"
    assert check(tmp_path, *words.split(), "--given-truecased") == 0


HANDED_ON = {"train.sh": "run", "evaluate.sh": "evaluate", "compare.sh": "compare"}


def test_every_setting_in_the_head_of_a_training_script_is_an_option_of_its_command() -> None:
    recorded = (ROOT / "tests" / "recorded" / "interface" / "commands.tsv").read_text(encoding="utf-8").splitlines()
    for script, command in HANDED_ON.items():
        options = {line.split("\t")[1].split()[0] for line in recorded if line.startswith(f"{command}\t")}
        head = (ROOT / "scripts" / script).read_text(encoding="utf-8").split("set -euo pipefail")[0]
        wanted = {f"--{name.lower().replace('_', '-')}" for name in re.findall(r"\b([A-Z][A-Z_]+)=", head)}
        assert wanted - {"--setting", "--key"} <= options, script
