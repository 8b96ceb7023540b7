"""Decisions of ``fairseq-deep run`` before it starts: batches, precision, and settings that do not fit."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.pipeline.batch_split import Batches, share
from fairseq_plugins.tools.pipeline.configuration import quoted
from fairseq_plugins.tools.pipeline.machine import Machine, chosen
from fairseq_plugins.tools.pipeline.results import RUN_RECORD, read_record
from fairseq_plugins.tools.pipeline.resume import check_unchanged, finished, say_how_it_ended
from fairseq_plugins.tools.pipeline.run import LaunchPlan, Request, begun, make_plan
from tests import toy
from tests.config.published import CONFIGS
from tests.processes import Command
from tests.refusals import line_of, refused
from tests.texts import write

ADMIN = CONFIGS / "multi30k_de_en" / "admin_3e3d.yaml"
CPU = Machine((), True)
BF16_CPU = Machine((), True, fast_bf16=True)
V100 = Machine(("V100",) * 8, False)
H100 = Machine(("H100",) * 8, True)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.binarise(tmp_path_factory.mktemp("corpus"))


def planned(
    data: Path, run: Path, *changes: str, machine: Machine = CPU, config: Path = ADMIN, **asked: Any
) -> LaunchPlan:
    return make_plan(Request(config, data, run, changes, **asked), machine)  # type: ignore[arg-type]


def overrides(plan: LaunchPlan) -> dict[str, str]:
    words = [word for word in plan.command if "=" in word and not word.startswith("OMP")]
    return {key.lstrip("+"): value for key, _, value in (word.partition("=") for word in words)}


# Batches -----------------------------------------------------------------------------------------------------------


@st.composite
def batches(draw: st.DrawFn) -> Batches:
    """Translation with a limit of tokens, of sentences or of both."""
    counts = draw(st.lists(st.integers(1, 64), min_size=1, max_size=3))
    tokens, sentences = draw(st.integers(64, 40000)), draw(st.integers(1, 512))
    limits = draw(st.sampled_from([(tokens, None), (None, sentences), (tokens, sentences)]))
    return Batches(tuple(counts), *limits)


@given(batches(), st.integers(1, 3), st.integers(1, 16))
def test_every_device_works_and_an_update_keeps_its_size(given_: Batches, nodes: int, devices: int) -> None:
    # Only what cannot be made equal is refused: neither whole batches, nor those of the fewest parts.
    parts = min(n for n in range(1, nodes * devices + 1) if all(c * n % (nodes * devices) == 0 for c in given_.counts))
    if parts > 1 and (given_.batch_size or 0) % parts:
        line = refused(share, given_, nodes, None, devices)
        assert "cannot be shared equally" in line
        if "use another --nodes" not in line:
            legal = line.rpartition("legal values of --processes: ")[2].split(", ")
            assert [share(given_, nodes, int(number), 16).processes for number in legal] == list(map(int, legal))
        return
    split = share(given_, nodes, None, devices)
    cut = split.batches
    assert split.processes == devices
    assert [freq * devices * nodes for freq in split.update_freq] == list(cut.counts)
    assert cut.counts == tuple(count * parts for count in given_.counts)
    assert (cut.batch_size or 0) * parts == (given_.batch_size or 0)
    assert 0 <= (given_.max_tokens or 0) - (cut.max_tokens or 0) * parts < parts
    assert bool(split.note) == (parts > 1)


def test_examples_of_sharing() -> None:
    def of(*counts: int, tokens: int | None = 8192, sentences: int | None = None) -> Batches:
        return Batches(counts, tokens, sentences)

    # The recipe of Admin on two machines of 8 GPUs: as many sentences are rounded to a multiple of 2 as before of 8.
    admin = share(of(4), 2, None, 8)
    assert (admin.processes, admin.update_freq, admin.batches.max_tokens, admin.batches.multiple) == (8, (1,), 2048, 2)
    assert admin.note == "batches are cut: max_tokens 8192 -> 2048 on 16 processes, 32,768 tokens per update as before"
    assert refused(share, of(4, sentences=7), 1, None, 6) == (
        "4 batches of 8192 tokens an update cannot be shared equally among 6 processes (batch_size 7 cannot be divided "
        "by 3); legal values of --processes: 1, 2, 4"
    )
    for uncut, obstacle in (
        (of(4, tokens=None), "a batch has no limit of tokens or sentences"),
        (replace(of(4), equal=True), "batches of a language model are not cut"),
    ):
        assert obstacle in refused(share, uncut, 1, None, 8)


def test_batches_that_are_cut(data: Path, tmp_path: Path) -> None:
    """The toy corpus has sentences of up to ten words; validation keeps its batches, and the run its identity."""
    changes = ("common.cpu=false", "dataset.max_tokens=4096", "dataset.batch_size=64")
    plan = planned(data, tmp_path, *changes, machine=V100)
    told, record = overrides(plan), plan.record
    assert (told["dataset.max_tokens"], told["dataset.max_tokens_valid"]) == ("512", "4096")
    assert (told["dataset.batch_size"], told["dataset.batch_size_valid"]) == ("8", "64")
    assert told["dataset.required_batch_size_multiple"] == "1"
    used = {name: record[name] for name in ("processes", "max_tokens", "batch_size", "update_freq")}
    assert used == {"processes": 8, "max_tokens": 512, "batch_size": 8, "update_freq": [1]}
    assert record["tokens_per_update"] == 4096
    whole = planned(data, tmp_path, *changes, machine=V100, processes=1)
    assert (overrides(whole)["dataset.max_tokens"], "dataset.max_tokens_valid" in overrides(whole)) == ("4096", False)
    check_unchanged(whole.record, record, tmp_path)


def test_the_gpus_of_a_configuration_count(data: Path, tmp_path: Path) -> None:
    written_for = ("distributed_training.distributed_world_size=4", "optimization.update_freq=[2,4]")
    plan = planned(data, tmp_path / "run", *written_for, "common.cpu=false", "dataset.length_grid=1.3", machine=V100)
    assert overrides(plan)["dataset.length_grid"] == "1.3"
    assert overrides(plan)["optimization.update_freq"] == "[1,2]"
    assert overrides(plan)["distributed_training.distributed_world_size"] == "8"
    assert plan.record["tokens_per_update"] == 4096 * 4 * 4
    assert plan.command[plan.command.index("--nproc_per_node") + 1] == "8"
    too_many = refused(planned, data, tmp_path, *written_for, machine=Machine(("T4",), False), processes=8)
    assert "--processes 8: this machine has 1 GPUs" in too_many


# Precision ---------------------------------------------------------------------------------------------------------


def test_precision() -> None:
    expected = {
        ("auto", "fp16", H100): "fp16",
        ("auto", "fp32", H100): "fp32",
        ("auto", "bf16", V100): "fp16",
        ("auto", "bf16", H100): "bf16",
        ("auto", "fp16", CPU): "fp32",
        ("auto", "bf16", CPU): "bf16",
        ("bf16", "fp16", H100): "bf16",
        ("fp32", "fp16", V100): "fp32",
        ("auto", "amp", CPU): "fp32",
        ("auto", "fp16", BF16_CPU): "amp",
        ("auto", "amp", BF16_CPU): "amp",
        ("auto", "fp32", BF16_CPU): "fp32",
        ("auto", "bf16", BF16_CPU): "bf16",
        ("fp32", "fp16", BF16_CPU): "fp32",
        ("amp", "fp32", CPU): "amp",
    }
    assert {case: chosen(*case) for case in expected} == expected
    # A training continues on another CPU as it was begun; fp16 was on a GPU.
    begun_in = {("fp32", BF16_CPU): "fp32", ("amp", CPU): "amp", ("amp", BF16_CPU): "amp"}
    begun_in |= {("fp16", BF16_CPU): "amp", ("fp16", CPU): "fp32", ("fp32", V100): "fp16"}
    assert {key: chosen("auto", "fp16", key[1], key[0]) for key in begun_in} == begun_in
    for wanted, machine, message in (
        ("fp16", CPU, "--precision fp16 needs a GPU"),
        ("bf16", V100, "V100 does not support bfloat16; use fp16"),
    ):
        assert message in refused(chosen, wanted, "fp32", machine)


def test_a_file_that_states_fp16_trains_so_where_there_is_a_gpu(data: Path, tmp_path: Path) -> None:
    stated = ("common.fp16=true", "common.fp16_scale_window=256", "common.cpu=false")
    machines = (V100, CPU, BF16_CPU)
    on_gpu, on_cpu, mixed = (planned(data, tmp_path, *stated, machine=each, processes=1) for each in machines)
    assert [plan.record["precision"] for plan in (on_gpu, on_cpu, mixed)] == ["fp16", "fp32", "amp"]
    assert [overrides(plan)["common.fp16"] for plan in (on_gpu, on_cpu, mixed)] == ["true", "false", "false"]
    assert overrides(mixed)["common.amp"] == "true"
    assert "1 process on CPU, fp32, not fp16 as configured" in on_cpu.lines
    for name, record in (("run.json", on_cpu.record), ("finished", {})):
        write(tmp_path / "begun" / name, [json.dumps(record)])
    assert planned(data, tmp_path / "begun", *stated, machine=BF16_CPU, processes=1).record["precision"] == "fp32"
    # Settings of the loss scale alone switch nothing on.
    assert planned(data, tmp_path, *stated[1:], machine=V100, processes=1).record["precision"] == "fp32"
    # fairseq's flag of this name switches fp16 on, its key alone does not.
    frugal = planned(data, tmp_path, "common.memory_efficient_fp16=true", *stated[2:], machine=V100, processes=1)
    assert (overrides(frugal)["common.fp16"], overrides(frugal)["common.memory_efficient_fp16"]) == ("true", "true")


# Settings that do not fit ---------------------------------------------------------------------------------------------


def test_mistakes_in_the_data(data: Path, tmp_path: Path) -> None:
    french = refused(planned, data, tmp_path, "task.source_lang=fr")
    assert "contains de-en, but the configuration translates fr-en" in french
    shutil.copytree(data, tmp_path / "data-bin")
    dictionary = tmp_path / "data-bin" / "dict.en.txt"
    dictionary.write_text(f"{dictionary.read_text()}neu 1\n")
    assert refused(planned, tmp_path, tmp_path / "run").startswith(f"{dictionary}: damaged or changed since it was ")
    sums = tmp_path / "data-bin" / "sha256sums"
    sums.write_text("".join(line for line in sums.read_text().splitlines(keepends=True) if "dict.en" not in line))
    assert line_of(planned, tmp_path, tmp_path / "run") == "--share-all-embeddings requires a joined dictionary"
    binary = tmp_path / "data-bin" / "train.de-en.de.bin"
    binary.write_bytes(bytes(binary.stat().st_size))  # only the size is right
    damaged = f"{binary}: damaged or changed since it was prepared"
    assert refused(planned, tmp_path, tmp_path / "run").startswith(damaged)
    binary.write_bytes(b"")
    assert "train.de-en.de.bin: empty" in refused(planned, tmp_path, tmp_path / "run")
    shutil.copytree(data, tmp_path / "other")
    for name in ("valid.de-en.en.idx", "train.de-en.de.bin", "dict.en.txt"):
        (tmp_path / "other" / name).unlink()
        missing = refused(planned, tmp_path / "other", tmp_path / "run")
        assert f"other: contains no {name}; is it an output of" in missing


@pytest.mark.parametrize(
    ("change", "gpus", "before", "line"),
    [
        ("common.seed=1", 1, None, "CUDA graphs: "),
        ("common.cuda_graphs=true", 1, {}, "CUDA graphs: "),
        ("common.cuda_graphs=false", 1, {"cuda_graphs": True}, ""),
        ("common.seed=1", 1, {}, ""),  # begun by a version without them
        ("common.seed=1", 0, None, ""),
        ("criterion.report_accuracy=true", 1, None, "no CUDA graphs: --report-accuracy"),
        ("common.seed=1", 2, None, "no CUDA graphs: --ddp-backend pytorch_ddp (legacy_ddp works)"),
    ],
)
def test_graphs_where_nothing_forbids_them(change, gpus, before, line, data, tmp_path):
    """The batches are those of every machine, and a run keeps what it began with."""
    if before is not None:
        write(tmp_path / "run.json", [json.dumps({"configuration": {}, **before})])
        write(tmp_path / "finished", ["{}"])
    machine = Machine(("H100",) * gpus, True)
    plan = planned(data, tmp_path, f"common.cpu={str(not gpus).lower()}", change, machine=machine)
    on, told = line == "CUDA graphs: ", overrides(plan)
    assert (plan.record["cuda_graphs"], told.get("common.cuda_graphs") == "true") == (on, on)
    assert told.get("dataset.length_grid") == ("1" if on else None)
    assert [one.startswith(line) for one in plan.lines if "CUDA graphs" in one] == [True] * bool(line)


def test_a_change_that_means_nothing_is_one_line(data: Path, tmp_path: Path) -> None:
    for change, message in (
        ("optimisation.max_update=3", r"unknown key '.*' \(did you mean 'optimization.max_update'"),
        ("model.droput=0.1", r"unknown key 'model.droput' \(did you mean 'model.dropout'\?\)"),
        ("dropout=0.1", r"unknown key 'dropout' \(did you mean 'model.dropout'\?\)"),
        ("model=admin_transformer", r"unknown key 'model' \(did you mean 'model._name'\?\)"),
        ("optimization.max_update=many", r"max_update=many; .*'many' .*"),
        ("model.residual=admn", r"'admn' \(did you mean 'admin'\?\)"),
        ("model._name=admn_transformer", r"unknown model\._name 'admn_transformer' \(did you mean 'admin_transformer'"),
        ("task.data=x", "task.data cannot be set here: it is the second argument, DATA"),
        ("distributed_training.device_id=1", "device_id cannot be set here: use --nodes, --rank, --processes and "),
        ("common.user_dir=mine", "fairseq-deep gives fairseq its own user directory and cannot take 'mine' as well: "),
        ("optimization.lr=0.001", r"optimization.lr is a list, even of one value: optimization.lr=\[0.001\]"),
        ("optimization.update_freq=[0]", r"update_freq: whole numbers of at least 1, such as \[2\], not \[0\]"),
        ("max_update", "'max_update' is not of the form KEY=VALUE"),
    ):
        assert re.search(message, refused(planned, data, tmp_path, change))


def test_mistakes_of_one_s_own_file(data: Path, tmp_path: Path) -> None:
    whole = ADMIN.read_text("utf-8")
    config = tmp_path / "my.yaml"
    for old, new, message in (
        ("task:\n  _name: translation", "task:", "task._name is not set"),
        ("  lr: [", "  lr: 0.001  # ", "optimization.lr is a list, even of one value: optimization.lr=[VALUE]"),
        ("  dropout:", "  droput:", "my.yaml: unknown setting 'droput' (did you mean 'dropout'?)"),
    ):
        assert whole.count(old) == 1
        config.write_text(whole.replace(old, new), "utf-8")
        assert refused(planned, data, tmp_path / "run", config=config).endswith(message)


def test_the_file_of_the_page_for_a_corpus_of_one_s_own(data: Path, tmp_path: Path) -> None:
    page = (CONFIGS.parent / "docs" / "quickstart.md").read_text("utf-8")
    config = tmp_path / "my.yaml"
    config.write_text(page.partition("```yaml\n")[2].partition("```")[0], "utf-8")
    plan = planned(data, tmp_path / "run", "model.dropout=0.2", config=config)
    model = plan.record["configuration"]["model"]
    assert (model["_name"], model["dropout"]) == ("admin_transformer_iwslt_de_en_18", 0.2)
    assert overrides(plan)["task.data"] == f"'{data}'"


@given(st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=12))
def test_any_path_survives_hydra(text: str) -> None:
    parsed = OverridesParser.create().parse_override(f"task.data={quoted(text)}")
    assert parsed.value() == text


# BLEU of validations ------------------------------------------------------------------------------------------------


def test_bleu_of_validations_reads_the_text_of_the_data(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "data" / "data-bin")
    config = tmp_path / "plain.yaml"
    config.write_text(re.sub(r"  (# BLEU|eval_bleu).*\n", "", ADMIN.read_text()))
    (tmp_path / "data" / "text.json").write_text('{"tokeniser": "moses", "subwords": "sentencepiece"}')

    def bleu(*changes: str, config: Path = config) -> dict[str, str]:
        told = overrides(planned(tmp_path / "data", tmp_path / "run", *changes, config=config))
        return {key.removeprefix("task.eval_bleu"): told[key] for key in told if "eval_bleu" in key}

    assert bleu() == {}
    assert bleu("task.eval_bleu=false", config=ADMIN) == {"": "false"}
    languages = '{"source_lang": "de", "target_lang": "en"}'
    by_text = {"_detok": "moses", "_detok_args": f"'{languages}'", "_remove_bpe": "sentencepiece"}
    assert bleu(config=ADMIN) == by_text
    assert bleu("task.eval_bleu=true") == {"": "true", **by_text, "_args": """'{"beam": 1}'"""}
    # Hydra adds a key of a named group that the YAML lacks only with `+`.
    command = planned(tmp_path / "data", tmp_path / "run", "task.eval_bleu=true", config=config).command
    with initialize_config_dir(config_dir=str(tmp_path), version_base="1.1"):
        task = compose("plain", overrides=[word for word in command if "task.eval_bleu" in word]).task
    assert (task.eval_bleu, task.eval_bleu_args) == (True, '{"beam": 1}')


def test_bleu_of_validations_loggers_and_graphs_are_not_the_identity_of_a_training(data: Path, tmp_path: Path) -> None:
    logged = ("task.eval_bleu=false", "common.wandb_project=deep", f"common.tensorboard_logdir={tmp_path}")
    other = planned(data, tmp_path, *logged, "common.cuda_graphs=false").record
    check_unchanged(other, planned(data, tmp_path).record, tmp_path)


# How it ended ------------------------------------------------------------------------------------------------------


def test_a_file_that_was_moved_is_the_same_configuration(data: Path, tmp_path: Path) -> None:
    moved = tmp_path / "mine.yaml"
    moved.write_bytes(ADMIN.read_bytes())
    records = [planned(data, tmp_path, config=config).record for config in (ADMIN, moved)]
    assert [record["config"] for record in records] == ["multi30k_de_en/admin_3e3d", str(moved.with_suffix(""))]
    check_unchanged(*records, tmp_path)
    write(tmp_path / "run.json", [json.dumps(records[0])])
    # Without a checkpoint any training may begin there.
    assert planned(data, tmp_path, config=moved).record["config"] == str(moved.with_suffix(""))
    write(tmp_path / "finished", ["{}"])
    # It keeps the name of its published row.
    assert planned(data, tmp_path, config=moved).record["config"] == "multi30k_de_en/admin_3e3d"


FINISHED = '{"num_updates": 1200, "epochs": 9}'
TRAIN = '2026-01-01 | INFO | train | {"epoch": 7, "train_loss": "3", "train_num_updates": "312"}'


def test_a_loss_that_is_not_finite_is_a_result(tmp_path: Path) -> None:
    error = "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding. Try lowering"
    log = write(tmp_path / "train.log", [TRAIN, "Traceback (most recent call last):", error])
    ended = say_how_it_ended(tmp_path, 1, log, since=0)
    assert ended.exit_code == 1
    assert ended.sentence() == "diverged after 312 updates, 7 epochs (Minimum loss scale reached (0.0001))"
    written = json.loads((tmp_path / "finished").read_text())
    assert (written["outcome"], written["num_updates"]) == ("diverged", 312)
    assert finished(tmp_path) == ended


def test_a_mistake_is_said_in_its_own_words_and_is_no_end(tmp_path: Path) -> None:
    old = "FloatingPointError: gradients are Nan/Inf"
    for code, lines, message in (
        (1, ("error: --max-tokens 7 is smaller", "ChildFailedError:"), r"^--max-tokens 7 is smaller$"),
        (1, ("  File x", "torch.OutOfMemoryError: CUDA out of memory."), r"^torch\.OutOfMemoryError: CUDA out of"),
        (1, ("Error executing job with", "  File x", "ZeroDivisionError: by zero"), r"^ZeroDivisionError: by zero$"),
        (137, ("Killed",), r"^the training ended with code 137; see .*train\.log"),
    ):
        with pytest.raises(UserError, match=message):
            say_how_it_ended(tmp_path, code, write(tmp_path / "train.log", [old, *lines]), since=len(old) + 1)
    assert finished(tmp_path) is None


def test_a_finished_run_is_left_alone_and_other_settings_are_refused(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    request, other = Request(ADMIN, data, run), Request(ADMIN, data, run, ("optimization.lr=[0.5]",))
    begun(request)
    before = (run / "run.json").read_bytes()
    # Nothing is lost by other settings before there is a checkpoint.
    begun(other)
    assert (run / "run.json").read_bytes() != before
    assert begun(request).ending is None
    (run / "checkpoints").mkdir()
    torch.save({"model": {}}, run / "checkpoints" / "checkpoint1.pt")
    said = "optimization.lr: [0.5], was [0.001]); use another directory, or delete it"
    assert refused(begun, other) == f"{run}: contains a training with other settings ({said}"
    (run / "finished").write_text(FINISHED)
    (line,) = (again := begun(request)).lines
    assert line == f"{run}: finished (1200 updates, 9 epochs) already, nothing to do"
    assert again.ending.exit_code == 0
    assert (run / "run.json").read_bytes() == before


def finished_run(data: Path, run: Path) -> Request:
    """A finished training with its last checkpoint."""
    request = Request(ADMIN, data, run)
    begun(request)
    last = run / "checkpoints" / "checkpoint_last.pt"
    last.parent.mkdir()
    torch.save({"model": {"w": torch.ones(1)}}, last)
    (run / "finished").write_text(FINISHED)
    return request


def test_a_run_goes_on_if_it_is_made_longer_unless_it_diverged(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    request = finished_run(data, run)
    for shorter in (
        ("max_update=0", "max_epoch=20"),  # 20 epochs may be fewer than 1200 updates
        ("max_update=1300", "max_epoch=20"),
        ("max_update=1100",),
    ):
        changes = [f"optimization.{limit}" for limit in shorter]
        assert "with other settings (optimization.max_" in refused(begun, replace(request, changes=changes))
    assert begun(request).ending is not None
    (run / "finished").write_text('{"num_updates": 9, "epochs": 1, "outcome": "diverged", "reason": "NaN"}')
    assert begun(replace(request, changes=["optimization.max_update=1300"], dry_run=True)).ending.exit_code == 1
    (run / "finished").write_text(FINISHED)
    for longer, dry_run in (("1300", True), ("1300", False), ("0", False)):
        other = replace(request, changes=[f"optimization.max_update={longer}"], dry_run=dry_run)
        assert begun(other).ending is None
        assert (run / "finished").exists() == dry_run
        (run / "finished").write_text(FINISHED)
    # It is that training now.
    assert "with other settings" in refused(begun, request)


def test_a_run_grows_neither_without_checkpoints_nor_with_what_was_made_of_it(data: Path, tmp_path: Path) -> None:
    """The next evaluation would refuse the scores after hours, and a package would hold the old weights."""
    run = tmp_path / "run"
    longer = replace(finished_run(data, run), changes=["optimization.max_update=1300"])
    (run / "checkpoints" / "checkpoint_last.pt").unlink()
    before = (run / "run.json").read_bytes()
    no_checkpoint = f"{run}/checkpoints has no checkpoint_last.pt, from which the finished training could go on"
    made_of_it = ": made from the earlier run; move or delete this to continue training"
    wrong = []
    for names in ((), ("evaluation",), ("averaged.pt",), ("evaluation", "averaged.pt")):
        for name in names:
            (run / name).mkdir()
        line = " and ".join(str(run / name) for name in names) + made_of_it if names else no_checkpoint
        said = refused(begun, replace(longer, dry_run=len(names) == 1))
        wrong += [] if said == line else [said]
        for name in names:
            (run / name).rmdir()
    assert wrong == []
    assert (run / "finished").exists()
    assert (run / "run.json").read_bytes() == before
    for place in ("finished", *(run / "checkpoints").glob("*.pt")):
        (run / place).unlink()
    (run / "averaged.pt").mkdir()
    assert refused(begun, longer) == f"{run / 'averaged.pt'}{made_of_it}", "a training that begins anew"


def test_a_schedule_that_follows_the_length_keeps_it(data: Path, tmp_path: Path) -> None:
    """The earlier learning rates would have been different."""
    run, config = tmp_path / "run", tmp_path / "polynomial.yaml"
    published = (CONFIGS / "iwslt14_de_en" / "admin_6e6d_no_warmup.yaml").read_text()
    config.write_text(published.replace("  total_num_update: 100000\n", ""))
    begun(Request(config, data, run, ("optimization.max_update=1200",)))
    (run / "finished").write_text(FINISHED)
    line = refused(begun, Request(config, data, run, ("optimization.max_update=1300",)))
    assert re.search(r"lr_scheduler.total_num_update: 1300.*, was 1200", line)


def test_a_dry_run_makes_nothing_and_each_mistake_is_a_line(data: Path, tmp_path: Path, fairseq_deep: Command) -> None:
    """The plan is made in a fork; its errors reach this process unchanged."""
    words = ("run", "multi30k_de_en/admin_3e3d", str(data), str(tmp_path / "run"))
    ended = fairseq_deep(*words, "--dry-run")
    assert (ended.code, ended.errors) == (0, "")
    assert f"hydra-train --config-dir {ADMIN.parent} --config-name admin_3e3d" in ended.output.splitlines()[-1]
    assert not (tmp_path / "run").exists()
    ended = fairseq_deep(*words, "model.droput=1", "dropot=1")
    assert (ended.code, ended.output) == (2, "")
    assert ended.errors.splitlines() == [
        "error: unknown key 'model.droput' (did you mean 'model.dropout'?)",
        "error: unknown key 'dropot' (did you mean 'model.dropout'?)",
    ]


def test_a_training_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """One without a rate for embeddings keeps the rate of its branches; earlier names are read."""
    same = {"config": "x", "precision": "fp32", "tokens_per_update": 1, "data_content": ""}

    def change(old: dict[str, object] | None, **new: object) -> None:
        (tmp_path / RUN_RECORD).write_text(json.dumps({**same, "configuration": {"model": old}}))
        check_unchanged(read_record(tmp_path / RUN_RECORD), {**same, "configuration": {"model": new}}, tmp_path)

    for rate in (None, 0.3):
        change({"dropout": 0.3}, dropout=0.3, embedding_dropout=rate)
    line = refused(change, {"dropout": 0.3}, dropout=0.3, embedding_dropout=0.1)
    assert "model.embedding_dropout: 0.1, was None" in line
    old, new = {"norm": "pre", "history": "dlcl"}, {"norm": None, "history": None, "layer_aggregation": "dlcl"}
    change(old, **new, norm_position="pre")
    assert "norm_position: post, was pre" in refused(change, old, **new, norm_position="post")
    change(None, norm_position="post")


@pytest.mark.slow
def test_the_same_data_elsewhere_is_the_same_training(data: Path, tmp_path: Path) -> None:
    old = planned(data, tmp_path).record
    shutil.copytree(data, tmp_path / "moved")
    check_unchanged(old, planned(tmp_path / "moved", tmp_path).record, tmp_path)
    (tmp_path / "moved" / "sha256sums").unlink()  # now it could be made from another text
    text = tmp_path / "moved" / "train.de-en.de.bin"
    content = text.read_bytes()
    text.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    other = planned(tmp_path / "moved", tmp_path).record
    assert "dictionaries or training files differ" in refused(check_unchanged, old, other, tmp_path)
    (tmp_path / "moved" / "dict.en.txt").write_text((data / "dict.en.txt").read_text() + "neu 1\n")
    other = planned(tmp_path / "moved", tmp_path, "model.share_all_embeddings=false").record
    both = "dictionaries or training files differ; model.share_all_embeddings: False"
    assert both in refused(check_unchanged, old, other, tmp_path)
