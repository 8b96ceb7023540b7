"""The demo: flags, configurations, summary, and a complete run at toy size."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sacrebleu
import yaml
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf

from fairseq_plugins.core.method import METHODS as REGISTERED
from fairseq_plugins.demo import samples
from fairseq_plugins.demo.__main__ import METHODS, _checked, _last_lines, _prepare, main, parser
from fairseq_plugins.demo.recipe import configuration
from fairseq_plugins.errors import UserError
from fairseq_plugins.pipeline.fairseq_log import TrainingLog
from fairseq_plugins.pipeline.run import EVALUATION, HYPOTHESES, Evaluation, Metric, Run

TINY = "--encoder-layers 2 --decoder-layers 2 --width 16 --ffn-width 16 --heads 2 --sentences 120 --bpe-operations 20 "
TINY += "--max-update 12 --save-interval 4 --average 2 --max-tokens 200 --device cpu --beam 1"


def test_by_default_six_methods_are_trained() -> None:
    methods, cpu = _checked(parser().read(["--device", "cpu"]))
    assert (methods, cpu) == (METHODS, True)
    assert len(METHODS) == 6


def test_all_means_every_method() -> None:
    methods, _ = _checked(parser().read(["--methods", "rezero,all"]))
    assert methods[0] == "rezero"
    assert sorted(methods) == sorted(REGISTERED)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--methods", "adnim"], "unknown method 'adnim' (did you mean 'admin'?); legal values: "),
        (["--methods", ","], "--methods is empty"),
        (["--width", "65"], "--width 65 is not a multiple of --heads 2"),
        (["--max-update", "0"], "--max-update must be at least 1, not 0"),
        (["--jobs", "0"], "--jobs must be at least 1, not 0"),
        (["--dropout", "1"], "--dropout must be at least 0 and below 1, not 1.0"),
        (["--learning-rate", "0"], "--learning-rate must be above 0, not 0.0"),
        (["--target-lang", "fr"], "the embedded corpus is de-en or en-de, not de-fr; give your own files with --data"),
        (["--train-prefix", "x"], "--train-prefix needs --data"),
        (["--data", ".", "--sentences", "3"], "--sentences is for the embedded corpus; leave it out with --data"),
        (["--data", "nowhere"], "nowhere: no such directory of text files"),
    ],
)
def test_a_mistake_is_one_line(flags: list[str], line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([*flags, "--out", str(tmp_path / "out")]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith(f"error: {line}")
    assert not (tmp_path / "out").exists()


def test_several_mistakes_are_reported_together() -> None:
    with pytest.raises(UserError) as caught:
        _checked(parser().read(["--beam", "0", "--methods", "adnim", "--train-prefix", "x"]))
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("method", sorted(REGISTERED))
def test_every_method_has_a_legal_configuration(method: str) -> None:
    """Every key is one of fairseq's; the model's are those of its dataclass."""
    values: dict[str, Any] = yaml.safe_load(yaml.safe_dump(configuration(method, parser().read([]), cpu=True)))
    model = values.pop("model")
    OmegaConf.merge(OmegaConf.structured(FairseqConfig), values)
    assert model["_name"] == f"{method}_transformer"
    assert model["encoder_layers"] == model["decoder_layers"] == 12
    assert values["optimization"]["lr"] == [parser().read([]).learning_rate]


@pytest.mark.parametrize("valid", ["valid", *(pytest.param(name, marks=pytest.mark.slow) for name in ("val", "dev"))])
def test_ones_own_text_is_found_by_its_usual_names(tmp_path: Path, valid: str) -> None:
    for name, count in (("train", 40), (valid, 3), ("test", 2)):
        for language in ("de", "en"):
            (tmp_path / f"{name}.{language}").write_text("".join(f"{language} a b {n} .\n" for n in range(count)))
    data = _prepare(
        parser().read(["--data", str(tmp_path), *TINY.replace("--sentences 120", "").split()]), tmp_path / "out"
    )
    assert (data / "raw" / "valid.de").read_text() == (tmp_path / f"{valid}.de").read_text()
    assert (data / "raw" / "test.en").read_text() == (tmp_path / "test.en").read_text()
    assert (data / "data-bin" / "test.de-en.en.bin").is_file()


def made_run(directory: Path, bleu: float | None, outcome: str = "") -> Run:
    metrics = {} if bleu is None else {"sacreBLEU": Metric("sacreBLEU", bleu)}
    evaluations = {"test": Evaluation("test", directory / EVALUATION / "test", metrics)}
    finished = {"num_updates": 3, "epochs": 1, **({"outcome": outcome, "reason": "x"} if outcome else {})}
    return Run(directory, {}, finished, TrainingLog(), evaluations, ())


def test_what_was_seen_names_failures_and_the_best_first(tmp_path: Path) -> None:
    runs = {"a": made_run(tmp_path, 3.25), "b": made_run(tmp_path, None, "diverged"), "c": made_run(tmp_path, 61.0)}
    assert samples.seen(runs) == "Seen: a, b failed to train; BLEU: c 61.0, a 3.2."
    assert samples.seen({"b": made_run(tmp_path, None)}) == "Seen: every method trained; BLEU: no translation."


@pytest.mark.parametrize(("count", "numbers"), [(3, [0, 1, 2]), (25, [0, 2, 5, 7, 10, 12, 15, 17, 20, 22])])
def test_samples_are_spread_over_the_test_set(tmp_path: Path, count: int, numbers: list[int]) -> None:
    (tmp_path / "raw").mkdir()
    for language in ("de", "en"):
        (tmp_path / "raw" / f"test.{language}").write_text("".join(f"{language} {n}\n" for n in range(count)))
    translated = made_run(tmp_path / "translated", 1.0)
    place = translated.directory / EVALUATION / "test"
    place.mkdir(parents=True)
    (place / HYPOTHESES).write_text("".join(f"mt {n}\n" for n in range(count)))
    found = samples.blocks(tmp_path, ("de", "en"), {"admin": translated, "post_ln": made_run(tmp_path / "none", None)})
    assert found == [[("source", f"de {n}"), ("reference", f"en {n}"), ("admin", f"mt {n}")] for n in numbers]
    assert samples.as_text(found).startswith("  source       de 0\n  reference    en 0\n  admin        mt 0\n\n")
    assert "| admin | mt 0 |" in samples.as_markdown(found)


def test_the_last_lines_say_what_to_type_next(tmp_path: Path) -> None:
    said = _last_lines(SimpleNamespace(data=None), tmp_path, "Seen: x.")  # type: ignore[arg-type]
    assert said[0] == "Seen: x."
    assert str(tmp_path / "report" / "report.md") in said[1]
    assert "make demo DATA=DIR SRC=de TGT=en" in said[2]
    own = _last_lines(SimpleNamespace(data=tmp_path), tmp_path, "Seen: x.")  # type: ignore[arg-type]
    assert "README.md" in own[2]


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The flags of a finished demo; it ran once for this module."""
    arguments = ["--out", str(tmp_path_factory.mktemp("demo with a space") / "out"), "--methods", "post_ln,admin"]
    arguments += TINY.split()
    assert main(arguments) == 0
    return arguments


@pytest.mark.slow
def test_the_report_has_the_score_of_the_translations(arguments: list[str]) -> None:
    out = Path(arguments[1])
    references = (out / "data" / "raw" / "test.en").read_text(encoding="utf-8").splitlines()
    groups = json.loads((out / "report" / "report.json").read_text(encoding="utf-8"))["groups"]
    reported = {group["method"]: group["scores"][0]["mean"] for group in groups}
    for method in ("post_ln", "admin"):
        place = out / method / "seed1" / "evaluation" / "test"
        hypotheses = (place / "hypotheses.txt").read_text(encoding="utf-8").splitlines()
        assert reported[method] == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score)
    assert (out / "samples.md").read_text(encoding="utf-8").count("| source |") == 10


@pytest.mark.slow
def test_running_it_again_makes_nothing_again(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out = Path(arguments[1])
    skipped = {"report", "commands.log", "samples.md", "configs", ".lock"}
    kept = {
        path: path.stat().st_mtime_ns
        for path in out.rglob("*")
        if path.is_file() and skipped.isdisjoint({path.name, path.relative_to(out).parts[0]})
    }
    assert main(arguments) == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert "prepared already" in capsys.readouterr().out


@pytest.mark.slow
def test_another_budget_for_the_same_directory_is_refused(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    more = list(arguments)
    more[more.index("--max-update") + 1] = "40"
    with pytest.raises(SystemExit) as ended:
        main(more)
    assert ended.value.code == 2
    assert "made of a shorter training (optimization.max_update: 40, was 12)" in capfd.readouterr().err
