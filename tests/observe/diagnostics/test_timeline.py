"""Analyses over a training: tables from a recorder's file and from checkpoints, what is said below them, mistakes."""

from __future__ import annotations

import csv
import errno
import math
import shutil
from pathlib import Path

import pytest
import torch

from fairseq_plugins import plots
from fairseq_plugins.observe.diagnostics import results, timeline, trainings
from fairseq_plugins.observe.diagnostics.batches import zipf_batch
from fairseq_plugins.observe.diagnostics.command import main
from fairseq_plugins.observe.diagnostics.gradients import loss_of
from fairseq_plugins.observe.diagnostics.models import of_checkpoint
from fairseq_plugins.observe.diagnostics.results import Settings
from fairseq_plugins.observe.recorder import Entry, read
from tests import toy

EVERY_UPDATE = (
    *("--criterion", "label_smoothed_cross_entropy_with_diagnostics", "--diagnostics-interval", "1"),
    *("--no-epoch-checkpoints", "--save-interval-updates", "1", "--max-update", "3"),
)


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "load_pyplot", lambda: None)


@pytest.fixture(scope="module")
def rezero(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three updates in the layout of scripts/train.sh: every update is recorded, and saved."""
    run = tmp_path_factory.mktemp("runs") / "a rezero"
    toy.train_toy(toy_data, run / "checkpoints", *EVERY_UPDATE, "--rezero-alpha", "0.5", arch="rezero_transformer")
    return run


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def write(path: Path, *entries: Entry) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(entry.to_json() + "\n" for entry in entries))
    return path


def entry(update: int, alpha: float = 0.5, **more: float) -> Entry:
    values = {
        "loss": 3.0,
        "decoder.embed_tokens/gradient_norm": 2.0,
        "decoder.layers.10.ffn/branch_rms": 1.5,
        "decoder.layers.10.ffn/stream_rms": 6.0,
        "decoder.layers.2.ffn/branch_scale": alpha,
        "encoder.layers.0.ffn/branch_scale": 0.25,
        "encoder.history.1.0/history_weight": 0.75,
        "encoder.layers.0.ffn/novelty": 7.0,
        **{name.replace("__", "/").replace("_of_", "."): value for name, value in more.items()},
    }
    return Entry(update, update != 20, values)


def test_tables_of_entries(no_plots: None, tmp_path: Path) -> None:
    write(tmp_path / "run" / "recorder.jsonl", entry(10), entry(20, loss_scale=64.0))
    assert main(["timeline", str(tmp_path / "run"), "--output", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "timeline.csv").read_text() == (
        "run,update,applied,loss,loss_scale\nrun,10,yes,3,\nrun,20,no,3,64\n"
    )
    places = (tmp_path / "out" / "timeline-places.csv").read_text().splitlines()
    assert places[:6] == [
        "run,update,place,gradient_norm,branch_rms,stream_rms,branch_by_stream,branch_scale,novelty",
        "run,10,encoder.layers.0.ffn,,,,,0.25,7",
        "run,10,decoder.embed_tokens,2,,,,,",
        "run,10,decoder.layers.2.ffn,,,,,0.5,",
        "run,10,decoder.layers.10.ffn,,1.5,6,0.25,,",
        "run,20,encoder.layers.0.ffn,,,,,0.25,7",
    ]
    assert (tmp_path / "out" / "timeline-history.csv").read_text() == (
        "run,update,stack,layer,of,weight\nrun,10,encoder,1,0,0.75\nrun,20,encoder,1,0,0.75\n"
    )


def alphas(directory: Path) -> dict[int, dict[str, float]]:
    """Parameter to value by the number of updates, as the checkpoints have it."""
    found = {}
    for path in directory.glob("checkpoint_*_?.pt"):
        state = torch.load(path, weights_only=True)["model"]
        found[int(path.stem[-1])] = {name: float(value) for name, value in state.items() if name.endswith("alpha")}
    return found


def alpha_of(state: dict[str, float], place: str) -> float:
    """ReZero keeps one alpha a layer, under the name of each of its residual connections."""
    return state[f"{place}_residual.alpha"]


def test_alpha_is_the_checkpoints(rezero: Path, no_plots: None, tmp_path: Path) -> None:
    saved = alphas(rezero / "checkpoints")
    assert sorted(saved) == [1, 2, 3]
    files = sorted(map(str, (rezero / "checkpoints").glob("checkpoint*.pt")))
    assert main(["timeline", "--checkpoint", *files, "--output", str(tmp_path / "from checkpoints")]) == 0
    assert main(["timeline", str(rezero), "--output", str(tmp_path / "from recorder")]) == 0
    # An entry of the recorder has the weights that its update began with.
    for source, behind in (("from checkpoints", 0), ("from recorder", 1)):
        table = rows(tmp_path / source / "timeline-places.csv")
        gates = [row for row in table if row["branch_scale"]]
        assert {int(row["update"]) for row in gates} == {1, 2, 3}
        assert len({row["place"] for row in gates}) == 10
        for row in gates:
            if int(row["update"]) > behind:
                expected = alpha_of(saved[int(row["update"]) - behind], row["place"])
                assert float(row["branch_scale"]) == pytest.approx(expected, rel=1e-7)
    assert all(saved[3][name] != saved[2][name] != value for name, value in saved[1].items())


def test_a_checkpoint_shows_what_the_recorder_does(rezero: Path, toy_data: Path) -> None:
    path = next((rezero / "checkpoints").glob("checkpoint_*_2.pt"))
    settings = quick_settings()
    subject = of_checkpoint(path)
    found = trainings.measured(subject, 2, settings).values
    expected = read(rezero / "checkpoints" / "recorder.jsonl")[0].values
    assert set(expected) - set(found) == {"learning_rate"}
    assert set(found) <= set(expected)
    model, batch = subject.build(), settings.batch(subject)
    branches = []
    model.encoder.layers[1].ffn_residual.register_forward_hook(lambda *call: branches.append(call[1][0]))
    loss = loss_of(model, batch)
    branches[0].retain_grad()
    loss.backward()
    assert found["loss"] == pytest.approx(float(loss) / math.log(2))
    assert found["encoder.layers.1.ffn/branch_rms"] == pytest.approx(float(branches[0].square().mean().sqrt()))
    assert found["encoder.layers.1.ffn/branch_gradient_norm"] == pytest.approx(float(branches[0].grad.norm()))
    layer = model.decoder.layers[0]
    own = [p.grad.norm() ** 2 for one in (layer.fc1, layer.fc2) for p in one.parameters()]
    assert found["decoder.layers.0.ffn/gradient_norm"] == pytest.approx(float(sum(own)) ** 0.5)


def quick_settings() -> Settings:
    return Settings(lambda subject: zipf_batch(subject.task, 3, 6, 1))


def test_a_batch_in_parts_shows_the_same(rezero: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = of_checkpoint(rezero / "checkpoints" / "checkpoint_last.pt")
    whole = trainings.measured(subject, 3, quick_settings())
    monkeypatch.setattr("fairseq_plugins.observe.diagnostics.gradients.TOKENS_AT_ONCE", 6)
    parts = trainings.measured(subject, 3, quick_settings())
    assert dict(parts.values) == pytest.approx(dict(whole.values), rel=1e-4)


def test_recorder_and_checkpoints_of_several_runs(
    rezero: Path, no_plots: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "runs" / "b" / "recorder.jsonl", entry(10), entry(20, alpha=0.001))
    write(tmp_path / "runs" / "c" / "recorder.jsonl", entry(10))
    saved = [str(rezero / "checkpoints" / "checkpoint_last.pt")]
    out = tmp_path / "out"
    argv = ["timeline", str(tmp_path / "runs"), str(rezero), "--checkpoint", *saved, "--output", str(out)]
    assert main(argv) == 0
    labels = {row["run"] for row in rows(out / "timeline.csv")}
    assert {Path(label).name for label in labels} == {"b", "c", "a rezero, recorder", "a rezero, checkpoints"}
    said = capsys.readouterr().out
    assert "1 of 2 gates dead at update 20 (branch weighted by less than 0.01): decoder.layers.2.ffn" in said
    assert "measured on made-up words; --data DIR uses a corpus" in said


@pytest.mark.slow
def test_figures(tmp_path: Path) -> None:
    path = write(tmp_path / "recorder.jsonl", entry(10), entry(20, alpha=-0.5))
    assert main(["timeline", str(path), "--output", str(tmp_path / "out")]) == 0
    drawn = {"timeline", "timeline-branch-by-stream", "timeline-branch-scale", "timeline-history"}
    for ending in ("png", "pdf"):
        assert {path.stem for path in (tmp_path / "out").glob(f"*.{ending}")} == drawn


def test_a_heat_map_shows_the_values_of_the_entries() -> None:
    course = [timeline.moment(entry(update, alpha)) for update, alpha in ((10, -0.5), (20, 0.0), (40, math.inf))]
    figure = timeline._weight_figure({"r": course}, timeline.WEIGHTS[0])
    encoder, _, decoder, lines = figure.panels
    assert isinstance(decoder, plots.HeatMap)
    assert isinstance(lines, plots.Lines)
    assert (decoder.columns, decoder.row_names, decoder.values) == ([10, 20, 40], ["layers.2.ffn"], [[0.5, 0.0, None]])
    assert encoder.limits == decoder.limits == (0.0, 0.5)
    assert [(line.label, line.points) for line in lines.lines] == [("layers.2.all", [(10, -0.5), (20, 0.0)])]


def test_the_first_number_that_is_none(no_plots: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = {"encoder_of_layers_of_4_of_ffn__branch_rms": math.nan, "encoder_of_layers_of_3_of_ffn__branch_rms": math.inf}
    path = write(tmp_path / "some name.jsonl", entry(5), entry(6, **bad), entry(7, **bad))
    assert main(["timeline", str(path), "--output", str(tmp_path / "out")]) == 0
    line = "some name.jsonl: update 6 is the first that is not finite: branch_rms of encoder.layers.3.ffn and 1 more"
    assert line in capsys.readouterr().out.splitlines()
    values = [row["branch_rms"] for row in rows(tmp_path / "out" / "timeline-places.csv") if row["update"] == "7"]
    assert [value for value in values if value] == ["inf", "nan", "1.5"]


def test_places_go_upwards() -> None:
    places = [
        "encoder.layers.10.ffn",
        "decoder.layers.0.self_attn",
        "encoder.layers.2.ffn",
        "encoder.layer_norm",
        "encoder.layers.2.self_attn",
        "encoder.embed_tokens",
        "decoder.layers.0.ffn",
        "decoder.layers.0.encoder_attn",
    ]
    found = timeline.moment(Entry(1, True, {f"{place}/gradient_norm": 1.0 for place in places}))
    assert list(found.places) == [
        "encoder.embed_tokens",
        "encoder.layers.2.self_attn",
        "encoder.layers.2.ffn",
        "encoder.layers.10.ffn",
        "encoder.layer_norm",
        "decoder.layers.0.self_attn",
        "decoder.layers.0.encoder_attn",
        "decoder.layers.0.ffn",
    ]


MISTAKES: tuple[tuple[list[str], str], ...] = (
    ([], "no training given: name a recorder.jsonl, a directory with one, or --checkpoint FILE"),
    (["recordr.jsonl"], "recordr.jsonl: no such file or directory (did you mean 'recorder.jsonl'?)"),
    (["admin"], "admin: no such file or directory"),
    (["empty.jsonl"], "empty.jsonl: empty: nothing is recorded yet"),
    (["garbage.jsonl"], "garbage.jsonl: no whole entry of a recorder in it"),
    (["nothing"], "nothing: no recorder.jsonl in it or below it, and no checkpoint*.pt in it or in checkpoints/"),
    (["some.pt"], "some.pt: this is a checkpoint; use --checkpoint FILE ... for those of one training"),
    (["--checkpoint", "some.pt"], "some.pt"),
    (["recorder.jsonl", "--dropout", "0"], "--dropout: a trained model has its own settings"),
    (["recorder.jsonl", "--encoder-layers", "3"], "--encoder-layers: a trained model has its own"),
)


def test_mistakes_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nothing").mkdir()
    (tmp_path / "empty.jsonl").touch()
    for name in ("garbage.jsonl", "some.pt"):
        (tmp_path / name).write_bytes(b"\xff\x00 nothing\n{}\n")
    write(tmp_path / "recorder.jsonl", entry(1))
    for argv, message in MISTAKES:
        with subtests.test(" ".join(argv)):
            assert main(["timeline", *argv, "--output", "out"]) == 2
            (complaint,) = capsys.readouterr().err.splitlines()
            assert complaint.startswith("error: ")
            assert message in complaint
            assert not [*(tmp_path / "out").glob("*")]


def test_a_checkpoint_that_does_not_say_its_updates(
    rezero: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = torch.load(rezero / "checkpoints" / "checkpoint_last.pt", weights_only=True)
    torch.save({**state, "optimizer_history": []}, tmp_path / "bare.pt")
    assert main(["timeline", "--checkpoint", str(tmp_path / "bare.pt"), "--output", str(tmp_path / "out")]) == 2
    assert "bare.pt: the checkpoint does not say how many updates it has seen" in capsys.readouterr().err


def test_copies_of_a_checkpoint_count_once(rezero: Path, no_plots: None, tmp_path: Path) -> None:
    for name in ("checkpoint1.pt", "checkpoint_best.pt", "checkpoint_last.pt"):
        (tmp_path / "run").mkdir(exist_ok=True)
        shutil.copy(rezero / "checkpoints" / "checkpoint_last.pt", tmp_path / "run" / name)
    assert main(["timeline", str(tmp_path / "run"), "--output", str(tmp_path / "out")]) == 0
    assert [row["update"] for row in rows(tmp_path / "out" / "timeline.csv")] == ["3"]


def test_no_input_is_overwritten(no_plots: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "timeline-places.json", entry(1))
    before = path.read_bytes()
    assert main(["timeline", str(path), "--output", str(tmp_path)]) == 2
    line = f"error: --output {tmp_path}: timeline-places.json would overwrite an input; give another directory"
    assert capsys.readouterr().err.splitlines()[-1] == line
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_one_line(
    no_plots: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(results, "write_whole", full)
    path = write(tmp_path / "run" / "recorder.jsonl", entry(1))
    assert main(["timeline", str(path), "--output", str(tmp_path / "out")]) == 2
    line = f"error: --output {tmp_path / 'out'}: cannot be written: no space left on device"
    assert capsys.readouterr().err.splitlines()[-1] == line
