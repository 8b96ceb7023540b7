"""The commands of README and the pages on training run as written, with a tiny model, and print what the pages say."""

import re
import runpy
import shlex
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
import setuptools
import yaml

import fairseq_plugins
from docs import depth_tables, generate
from fairseq_plugins.core.method import METHODS
from fairseq_plugins.tools.cli.main import main
from fairseq_plugins.tools.demo.command import METHODS as DEMO_METHODS
from fairseq_plugins.tools.pipeline.published import ROWS, WITHOUT_NUMBER
from tests import toy

ROOT = Path(__file__).resolve().parents[2]
RUN = ("README.md", "docs/training.md", "docs/divergence.md")
"""Pages whose ``bash`` blocks are run, in this order."""
README, TRAINING, DIVERGENCE = ((ROOT / page).read_text(encoding="utf-8") for page in RUN)
USER_DIR = str(Path(fairseq_plugins.__file__).parent)
SMALLER: dict[str, list[str]] = {
    "train": [*toy.TINY_MODEL, *"--cpu --max-epoch 5 --num-workers 0 --log-format none".split()],
    "generate": "--cpu --max-len-a 0 --max-len-b 5 --num-workers 0".split(),
}
"""Additions to commands of the README, so that each takes a second."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README + TRAINING + DIVERGENCE, flags=re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[list[str]]:
    """The commands of a shell block as lists of arguments."""
    lines = block.replace("\\\n", " ").replace('"$(python -m fairseq_plugins)"', shlex.quote(USER_DIR)).splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


SHELL = [command for block in blocks("bash") for command in commands(block)]


def test_its_numbers_are_those_of_the_package() -> None:
    numbers = sum(row.printed not in WITHOUT_NUMBER for row in ROWS)
    assert f"lists {len(ROWS)} published results, {numbers} of them scores" in README
    readme, index = "README.md", "docs/README.md"
    pages = ((readme, r"(\d+) published methods"), (readme, r"\*\*(\d+) methods"), (index, r"of all (\d+)"))
    stale = [
        f"{page}: {count}"
        for page, count in pages
        if re.findall(count, (ROOT / page).read_text(encoding="utf-8")) != [str(len(METHODS))]
    ]
    assert not stale, f"write that there are {len(METHODS)} methods, in {stale}"
    assert "trains six methods" in README
    assert len(DEMO_METHODS) == 6


def test_its_measured_numbers_are_those_of_the_results() -> None:
    scores = depth_tables.mean_scores(depth_tables.read(), "18e18d")
    row = " | ".join(scores[name].split()[1] for name in ("post_ln", "pre_ln", "admin", "b2t"))
    assert f"| ours (Tatoeba) | {row} |" in README
    shallow, choosing = depth_tables.mean_scores(depth_tables.read(), "6e6d"), (ROOT / "docs/choosing.md").read_text()
    said = {"Pre-LN": "pre_ln", "Admin": "admin", "Post-LN": "post_ln"}
    assert ", ".join(f"{title} {shallow[name].split()[1]}" for title, name in said.items()) in choosing
    wide, dense = shallow["pre_ln_wide"].split()[1], scores["denseformer"].split()[1]
    assert f"wide Pre-LN at 6-6 {wide}, DenseFormer at 18-18 {dense}" in choosing
    steps = [("h200_step_fp16", "post_ln", 4096), ("h200_step_fp16", "admin", 4096), ("h200_step_18", "post_ln", 3200)]
    for measurement, model, tokens in steps:
        [seconds] = [row["seconds"] for row in generate._results("times", measurement) if row["model"] == model]
        assert f"{round(tokens / float(seconds), -3):,.0f}" in README


def run(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run one command in this process, made smaller."""
    program, *arguments = (word for word in command if word != "--fp16")  # there is no GPU here
    name = program.removeprefix("fairseq-") if program != "fairseq-deep" else arguments[0]
    toy.forget_earlier_trainings()
    if program == "fairseq-deep":
        assert main([*arguments, *SMALLER.get(name, [])]) == 0
        return
    monkeypatch.setattr(sys, "argv", [program, *arguments, *SMALLER.get(name, [])])
    import_module(f"fairseq_cli.{name}").cli_main()


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the README's commands find ``train.de`` and the other files."""
    directory = tmp_path_factory.mktemp("readme")
    toy.write_corpus(directory)
    # docs/training.md begins with data that is there.
    (directory / "data-bin").symlink_to(Path("data", "my", "data-bin"))
    return directory


@pytest.mark.slow
def test_shell_commands_run(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    made: dict[str, Callable[[], bool]] = {
        "fairseq-deep prepare": (workplace / "data-bin/dict.de.txt").exists,
        "fairseq-train": (workplace / "checkpoints/admin/checkpoint_best.pt").exists,
        "fairseq-deep average": (workplace / "averaged.pt").exists,
    }
    for command in SHELL:
        run(command, monkeypatch)
        name = command[0] if command[0] != "fairseq-deep" else " ".join(command[:2])
        assert made.pop(name, lambda: True)(), name
    assert not made
    assert (workplace / "checkpoints/b2t/checkpoint_best.pt").exists()
    assert (workplace / "checkpoints/mixed/checkpoint_best.pt").exists()
    assert (workplace / "checkpoints/guarded/recorder.jsonl").exists()


def test_mistake_is_answered_as_shown(workplace, monkeypatch, capsys):
    monkeypatch.chdir(workplace)
    (shown,) = [block for block in blocks("console") if "adnim" in block]
    command, _, answer = shown.removeprefix("$ ").partition("\n")
    assert main(shlex.split(command)[1:]) == 2
    given = capsys.readouterr().err
    assert given == answer, f"docs/training.md shows an answer of before; write this one there:\n{given}"


def test_yaml_command_names_a_file_that_is_there() -> None:
    ((directory, name),) = re.findall(r"hydra-train --config-dir (\S+) --config-name (\S+)", TRAINING)
    assert (ROOT / directory / f"{name}.yaml").is_file()


def test_every_training_has_a_directory_of_its_own() -> None:
    said = re.findall(r"--save-dir (\S+)", "".join(blocks("bash")))
    assert said
    files = sorted((ROOT / "configs").glob("*/*.yaml"))
    said += [yaml.safe_load(file.read_text(encoding="utf-8"))["checkpoint"]["save_dir"] for file in files]
    assert [directory for directory in said if said.count(directory) > 1] == []


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(" ".join(re.findall(r"^([a-z0-9 -]+):", makefile, flags=re.MULTILINE)).split())
    for page in ("README.md", "CONTRIBUTING.md", "docs/adding_a_method.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        code = " ".join(re.findall(r"`[^`\n]+`|^    .+$", text, flags=re.MULTILINE))
        named = set(re.findall(r"\bmake ([a-z0-9-]+)", code))
        assert named, page
        assert named <= targets, page


def test_a_package_index_shows_no_link_that_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index knows nothing of the other files: links of README lead to the repository, or are plain words."""
    monkeypatch.setattr(setuptools, "setup", lambda **_: None)
    module = runpy.run_path(str(ROOT / "setup.py"))
    shown, relative = module["long_description"], r"\]\((?!https?:|#)"
    assert re.search(relative, README)
    assert not re.search(relative, shown())
    assert "Documentation · Quickstart" in shown()
    monkeypatch.setitem(shown.__globals__, "REPOSITORY", "https://example.org/deep")
    assert "[Documentation](https://example.org/deep/blob/main/docs/README.md)" in shown()
    assert "](https://example.org/deep/raw/main/docs/results/depth.png)" in shown()


def test_pip_lines_ask_for_what_setup_py_requires() -> None:
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    (fairseq,) = re.findall(r"pip install --no-build-isolation (\S+)", README)
    assert f'"{fairseq}"' in setup
    assert fairseq in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
