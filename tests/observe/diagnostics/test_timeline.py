"""Analyses over a training: the table and the heat maps of a recorder's file, what is said below, mistakes."""

import math
from pathlib import Path

import pytest
import torch

from fairseq_plugins.tools import plots
from fairseq_plugins.tools.observe.diagnostics import timeline
from fairseq_plugins.tools.observe.diagnostics.command import main
from fairseq_plugins.tools.observe.recorder import Entry
from tests import toy
from tests.observe.diagnostics.measured import rows
from tests.observe.recording import FEW, ON


def write(path: Path, *entries: Entry) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(entry.to_json() + "\n" for entry in entries))
    return path


def entry(update: int, alpha: float = 0.5) -> Entry:
    values = {
        "decoder.layers.2.ffn/branch_scale": alpha,
        "encoder.layers.0.ffn/branch_scale": 0.25,
        "decoder.embed_tokens/gradient_norm": 2.0,
        "encoder.history.1.0/history_weight": 0.75,
        "loss": 3.0,
    }
    return Entry(update, update != 20, values)


def test_the_table_has_every_number_from_the_bottom_up(no_plots: None, tmp_path: Path) -> None:
    write(tmp_path / "run" / "recorder.jsonl", entry(10), entry(20, math.nan))
    assert main(["timeline", str(tmp_path / "run"), "--output", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "timeline.csv").read_text().splitlines() == [
        "run,update,applied,place,kind,value",
        "run,10,yes,,loss,3",
        "run,10,yes,encoder.layers.0.ffn,branch_scale,0.25",
        "run,10,yes,encoder.history.1.0,history_weight,0.75",
        "run,10,yes,decoder.embed_tokens,gradient_norm,2",
        "run,10,yes,decoder.layers.2.ffn,branch_scale,0.5",
        "run,20,no,,loss,3",
        "run,20,no,encoder.layers.0.ffn,branch_scale,0.25",
        "run,20,no,encoder.history.1.0,history_weight,0.75",
        "run,20,no,decoder.embed_tokens,gradient_norm,2",
        "run,20,no,decoder.layers.2.ffn,branch_scale,nan",
    ]


def test_alpha_is_the_checkpoints(toy_data: Path, no_plots: None, tmp_path: Path) -> None:
    """An entry of the recorder has the weights that its update began with."""
    run = tmp_path / "a rezero"
    flags = (*ON, *FEW, "3", "--save-interval-updates", "1", "--rezero-alpha", "0.5")
    toy.train_toy(toy_data, run / "checkpoints", *flags, arch="rezero_transformer")
    assert main(["timeline", str(run), "--output", str(tmp_path / "out")]) == 0
    gates = [row for row in rows(tmp_path / "out" / "timeline.csv") if row["kind"] == "branch_scale"]
    assert len(gates) == 3 * 10
    assert {row["value"] for row in gates if row["update"] == "1"} == {"0.5"}
    for update in (2, 3):
        (path,) = (run / "checkpoints").glob(f"checkpoint_*_{update - 1}.pt")
        weights = torch.load(path, weights_only=True)["model"]
        for row in gates:
            if row["update"] == str(update):
                alpha = weights[f"{row['place']}_residual.alpha"]
                assert float(row["value"]) == pytest.approx(float(alpha), rel=1e-7)
    assert {row["run"] for row in gates} == {"a rezero"}


def test_several_runs_and_dead_gates(no_plots: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "runs" / "b" / "recorder.jsonl", entry(10), entry(20, alpha=0.001))
    write(tmp_path / "runs" / "c" / "checkpoints" / "recorder.jsonl", entry(10))
    other = write(tmp_path / "other.jsonl", entry(10))
    assert main(["timeline", str(tmp_path / "runs"), str(other), "--output", str(tmp_path / "out")]) == 0
    labels = {row["run"] for row in rows(tmp_path / "out" / "timeline.csv")}
    assert {Path(label).name for label in labels} == {"b", "c", "other.jsonl"}
    said = capsys.readouterr().out
    assert "1 of 2 gates dead at update 20 (branch weighted by less than 0.01): decoder.layers.2.ffn" in said


def test_heat_maps_show_the_values_of_the_entries() -> None:
    course = [entry(update, alpha) for update, alpha in ((10, -0.5), (20, 0.0), (40, math.inf))]
    encoder, _, decoder, lines = timeline._place_figure({"r": course}, "branch_scale").panels
    assert isinstance(decoder, plots.HeatMap)
    assert isinstance(lines, plots.Lines)
    assert (decoder.columns, decoder.row_names, decoder.values) == ([10, 20, 40], ["layers.2.ffn"], [[0.5, 0.0, None]])
    assert encoder.limits == decoder.limits == (0.0, 0.5)
    assert [(line.label, line.points) for line in lines.lines] == [("layers.2.ffn", [(10, -0.5), (20, 0.0)])]
    norms = [
        Entry(n, True, {f"encoder.layers.{i}.ffn/gradient_norm": 10.0**-i for i in range(3)} | {"loss": 1.0})
        for n in (1, 2)
    ]
    (panel,) = timeline._place_figure({"r": norms}, "gradient_norm").panels
    assert isinstance(panel, plots.HeatMap)
    assert (panel.values, panel.log, panel.limits) == ([[1.0] * 2, [0.1] * 2, [0.01] * 2], True, (0.01, 1.0))
    history, _ = timeline._history_figure({"r": course}).panels
    assert isinstance(history, plots.HeatMap)
    assert (history.values, history.row_names) == ([[0.75] * 3, [None] * 3], ["embedding", "layers.0"])
