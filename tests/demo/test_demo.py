"""The demo: flags, configurations, summary, and a complete run at toy size."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import yaml
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf

from fairseq_plugins.core.method import METHODS as REGISTERED
from fairseq_plugins.demo import samples
from fairseq_plugins.demo.__main__ import METHODS, _checked, _prepare, configuration, main, parser
from fairseq_plugins.demo.corpus import write_corpus
from fairseq_plugins.errors import UserError
from fairseq_plugins.pipeline.fairseq_log import TrainingLog
from fairseq_plugins.pipeline.results import EVALUATION, HYPOTHESES, Evaluation, Metric, Run

FLAGS = "--bpe-operations 20 --average 2 --device cpu"
CHANGES = "dataset.max_tokens=200 optimization.max_update=12 checkpoint.save_interval_updates=4 generation.beam=1"
TINY = [*FLAGS.split(), *CHANGES.split(), "dataset.validate_interval_updates=4"]
TINY += [
    f"model.{side}_{size}"
    for side in ("encoder", "decoder")
    for size in ("layers=2", "embed_dim=16", "ffn_embed_dim=16", "attention_heads=2")
]


def test_which_methods_are_trained() -> None:
    methods, cpu = _checked(parser().read(["--device", "cpu"]))
    assert (methods, cpu) == (METHODS, True)
    assert len(METHODS) == 6
    methods, _ = _checked(parser().read(["--methods", "rezero,all"]))
    assert methods[0] == "rezero"
    assert sorted(methods) == sorted(REGISTERED)


MISTAKES = {
    "--methods adnim": "unknown method 'adnim' (did you mean 'admin'?); legal values: ",
    "--methods ,": "--methods is empty",
    "--jobs 0": "--jobs 0: not a whole number of at least 1",
    "--max-update 3": "unknown option '--max-update' (did you mean",
    "max_update": "unexpected: 'max_update' is not KEY=VALUE",
    "--target-lang fr": "the embedded corpus is de-en or en-de, not de-fr; give your own files with --data",
    "--data nowhere": "nowhere: no such directory of text files",
}


def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for flags, line in MISTAKES.items():
        assert main([*flags.split(), "--out", str(tmp_path / "out")]) == 2, flags
        (error,) = capsys.readouterr().err.splitlines()
        assert error.startswith(f"error: {line}")
        assert not (tmp_path / "out").exists()


def test_several_mistakes_are_reported_together() -> None:
    with pytest.raises(UserError) as caught:
        _checked(parser().read(["lr", "--methods", "adnim", "--data", "nowhere"]))
    assert len(caught.value.problems) == 3


def test_every_method_has_a_legal_configuration() -> None:
    """Every key is one of fairseq's; the recipe is the same for all methods."""
    recipes = []
    for method in REGISTERED:
        values: dict[str, Any] = yaml.safe_load(configuration(method, parser().read([]), cpu=True))
        model = values.pop("model")
        OmegaConf.merge(OmegaConf.structured(FairseqConfig), values)
        assert model.pop("_name") == f"{method}_transformer"
        recipes.append((model, values))
    assert all(recipe == recipes[0] for recipe in recipes)
    model, values = recipes[0]
    assert (model["encoder_layers"], model["decoder_layers"], values["common"]["cpu"]) == (12, 12, True)


def test_ones_own_text_is_found_by_its_usual_names(tmp_path: Path) -> None:
    for name, count in (("train", 40), ("dev", 3), ("test", 2)):
        for language in ("de", "en"):
            (tmp_path / f"{name}.{language}").write_text("".join(f"{language} a b {n} .\n" for n in range(count)))
    data = _prepare(parser().read(["--data", str(tmp_path), "--bpe-operations", "20"]), tmp_path / "out")
    assert (data / "raw" / "valid.de").read_text() == (tmp_path / "dev.de").read_text()
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


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The flags of a finished demo; it ran once for this module."""
    place = tmp_path_factory.mktemp("demo with a space")
    write_corpus(place / "text", 120, 100, 100)
    arguments = ["--out", str(place / "out"), "--methods", "post_ln,admin", "--data", str(place / "text"), *TINY]
    assert main(arguments) == 0
    return arguments


@pytest.mark.slow
def test_the_report_has_the_score_of_the_translations(arguments: list[str]) -> None:
    out = Path(arguments[1])
    references = (out / "data" / "raw" / "test.en").read_text(encoding="utf-8").splitlines()
    with (out / "report" / "report.csv").open(encoding="utf-8", newline="") as stream:
        reported = {row["method"]: float(row["test sacreBLEU"]) for row in csv.DictReader(stream)}
    for method in ("post_ln", "admin"):
        place = out / method / "seed1" / "evaluation" / "test"
        hypotheses = (place / "hypotheses.txt").read_text(encoding="utf-8").splitlines()
        assert reported[method] == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score)


@pytest.mark.slow
def test_running_it_again_makes_nothing_again(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out = Path(arguments[1])
    skipped = {"report", "commands.log", "configs", ".lock"}
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
    more = [word.replace("max_update=12", "max_update=40") for word in arguments]
    assert main(more) == 2
    error = capfd.readouterr().err
    assert "was made with other settings" in error
    assert "optimization.max_update=40" in error
