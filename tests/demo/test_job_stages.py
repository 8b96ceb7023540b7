"""The job around its commands: finished work is kept, broken work is mended or shown, children end with the job."""

from __future__ import annotations

import io
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from fairseq_plugins.core.method import METHODS as REGISTERED
from fairseq_plugins.demo import job as job_module
from fairseq_plugins.demo.__main__ import METHODS as DEFAULT_METHODS
from fairseq_plugins.demo.__main__ import job_of, main, parser
from fairseq_plugins.demo.children import Children, CommandFailed
from fairseq_plugins.demo.progress import Board, duration, training_status
from fairseq_plugins.demo.stage import claimed, differing, make_once, read_stamp
from fairseq_plugins.demo.training import Recipe, Training, train_command
from fairseq_plugins.errors import UserError
from fairseq_plugins.pipeline.training_log import TrainingLog

RECIPE = Recipe(
    encoder_layers=18,
    decoder_layers=12,
    width=64,
    ffn_width=256,
    heads=4,
    dropout=0.1,
    learning_rate=1e-3,
    warmup_updates=400,
    label_smoothing=0.1,
    clip_norm=0.0,
    max_update=300,
    max_tokens=1000,
    save_interval=100,
    average=3,
    seed=7,
)


def training(directory: Path, method: str = "admin", recipe: Recipe = RECIPE) -> Training:
    return Training(method, recipe, directory / "data-bin", directory / method, data_settings={"text": "abc"})


def test_a_finished_stage_is_not_made_again(tmp_path):
    made = []

    def make(place: Path) -> None:
        made.append(place.name)
        (place / "result").write_text(str(len(made)))

    assert make_once(tmp_path / "stage", {"a": 1}, make)
    assert not make_once(tmp_path / "stage", {"a": 1}, make)
    assert (tmp_path / "stage" / "result").read_text() == "1"
    assert make_once(tmp_path / "stage", {"a": 2}, make)
    assert (tmp_path / "stage" / "result").read_text() == "2"
    assert read_stamp(tmp_path / "stage") == {"a": 2}


def test_a_stage_that_broke_off_is_made_from_the_start(tmp_path):
    def breaks_off(place: Path) -> None:
        (place / "half").write_text("")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_once(tmp_path / "stage", {}, breaks_off)
    assert not (tmp_path / "stage").exists()
    assert make_once(tmp_path / "stage", {}, lambda place: None)
    assert sorted(path.name for path in (tmp_path / "stage").iterdir()) == ["settings.json"]


def test_changed_settings_are_named():
    old = {"seed": 1, "data": {"text": "0123456789abcdef" * 4, "beam": 4}}
    new = {"seed": 2, "data": {"text": "fedcba9876543210" * 4, "beam": 4}}
    assert differing(old, new) == ["seed: 2, was 1", "text: fedcba987654…, was 0123456789ab…"]


def test_two_jobs_do_not_share_a_directory(tmp_path):
    with claimed(tmp_path / "out"):
        with pytest.raises(UserError, match="another job is at work there"), claimed(tmp_path / "out"):
            pass
    with claimed(tmp_path / "out"):
        pass


def test_every_method_gets_the_same_command_but_for_its_architecture(tmp_path):
    def command(method: str) -> list[str]:
        return train_command(method, RECIPE, tmp_path / "data", tmp_path / "save", gpu=False)

    stock, admin = command("transformer"), command("admin")
    place = stock.index("--arch") + 1
    assert (stock[place], admin[place]) == ("transformer", "admin_transformer")
    assert stock[:place] + stock[place + 1 :] == admin[:place] + admin[place + 1 :]
    flags = dict(zip(stock, stock[1:], strict=False))
    assert flags["--encoder-layers"] == "18"
    assert flags["--decoder-layers"] == "12"
    assert flags["--adam-betas"] == "(0.9, 0.98)"
    assert flags["--lr-scheduler"] == "inverse_sqrt"
    assert flags["--keep-interval-updates"] == "3"
    assert "--share-all-embeddings" in stock
    assert "--cpu" in stock
    assert "--cpu" not in train_command("admin", RECIPE, tmp_path, tmp_path, gpu=True)


def test_the_shown_command_can_be_typed_in_the_directory_of_the_job(tmp_path, monkeypatch):
    monkeypatch.setattr(Children, "run", lambda *_, **__: None)
    one = training(tmp_path / "a job")
    assert one.shown_command() == ""
    one.run(Children(threads=1), gpu=False)
    shown = one.shown_command()
    assert shown.startswith("fairseq-deep train data-bin --arch admin_transformer --encoder-layers 18 ")
    assert " --adam-betas '(0.9, 0.98)' " in shown
    assert " --save-dir admin/checkpoints " in shown
    assert str(tmp_path) not in shown


def test_a_training_with_other_settings_is_not_continued(tmp_path, monkeypatch):
    first = training(tmp_path)
    monkeypatch.setattr("fairseq_plugins.demo.training.train_command", lambda *_, **__: [sys.executable, "-c", ""])
    with Children(threads=1) as children:
        first.run(children, gpu=False)
    assert first.finished
    assert first.conflict() is None
    message = training(tmp_path, recipe=Recipe(**{**RECIPE.__dict__, "seed": 8})).conflict()
    assert message is not None
    assert "seed: 8, was 7" in message
    assert str(tmp_path / "admin") in message


def failing(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_crashed_training_is_a_failed_row_and_shows_the_end_of_its_log(tmp_path, monkeypatch):
    crash = failing("print('\\n'.join(f'line {n}' for n in range(9))); raise SystemExit(3)")
    monkeypatch.setattr("fairseq_plugins.demo.training.train_command", lambda *_, **__: crash)
    shown = io.StringIO()
    job = job_of(parser().parse_args(["--out", str(tmp_path), "--device", "cpu"]))
    with Children(threads=1) as children:
        result = job_module._one_method(job, None, training(tmp_path), 8.0, children, Board(shown))  # type: ignore[arg-type]
    assert result.method == "admin"
    assert result.failed == f"training of admin ended with code 3; see {tmp_path / 'admin' / 'train.log'}"
    assert shown.getvalue().splitlines()[1:] == [f"    line {n}" for n in range(4, 9)]
    assert not training(tmp_path).finished


def test_a_loss_that_is_not_finite_is_an_outcome_and_not_a_failure(tmp_path, monkeypatch):
    crash = failing("raise FloatingPointError('gradients are Nan/Inf')")
    monkeypatch.setattr("fairseq_plugins.demo.training.train_command", lambda *_, **__: crash)
    job = job_of(parser().parse_args(["--out", str(tmp_path), "--device", "cpu"]))
    with Children(threads=1) as children:
        result = job_module._one_method(job, None, training(tmp_path), 8.0, children, Board(io.StringIO()))  # type: ignore[arg-type]
    assert result.failed is None
    assert result.diverged is True
    assert result.bleu is None
    assert training(tmp_path).finished


def checkpoint(path: Path, value: float) -> None:
    torch.save({"model": {"w": torch.full((100,), value)}}, path)


def test_a_checkpoint_that_a_kill_left_half_copied_is_replaced_by_the_newest_whole_one(tmp_path, monkeypatch):
    one = training(tmp_path)
    one.checkpoints.mkdir(parents=True)
    for updates in (100, 200):
        checkpoint(one.checkpoints / f"checkpoint_1_{updates}.pt", updates)
    whole = (one.checkpoints / "checkpoint_1_200.pt").read_bytes()
    (one.checkpoints / "checkpoint_last.pt").write_bytes(whole[: len(whole) // 2])
    monkeypatch.setattr("fairseq_plugins.demo.training.train_command", lambda *_, **__: [sys.executable, "-c", ""])
    with Children(threads=1) as children:
        one.run(children, gpu=False)
    assert (one.checkpoints / "checkpoint_last.pt").read_bytes() == whole


def test_the_last_checkpoints_are_averaged_under_whichever_name(tmp_path):
    one = training(tmp_path)
    one.checkpoints.mkdir(parents=True)
    for name in ("checkpoint_1_50.pt", "checkpoint_1_100.pt", "checkpoint_2_200.pt", "checkpoint_last.pt"):
        (one.checkpoints / name).touch()
    # 300 updates fell on the end of an epoch, where fairseq writes checkpoint_last.pt alone.
    names = [path.name for path in one.to_average()]
    assert names == ["checkpoint_1_100.pt", "checkpoint_2_200.pt", "checkpoint_last.pt"]
    (one.checkpoints / "checkpoint_3_300.pt").touch()
    names = [path.name for path in one.to_average()]
    assert names == ["checkpoint_1_100.pt", "checkpoint_2_200.pt", "checkpoint_3_300.pt"]


def test_stopping_ends_running_children_and_refuses_new_ones(tmp_path):
    children = Children(threads=1)
    codes = []

    def run() -> None:
        try:
            children.run(
                "sleep", [sys.executable, "-c", "print(1, flush=True); import time; time.sleep(600)"], tmp_path / "log"
            )
        except CommandFailed as error:
            codes.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    while not (tmp_path / "log").exists() or not (tmp_path / "log").read_text():
        time.sleep(0.02)
    children.stop()
    thread.join(60)
    assert codes == [f"sleep ended with code -15; see {tmp_path / 'log'}"]
    with pytest.raises(CommandFailed):
        children.run("true", [sys.executable, "-c", ""], tmp_path / "log2")


def test_threads_reach_the_child(tmp_path):
    with Children(threads=3) as children:
        children.run("env", failing("import os; print(os.environ['OMP_NUM_THREADS'])"), tmp_path / "log")
    assert (tmp_path / "log").read_text() == "3\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--methods", "admn"], "unknown method 'admn' (did you mean 'admin'?)"),
        (["--methods", ","], "--methods names none"),
        (["--width", "31"], "--width 31 is not a multiple of --heads 2"),
        (["--dropout", "1"], "--dropout must be at least 0 and below 1, not 1.0"),
        (["--learning-rate", "0"], "--learning-rate must be above 0, not 0.0"),
        (["--max-update", "0"], "--max-update must be at least 1, not 0"),
        (["--jobs", "0"], "--jobs must be at least 1, not 0"),
        (["--source-lang", "fr"], "the embedded corpus is de-en or en-de, not fr-en; give your own files with --data"),
        (["--test-prefix", "test2016"], "--test-prefix needs --data"),
        (["--data", "somewhere", "--sentences", "5"], "--sentences is for the embedded corpus"),
    ],
)
def test_bad_flags_end_with_one_line_and_code_2(tmp_path, capsys, flags, message):
    assert main([*flags, "--out", str(tmp_path / "out"), "--device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_all_bad_flags_are_named_together(tmp_path, capsys):
    assert main(["--width", "0", "--beam", "0", "--methods", "nothing", "--out", str(tmp_path / "out")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_all_methods_are_all_of_the_registry(tmp_path):
    def methods(named: str) -> tuple[str, ...]:
        return job_of(parser().parse_args(["--methods", named, "--out", str(tmp_path), "--device", "cpu"])).methods

    assert sorted(methods("all")) == sorted(REGISTERED)
    assert sorted(methods("transformer,all,admin")) == sorted([*REGISTERED, "transformer"])
    assert methods(",".join(DEFAULT_METHODS)) == DEFAULT_METHODS
    assert set(DEFAULT_METHODS) <= set(REGISTERED)


def test_the_embedded_corpus_is_read_like_any_other(tmp_path):
    job = job_of(
        parser().parse_args(["--sentences", "150", "--source-lang", "en", "--target-lang", "de", "--device", "cpu"])
    )
    corpus = job_module._read(job)
    assert corpus.languages == ("en", "de")
    assert {split: len(sides["de"]) for split, sides in corpus.sentences.items()} == {
        "train": 150,
        "valid": 100,
        "test": 100,
    }
    assert not set(corpus.sentences["train"]["de"]) & set(corpus.sentences["test"]["de"])


def test_progress_shows_updates_loss_speed_and_time_left():
    log = TrainingLog(
        train_loss={100: 5.125}, valid_loss={100: 6.0}, tokens_per_second={100: 2500.0}, updates_per_second=2.0
    )
    parts = [part.strip() for part in training_status(log, 300).split("  ") if part]
    assert parts == ["100/300 updates", "train loss 5.12", "valid 6.00 bits/token", "2,500 tokens/s", "ETA 1:40"]
    assert training_status(TrainingLog(), 300) == "starting"
    assert (duration(59.6), duration(3661)) == ("1:00", "1h01")


def test_where_there_is_no_terminal_progress_is_plain_lines():
    stream = io.StringIO()
    board = Board(stream)
    board.set("admin", "100/300 updates")
    board.show()
    board.show()
    board.say("done")
    assert stream.getvalue() == "  admin        100/300 updates\ndone\n"
