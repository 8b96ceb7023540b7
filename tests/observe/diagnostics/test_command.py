"""``fairseq-deep diagnose``: files, numbers in them, and one line for every mistake."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_plugins.core.method import METHODS, Axis
from fairseq_plugins.tools.observe.diagnostics import gradients, papers
from fairseq_plugins.tools.observe.diagnostics.command import OF_MODELS, jobs, main, parse
from fairseq_plugins.tools.observe.diagnostics.models import of_checkpoint
from fairseq_plugins.tools.observe.diagnostics.results import STACKS, AnalysisSettings, write_table
from tests.observe.diagnostics.measured import batch, rows
from tests.observe.diagnostics.measured import subject as small
from tests.representatives import representatives
from tests.toy import train_toy, weights_of

TINY = (
    "--encoder-layers 2 --decoder-layers 1 --encoder-embed-dim 8 --encoder-ffn-embed-dim 16 --decoder-ffn-embed-dim 16 "
    "--encoder-attention-heads 2 --decoder-attention-heads 2 --sentences 2 --length 4 --deepest 3 "
    "--models 1"
).split()


@pytest.fixture(scope="module")
def checkpoints(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Admin after two updates and after six."""
    saved = tmp_path_factory.mktemp("saved")
    files = []
    for updates in (2, 6):
        last = train_toy(toy_data, saved / str(updates), "--max-update", str(updates), arch="admin_transformer")
        files.append(last.rename(saved / f"after_{updates}.pt"))
    return files


def diagnose(output: Path, *argv: str) -> int:
    return main([*argv, "--output", str(output)])


DEPTHS = (("post_ln", 4), ("dsinit_matt", 2), ("post_ln", 1))
SOME = representatives(METHODS, Axis.NORM_POSITION, Axis.LAYER_AGGREGATION)


@pytest.mark.parametrize(
    "methods", [SOME, pytest.param([name for name in METHODS if name not in SOME], marks=pytest.mark.slow)]
)
def test_each_method_is_analysed(methods: list[str], no_plots: None, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for method in methods:
        with subtests.test(method):
            directory = tmp_path / method
            # A solver does not add up branches, so dependency refuses; the other analyses go on.
            refused = {"dependency"} if METHODS[method].solver != "euler" else set()
            assert diagnose(directory, "all", method, *TINY) == (2 if refused else 0)
            written = {path.stem for path in directory.glob("*.csv")} - {"scales-history", "scales-others"}
            names = {analysis.name.replace("output-change", "output-change-random") for analysis in OF_MODELS}
            assert written == names - refused
            for path in directory.glob("*.csv"):
                assert {row["model"] for row in rows(path)} == {method}
                cells = [cell for row in rows(path) for cell in row.values()]
                assert not {"nan", "inf", "-inf"} & {*cells}


def test_numbers_and_plots_of_several_methods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "with blank"
    assert diagnose(directory, "dependency", "post_ln", "rezero", *TINY) == 0
    names = {f"{stem}.{ending}" for stem in ("dependency", "dependency-newest") for ending in ("png", "pdf")}
    assert {path.name for path in directory.iterdir()} == names | {"dependency.csv"}
    assert (directory / "dependency.png").read_bytes().startswith(b"\x89PNG")
    assert (directory / "dependency.pdf").read_bytes().startswith(b"%PDF")
    assert {row["model"] for row in rows(directory / "dependency.csv")} == {"post_ln", "rezero"}
    assert "measuring rezero" in capsys.readouterr().err


def test_a_trained_model_and_a_new_one(checkpoints: list[Path], toy_data: Path, no_plots: None, tmp_path: Path) -> None:
    flags = ["--checkpoint", str(checkpoints[1]), "--data", str(toy_data), *TINY, "--length", "9"]
    assert diagnose(tmp_path, "scales", "post_ln", *flags) == 0
    assert of_checkpoint(checkpoints[1]).updates == 6
    weights = weights_of(checkpoints[1])
    omega = sum(weights[f"encoder.layers.1.ffn_residual.omega_{part}"] for part in ("profiled", "trained"))
    at = ("after_6", "encoder", "1", "ffn")
    ours = [r for r in rows(tmp_path / "scales.csv") if (r["model"], r["stack"], r["layer"], r["site"]) == at]
    assert float(ours[0]["stream"]) == pytest.approx(float(omega.mean()), rel=1e-6)
    assert float(ours[0]["stream_least"]) == pytest.approx(float(omega.min()), rel=1e-6)


def test_updates_between_two_checkpoints(checkpoints: list[Path], toy_data: Path, tmp_path: Path) -> None:
    # Given in the wrong order; the younger one comes first all the same.
    assert diagnose(tmp_path, "updates", "--checkpoint", *map(str, reversed(checkpoints)), "--data", str(toy_data)) == 0
    matrices = rows(tmp_path / "updates.csv")
    assert {row["model"] for row in matrices} == {"after_2 to after_6"}
    old, new = (weights_of(path)["decoder.layers.0.encoder_attn.v_proj.weight"] for path in checkpoints)
    row = next(r for r in matrices if (r["stack"], r["layer"], r["kind"]) == ("decoder", "0", "encoder_attn.v_proj"))
    moved = new - old
    assert float(row["update"]) == pytest.approx(float(moved.norm()), rel=1e-4)
    assert max(float(r["relative_update"]) for r in matrices) == 1.0


def test_checkpoints_that_cannot_be_measured(checkpoints, toy_data, tmp_path, capsys):
    stock = train_toy(toy_data, tmp_path / "stock", "--max-update", "1", arch="transformer")
    larger = shutil.copytree(toy_data, tmp_path / "other")
    for dictionary in larger.glob("dict.*.txt"):
        dictionary.write_text(dictionary.read_text() + "more 1\n")
    last = checkpoints[1]
    for argv, message in (
        (["scales", "--checkpoint", stock], f"{stock}: 'transformer' is not a model of this package"),
        (["scales", "--checkpoint", last, "--data", larger], "target words, the corpus has"),
        (["scales", "--checkpoint", last, "--encoder-layers=3", "--dropout=0"], "--dropout, --encoder-layers: a train"),
    ):
        assert diagnose(tmp_path / "out", *map(str, argv)) == 2
        (complaint,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        assert message in complaint


def test_the_figures_of_every_paper_can_be_made(subtests: pytest.Subtests) -> None:
    for paper, figures in papers.PAPERS.items():
        with subtests.test(paper):
            made = jobs(*parse(["all", "--paper", paper]))
            assert [job.analysis.name for job in made] == [figure.name for figure in figures]
            for job, figure in zip(made, figures, strict=True):
                assert [subject.label for subject in job.subjects] == [model.label for model in figure.models]
                assert job.settings.batch(job.subjects[0]).source.numel() > 0


def test_models_of_different_depths_share_a_figure() -> None:
    models = {f"{method} {depth}": small(method, decoder_layers=depth) for method, depth in DEPTHS}
    subjects = [replace(model, label=label) for label, model in models.items()]
    result = gradients.run_gradient_norm(subjects, AnalysisSettings(lambda _: batch()))
    table = result.tables[""][1:]
    assert {row[0] for row in table} == set(models)
    # The table has the ends of both: outputs by the top decoder layer's, parameters by the largest layer's.
    for row in result.rows:
        at, unit = row[1], -1 if row[1] == "output" else -2
        ours = [cells for cells in table if (cells[0], *cells[3:5]) == (row[0], "layer", at)]
        ends = [[cells[unit] for cells in ours if cells[1] == stack][end] for stack in STACKS for end in (0, -1)]
        assert list(row[2:6]) == pytest.approx(ends)
        assert row[6] == pytest.approx(ends[2] / ends[3])
    assert [row[:2] for row in result.rows] == [(name, at) for name in models for at in ("output", "parameters")]
    bottom, *_ = result.figures[1].panels
    assert [len(line.points) for line in bottom.lines] == [7, 5, 7]


def test_csv_keeps_eight_digits_and_leaves_gaps(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", [("model", "value"), ("a, b", 1 / 3), ("c", None)])
    assert (tmp_path / "t.csv").read_text() == 'model,value\n"a, b",0.33333333\nc,\n'
