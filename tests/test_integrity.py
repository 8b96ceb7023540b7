"""Damaged and foreign checkpoints end in one line at every reader, and nothing in them is executed."""

import copy
import zipfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_plugins.checkpoints import average, fold, fsck
from fairseq_plugins.errors import UserError
from fairseq_plugins.integrity import NON_FINITE_ALLOWED, read_checkpoint, weights_hash, write_checkpoint
from fairseq_plugins.tools.cli import main as cli
from tests import toy
from tests.refusals import line_of

FLAGS = ("--max-update", "2", "--no-epoch-checkpoints")


@pytest.fixture(scope="module")
def trained(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of Admin, which can be folded."""
    return toy.train_toy(toy_data, tmp_path_factory.mktemp("run"), *FLAGS, arch="admin_transformer")


@pytest.fixture
def state(trained: Path) -> dict[str, Any]:
    return dict(torch.load(trained, weights_only=True))


@pytest.fixture
def readers(toy_data: Path) -> tuple[Callable[[Path], Any], ...]:
    """Readers of a checkpoint: ``fairseq-generate``, ``average`` and ``fold``."""

    def built(path: Path) -> None:
        checkpoint_utils.load_model_ensemble_and_task([str(path)], arg_overrides={"data": str(toy_data)})

    def averaged(path: Path) -> None:
        average.average_checkpoints([path], path.with_name("average.out"))

    def folded(path: Path) -> None:
        fold.fold_checkpoint(path, path.with_name("fold.out"), overwrite=True)

    return read_checkpoint, built, averaged, folded


def saved(state: Any, path: Path, **how: Any) -> Path:
    torch.save(state, path, **how)
    return path


def test_the_damaged_record_is_named(trained: Path, tmp_path: Path, readers: Any) -> None:
    with zipfile.ZipFile(trained) as archive:
        largest = max(archive.infolist(), key=lambda record: record.file_size)
        record = archive.read(largest)
    content = bytearray(trained.read_bytes())
    content[content.index(record) + len(record) // 2] ^= 1
    path = tmp_path / "damaged.pt"
    path.write_bytes(content)
    name = largest.filename.partition("/")[2]
    message = f"checkpoint {path} is damaged: the bytes of its record {name!r} have changed"
    assert [line_of(reader, path) for reader in readers] == [message] * len(readers)
    assert fsck.check([path]) == fsck.DAMAGED
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "x")
    assert line_of(read_checkpoint, path) == f"checkpoint {path} is truncated or not a checkpoint"


def test_changed_bytes_are_refused_or_do_no_harm(trained: Path, tmp_path: Path) -> None:
    """A file that passes has changed where no reader looks: padding, or the dates in the list of records."""
    sound, path = trained.read_bytes(), tmp_path / "changed.pt"
    expected = weights_hash(read_checkpoint(trained)["model"])
    refused = 0
    for number in range(60):
        place = (number * 2654435761) % len(sound)
        content = bytearray(sound)
        if number % 3 == 0:
            content[place] ^= 1 << number % 8
        elif number % 3 == 1:
            del content[place:]
        else:
            content[place:place] = b"inserted"
        path.write_bytes(content)
        try:
            weights = read_checkpoint(path)["model"]
        except UserError:
            refused += 1
        else:
            assert weights_hash(weights) == expected
    assert refused >= 50


def test_what_fairseq_does_not_save_is_one_line(toy_data, tmp_path, readers):
    path = tmp_path / "checkpoint_last.pt"
    message = f"{path} is not a fairseq checkpoint: it has no weights under 'model'"
    for content in (torch.zeros(3), [1, 2], {"w": torch.zeros(2)}, {"model": {"w": 1.5}}, None):
        saved(content, path)
        assert [line_of(reader, path) for reader in readers] == [message] * len(readers)
        assert fsck.check([path]) == fsck.DAMAGED
    with pytest.raises(UserError, match="checkpoint_last.pt is not a fairseq checkpoint"):
        toy.train_toy(toy_data, tmp_path, *FLAGS)


def test_weights_that_are_not_finite(state: dict[str, Any], tmp_path: Path, readers: Any) -> None:
    name = "decoder.layers.1.fc1.weight"
    sound = state["model"][name]
    for place, value in ((0, float("nan")), (-1, float("inf")), (-1, -float("inf"))):
        state["model"][name] = sound.clone()
        state["model"][name].view(-1)[place] = value
        path = saved(state, tmp_path / f"diverged{place}{value}.pt")
        for reader in readers:
            assert f"{path}: the weight {name} is not finite: the training has diverged" in str(line_of(reader, path))


def test_weights_that_are_not_finite_are_read_on_request(state, tmp_path, capsys, monkeypatch):
    state["model"]["decoder.layers.1.fc1.weight"].view(-1)[0] = float("nan")
    path, output = saved(state, tmp_path / "nan.pt"), tmp_path / "out.pt"
    command = ["average", "--inputs", str(path), "--output", str(output)]
    assert cli.main(command) == 2
    assert capsys.readouterr().err == (
        f"error: {path}: the weight decoder.layers.1.fc1.weight is not finite: the training has diverged, or the "
        f"file is damaged; set {NON_FINITE_ALLOWED}=1 to load it anyway\n"
    )
    assert not output.exists()
    monkeypatch.setenv(NON_FINITE_ALLOWED, "1")
    assert cli.main(command) == 0
    assert torch.load(output, weights_only=True)["model"].keys() == state["model"].keys()


def test_the_hash_of_an_average_finds_a_changed_weight(trained: Path, tmp_path: Path) -> None:
    path = tmp_path / "average.pt"
    average.average_checkpoints([trained], path)
    state = torch.load(path, weights_only=True)
    next(iter(state["model"].values())).view(-1)[0] += 1
    saved(state, path)
    assert line_of(read_checkpoint, path) == (
        f"checkpoint {path} is damaged: its weights are not those that were written (SHA-256), "
        "or another program has changed them"
    )
    write_checkpoint(state, path)
    assert weights_hash(read_checkpoint(path)["model"]) == weights_hash(state["model"])


def edited(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    """A change in place, as one that returns the state."""
    return lambda state: [change(state), state][1]


def weight(value: Any) -> Callable[[dict[str, Any]], Any]:
    """The state with another weight ``w``."""
    return lambda state: {**state, "model": {**state["model"], "w": value(torch.ones(2, 4))}}


def entry(name: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    """The state with another entry."""
    return lambda state: {**state, name: value}


def nested(levels: int, times: int = 1) -> list[Any]:
    """A list that holds another so many times, and so on: twice makes 2 ** levels entries of a few bytes of a file."""
    content: list[Any] = []
    for _ in range(levels):
        content = [content] * times
    return content


NO_NUMBERS = "the weight w is nested, sparse, quantised or without numbers"
LEGAL = "legal: float16, bfloat16, float32, float64, int64"
HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "meta": (weight(lambda w: w.to("meta")), NO_NUMBERS),
    "sparse": (weight(lambda w: w.to_sparse()), NO_NUMBERS),
    "quantised": (weight(lambda w: torch.quantize_per_tensor(w, 1.0, 0, torch.qint8)), "the weight w is qint8; legal"),
    "float8": (weight(lambda w: w.to(torch.float8_e4m3fn)), f"the weight w is float8_e4m3fn; {LEGAL}"),
    "repeated": (
        weight(lambda w: w[:1, :1].expand(1 << 20, 1 << 20)),
        "the weight w has more numbers, (1048576, 1048576), than are stored of it",
    ),
    "a number as a name": (edited(lambda state: state["model"].update({1: torch.ones(1)})), "model.1 is 1, not text"),
    "extra_state": (entry("extra_state", "text"), "extra_state is 'text', not an object"),
    "repeated state": (entry("last_optimizer_state", {0: torch.ones(1).expand(1 << 40)}), "a tensor of its state has "),
    "optimizer_history": (entry("optimizer_history", 5), "optimizer_history is 5, not a list"),
    "num_updates": (entry("optimizer_history", [{"num_updates": "x"}]), "optimizer_history[0].num_updates is 'x', not"),
    "a list of settings": (entry("cfg", [1]), "cfg is [1], not an object"),
    "many layers": (
        edited(lambda state: state["cfg"]["model"].update(encoder_layers=10**8)),
        "cfg.model.encoder_layers is 100000000, not 0 to 9999",
    ),
    "many layers of old": (entry("args", Namespace(decoder_layers=10**8)), "args.decoder_layers is 100000000, not 0"),
    "many settings": (edited(lambda state: state["cfg"].update(task=nested(40, 2))), "more than 1,048,576 entries"),
    "deep settings": (edited(lambda state: state["cfg"].update(task=nested(60))), "nested in more than 50 levels"),
}
"""Content that fairseq does not save, and why a file with it is refused."""


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_of_another_kind_is_one_line_and_ends_no_check(name, state, tmp_path, readers, capsys):
    change, problem = HOSTILE[name]
    path = saved(change(state), tmp_path / "checkpoint1.pt")
    for reader in readers:
        assert f"{path} is not a fairseq checkpoint: {problem}" in str(line_of(reader, path))
    saved({"model": {"w": torch.ones(1)}}, tmp_path / "checkpoint2.pt")
    capsys.readouterr()
    assert fsck.check([tmp_path]) == fsck.DAMAGED
    assert capsys.readouterr().out.splitlines()[-2].split() == ["checkpoint2.pt", "-", "sound"]


def rewritten(path: Path, output: Path, change: Callable[[str, bytes], bytes], **how: Any) -> Path:
    """The archive with other records, whose checksums are theirs."""
    with zipfile.ZipFile(path) as before, zipfile.ZipFile(output, "w", **how) as after:
        for record in before.infolist():
            after.writestr(record.filename, change(record.filename, before.read(record)))
    return output


def test_records_that_are_not_as_large_as_their_tensors(trained: Path, tmp_path: Path, readers: Any) -> None:
    """A mapped tensor would continue in the next record, with a sound checksum for each."""
    short = rewritten(trained, tmp_path / "short.pt", lambda name, data: data[:4] if name.endswith("/data/9") else data)
    line = f"checkpoint {short} is damaged: tensor sizes do not match its records"
    assert [line_of(reader, short) for reader in readers] == [line] * len(readers)
    packed = rewritten(trained, tmp_path / "packed.pt", lambda name, record: record, compression=zipfile.ZIP_DEFLATED)
    line = f"checkpoint {packed} is damaged: its records are larger than the file"
    assert [line_of(reader, packed) for reader in readers] == [line] * len(readers)
    # Many names of one record, each of which would be read.
    many = tmp_path / "many.pt"
    with open(many, "wb") as stream, zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("run/data/0", bytes(10**6))
        archive.filelist *= 200
    line = f"checkpoint {many} is damaged: its records are larger than the file"
    assert line_of(read_checkpoint, many) == line


class Allocates:
    """Pickled as a call of ``bytearray`` with a number, which is the only one that torch makes of itself."""

    def __reduce__(self) -> tuple[Any, ...]:
        return bytearray, (3 << 30,)


@pytest.mark.parametrize("zipped", [True, False])
def test_memory_that_a_file_only_names_is_not_taken(zipped: bool, tmp_path: Path, readers: Any) -> None:
    path = saved({"model": {}, "notes": Allocates()}, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    line = f"checkpoint {path} is refused: it holds 'bytearray', which is not plain data and could run code when "
    line += "loaded"
    assert [line_of(reader, path) for reader in readers] == [line] * len(readers)


def test_renamed_weights_are_not_folded(state: dict[str, Any], tmp_path: Path) -> None:
    state["model"] = {f"module.{name}": weight for name, weight in state["model"].items()}
    path = saved(state, tmp_path / "renamed.pt")
    line = "not weights of a translation model: they have no table decoder.embed_tokens.weight"
    assert line_of(fold.fold_checkpoint, path, tmp_path / "out.pt") == line


def test_old_formats_are_read(state: dict[str, Any], tmp_path: Path) -> None:
    expected = weights_hash(state["model"])
    older = {**copy.deepcopy(state), "args": Namespace(**state["cfg"]["model"]), "cfg": None}
    path = saved(older, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert weights_hash(read_checkpoint(path)["model"]) == expected
    torch.serialization.set_crc32_options(False)
    try:
        saved(state, path)
    finally:
        torch.serialization.set_crc32_options(True)
    assert weights_hash(read_checkpoint(path)["model"]) == expected


def test_the_hash_is_of_names_types_shapes_and_values() -> None:
    hashes = set()
    for dtype in (torch.float32, torch.bfloat16, torch.bool):
        weights = {"a": torch.tensor([[1, 0], [0, 1]]).to(dtype), "b": torch.tensor(1).to(dtype)}
        same = {"b": weights["b"].clone(), "a": weights["a"].t()}  # another order in memory and in the dictionary
        assert weights_hash(weights) == weights_hash(same)
        hashes |= {
            weights_hash(weights),
            weights_hash({**weights, "b": torch.tensor(0).to(dtype)}),
            weights_hash({"a": weights["a"].reshape(4), "b": weights["b"]}),
            weights_hash({"a": weights["a"], "c": weights["b"]}),
        }
    assert len(hashes) == 3 * 4
