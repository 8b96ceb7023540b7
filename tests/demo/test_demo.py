"""The demo: flags, configurations, summary, and a complete run at toy size."""

from typing import Any

import pytest
import sacrebleu
import yaml
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf

from fairseq_plugins.core.method import METHODS as REGISTERED
from fairseq_plugins.tools.demo import command
from fairseq_plugins.tools.demo.command import METHODS, checked_methods, configuration, main, parser
from tests.scripts.running import report_of

CHANGES = "dataset.max_tokens=200 optimization.max_update=12 checkpoint.save_interval_updates=3 generation.beam=1"
SIZES = ("layers=2", "embed_dim=16", "ffn_embed_dim=16", "attention_heads=2")
TINY = [*CHANGES.split(), "dataset.validate_interval_updates=3"]
TINY += [f"model.{side}_{size}" for side in ("encoder", "decoder") for size in SIZES]


def test_which_methods_are_trained() -> None:
    assert checked_methods(parser().read([])) == list(METHODS)
    methods = checked_methods(parser().read(["--methods", "rezero,all"]))
    assert methods[0] == "rezero"
    assert sorted(methods) == sorted(REGISTERED)


def test_every_method_has_a_legal_configuration() -> None:
    """Every key is one of fairseq's; the recipe is the same for all methods."""
    recipes = []
    for method in REGISTERED:
        values: dict[str, Any] = yaml.safe_load(configuration(method))
        model = values.pop("model")
        assert model.pop("_name") == f"{method}_transformer"
        recipes.append((model, values))
    assert all(recipe == recipes[0] for recipe in recipes)
    model, values = recipes[0]
    OmegaConf.merge(OmegaConf.structured(FairseqConfig), values)
    assert (model["encoder_layers"], model["decoder_layers"]) == (12, 12)


@pytest.mark.slow
def test_the_report_has_the_score_of_the_translations_and_nothing_is_made_twice(tmp_path, monkeypatch, capfd):
    out = tmp_path / "demo with a space" / "out"
    for name, value in (("SENTENCES", 2000), ("MERGES", 20)):
        monkeypatch.setattr(command, name, value)
    arguments = ["--out", str(out), "--methods", "post_ln,admin", *TINY]
    assert main(arguments) == 0
    references = (out / "data" / "raw" / "test.en").read_text(encoding="utf-8").splitlines()
    reported = {row["method"]: float(row["test sacreBLEU"]) for row in report_of(out)}
    for method in ("post_ln", "admin"):
        place = out / method / "seed1" / "evaluation" / "test"
        hypotheses = (place / "hypotheses.txt").read_text(encoding="utf-8").splitlines()
        assert reported[method] == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score)
    skipped = {"report", "configs", ".lock"}
    kept = {
        path: path.stat().st_mtime_ns
        for path in out.rglob("*")
        if path.is_file() and skipped.isdisjoint({path.name, path.relative_to(out).parts[0]})
    }
    assert main(arguments) == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert "prepared already" in capfd.readouterr().out
