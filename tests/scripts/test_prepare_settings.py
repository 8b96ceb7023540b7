"""A setting that the head of a script names does something there, or is refused in one line; it is not overwritten."""

from __future__ import annotations

import re
import subprocess
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from fairseq_plugins.errors import UserError
from fairseq_plugins.pipeline.prepare_settings import Settings, require_only
from fairseq_plugins.pipeline.workspace import Workspace
from tests.scripts.running import ROOT, run

SCRIPTS = sorted(path for path in (ROOT / "scripts").glob("*.sh") if not path.name.startswith("lib"))
PREPARATIONS = [script for script in SCRIPTS if script.name.startswith("prepare")]

# Another value than any default; a name that is not here is a number.
OTHER = {
    "SOURCE": "en",
    "TARGET": "de",
    "NORMALISE": "all",
    "TOKENISER": "none",
    "CLEAN": "none",
    "SUBWORDS": "sentencepiece",
    "AGGRESSIVE": "1",
    "ESCAPE": "0",
    "LOWER_CASE": "1",
    "GIVEN_TRUECASED": "1",
    "VALID": "newstest2013",
    "TEST_SETS": "newstest2012",
    "MOSES": "/no/moses",
    "CODES": "/my/codes",
    "RATIO": "7",
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
# What cannot be seen in the commands: a remark that stays in the settings, and this test's own way of looking.
UNSEEN = {"GIVEN_TRUECASED", "DRY_RUN"}


def head(script: Path) -> str:
    return script.read_text(encoding="utf-8").split("set -euo pipefail")[0]


def documented(script: Path) -> list[str]:
    """The names that the head lists as settings, or that its examples set; of prepare.sh those of its command."""
    calls, _, listed = head(script).partition("# Settings:")
    names = re.findall(r"\b([A-Z][A-Z_]+)=", calls) + re.findall(r"\b([A-Z][A-Z_]+)\b", listed.partition(". ")[0])
    if script.name == "prepare.sh":
        names += [each.name.upper() for each in fields(Settings)]
    return list(dict.fromkeys(name for name in names if name not in ("SETTING", "KEY", "NAME", "PREFIX", "CHANGE")))


def shared(script: Path) -> str:
    """The steps that a script has from other files, but for lib.sh, which all have."""
    names = re.findall(r"scripts/(lib_\w+\.sh)", script.read_text(encoding="utf-8"))
    return "".join((ROOT / "scripts" / name).read_text(encoding="utf-8") for name in names)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_setting_that_a_script_reads_is_documented(script: Path) -> None:
    body = script.read_text(encoding="utf-8").split("set -euo pipefail")[1] + shared(script)
    read = set(re.findall(r"\$\{([A-Z][A-Z_]+):-", body)) - {"BASH_SOURCE"}
    assert {name for name in read if not name.startswith(("SLURM_", "SRUN_"))} - set(documented(script)) == set()


@pytest.mark.parametrize("script", PREPARATIONS, ids=lambda path: path.name)
def test_every_setting_of_a_preparation_is_explained(script: Path) -> None:
    """Those of scripts/prepare.sh by the command's --help, all others in a table of the documentation."""
    tables = [(ROOT / "docs" / name).read_text(encoding="utf-8").splitlines() for name in ("data.md", "downloads.md")]
    first_cells = [line.split("|")[1] for table in tables for line in table if line.startswith("| `")]
    explained = {name for cell in first_cells for name in re.findall(r"`([A-Z_]+)`", cell)}
    assert set(documented(script)) - explained - {each.name.upper() for each in fields(Settings)} == set()


def dry_run(script: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    own = ["train=/my/train", "valid=every-7th", "test=/my/test"] if script.name == "prepare.sh" else []
    return run(script.name, "/no/where", *own, DRY_RUN="1", **settings)


@cache
def plain_run(script: Path) -> subprocess.CompletedProcess[str]:
    return dry_run(script)


def cases() -> list[ParameterSet]:
    """Each setting of each script; the fast tests see a setting in the first of the scripts that have it."""
    seen, found = set[str](), []
    for script in PREPARATIONS:
        for name in documented(script):
            if name not in UNSEEN:
                found.append(pytest.param(script, name, marks=[pytest.mark.slow] if name in seen else []))
                seen.add(name)
    return found


@pytest.mark.parametrize(("script", "name"), cases(), ids=lambda value: getattr(value, "name", value))
def test_a_documented_setting_is_honoured_or_refused(script: Path, name: str) -> None:
    plain = plain_run(script)
    value = OTHER.get(name, "5")
    if name in ("JOINED", "JOINT_CODES"):
        # Whichever of the two is not the default here.
        value = "1" if ("--joined-dictionary" if name == "JOINED" else "codes.partial") not in plain.stdout else "0"
    if name == "VALID" and "normalised/newstest2013" in plain.stdout:
        value = "every-100th"
    if name == "APOSTROPHE" and "/straight/" not in plain.stdout:
        value = "straight"
    changed = dry_run(script, **{name: value})
    assert plain.returncode == 0 or name == "PREP_PYTHON", plain.stderr
    if changed.returncode:
        [line] = changed.stderr.splitlines()
        assert changed.returncode == 2
        assert line.startswith("error: ")
        assert name in line or value in line
    else:
        assert changed.stdout != plain.stdout, f"{name}={value} changes nothing"


OTHERS = [script for script in SCRIPTS if script not in PREPARATIONS and documented(script)]


@pytest.mark.parametrize("script", OTHERS, ids=lambda path: path.name)
def test_no_documented_setting_is_given_a_value_whatever_the_user_gave(script: Path) -> None:
    """Of the scripts that need a training to run: an assignment keeps the value that was given."""
    body = script.read_text(encoding="utf-8").split("set -euo pipefail")[1]
    names = set(documented(script))
    assignments = re.findall(r"^[ \t]*(?:export )?([A-Z_]+)=(.*)", body, re.MULTILINE)
    assert assignments or "from_environment" in body
    overwritten = [(name, value) for name, value in assignments if name in names and name not in value]
    assert overwritten == []


HANDED_ON = {"train.sh": "run", "evaluate.sh": "evaluate", "compare.sh": "compare"}


@pytest.mark.parametrize("script", HANDED_ON)
def test_every_documented_setting_is_an_option_of_the_command(script: str) -> None:
    recorded = (ROOT / "tests" / "recorded" / "interface" / "commands.tsv").read_text(encoding="utf-8").splitlines()
    options = dict.fromkeys(line.split("\t")[1].split()[0] for line in recorded if line.startswith(HANDED_ON[script]))
    wanted = {f"--{name.lower().replace('_', '-')}" for name in documented(ROOT / "scripts" / script)}
    # MOSES is read by what takes the tokens apart, wherever it is called from.
    assert wanted - set(options) - {"--moses"} == set()


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("prepare_wmt14_en_de.sh", "NORMALISE"),
        ("prepare_wmt14_en_de.sh", "CLEAN"),
        ("prepare_wmt14_en_fr.sh", "RATIO"),
        ("prepare_wmt14_en_fr.sh", "TARGET_DICT"),
        ("prepare_wmt18_zh_en.sh", "LOWER_CASE"),
    ],
)
def test_what_the_name_of_a_corpus_means_cannot_be_set_otherwise(script: str, name: str, tmp_path: Path) -> None:
    ended = run(script, tmp_path / "made", DRY_RUN="1", **{name: OTHER[name] if name != "CLEAN" else "mine"})
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(rf"error: {name}=\S+ is set, but .* means {name}=.*\n", ended.stderr)


def test_settings_that_are_part_of_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.__dataclass_fields__:
        monkeypatch.delenv(name.upper(), raising=False)
    meant = Settings(size="3", workers="1")
    monkeypatch.setenv("SIZE", "3")
    require_only("this", meant, tmp_path, None)
    for name, value, meaning in (("CODES", "x", "(none)"), ("RATIO", "3", "1.5")):
        monkeypatch.setenv(name, value)
        with pytest.raises(UserError) as caught:
            require_only("this", meant, tmp_path, None)
        line = f"{name}={value} is set, but this means {name}={meaning}; for other settings use scripts/prepare.sh"
        assert str(caught.value).startswith(line)
        monkeypatch.delenv(name)


def test_a_directory_made_with_other_settings_is_refused_before_anything_is_downloaded(tmp_path: Path) -> None:
    meant = Settings(size="3", workers="1")
    Workspace(tmp_path).remember([*meant.remembered(None).items(), ("train.de", "1"), ("CODES", "2")])
    require_only("this", meant, tmp_path, None)
    with pytest.raises(UserError, match=r"was made with other settings \(valid=every-23; was valid=\)"):
        require_only("this", meant, tmp_path, 23)
    with pytest.raises(UserError, match=r"other settings \(TYPES=5\)"):
        require_only("this", Settings(size="3", workers="1", types="5"), tmp_path, None)
