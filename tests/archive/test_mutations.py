"""Thousands of damaged checkpoints at every reader, in one process: one line, or the same weights; never a trace.

A mutation changes bytes of a file, or entries, types, shapes, sizes and values of what is then stored soundly. An alarm
ends a reader that hangs.
"""

from __future__ import annotations

import copy
import io
import pickle
import signal
import tracemalloc
import zipfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fairseq_plugins.archive import NON_FINITE_ALLOWED
from fairseq_plugins.archive.content import weights_hash
from fairseq_plugins.archive.records import LEGACY
from fairseq_plugins.checkpoints import average, fold, fsck
from fairseq_plugins.checkpoints.files import read_checkpoint, write_checkpoint
from fairseq_plugins.cli import main as cli
from fairseq_plugins.errors import UserError
from tests import toy

WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
"""What fails is one entry or one place already."""
SECONDS = 20
"""Of one reader on one file of 200 kB, which takes a hundredth of that."""


@contextmanager
def watched() -> Iterator[None]:
    def late(*_: Any) -> None:
        raise TimeoutError(f"a reader has taken {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def trained(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of Admin, which can be folded."""
    flags = ("--max-update", "2", "--no-epoch-checkpoints")
    TRAINED[:] = [toy.train_toy(toy_data, tmp_path_factory.mktemp("run"), *flags, arch="admin_transformer")]
    return TRAINED[0]


TRAINED: list[Path] = []
"""The sound checkpoint of this module."""


def averaged(path: Path) -> None:
    average.average_checkpoints([path], path.with_name("average.out"))


def folded(path: Path) -> None:
    fold.fold_checkpoint(path, path.with_name("fold.out"), overwrite=True)


def built(path: Path) -> None:
    """As ``fairseq-generate`` does, which has its own directory of data."""
    state = torch.load(TRAINED[0], weights_only=True)
    checkpoint_utils.load_model_ensemble_and_task([str(path)], arg_overrides={"data": state["cfg"]["task"]["data"]})


def looked_at(path: Path) -> None:
    fsck.look_at(path)


READERS: tuple[Callable[[Path], Any], ...] = (read_checkpoint, built, averaged, folded, looked_at)


def refused(reader: Callable[[Path], Any], path: Path) -> str | None:
    """What a reader says of a file; None if it takes it."""
    with watched():
        try:
            reader(path)
        except UserError as error:
            said = str(error)
        else:
            return None
    assert "\n" not in said
    return said


def bytes_of(state: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(state, stream)
    return stream.getvalue()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], phases=WITHOUT_SHRINKING)
@given(data=st.data())
def test_changed_bytes_are_found_by_every_reader(trained: Path, tmp_path: Path, data: st.DataObject) -> None:
    sound = trained.read_bytes()
    kind = data.draw(st.sampled_from(["flip", "zero", "cut", "insert", "swap"]))
    place = data.draw(st.integers(0, len(sound) - 1))
    length = data.draw(st.integers(1, 4096))
    content = bytearray(sound)
    if kind == "flip":
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "zero":
        content[place : place + length] = bytes(len(content[place : place + length]))
    elif kind == "cut":
        del content[place:]
    elif kind == "insert":
        content[place:place] = data.draw(st.binary(min_size=1, max_size=64))
    else:
        content[place : place + length] = reversed(content[place : place + length])
    path = tmp_path / "mutated.pt"
    path.write_bytes(content)
    weights = torch.load(trained, weights_only=True)["model"]
    for reader in (read_checkpoint, looked_at, built):
        if refused(reader, path) is None and reader is read_checkpoint:
            # Only what no reader looks at has changed: padding, or the dates in the list of records.
            assert weights_hash(read_checkpoint(path)["model"]) == weights_hash(weights)


def records(path: Path) -> list[zipfile.ZipInfo]:
    with zipfile.ZipFile(path) as archive:
        return archive.infolist()


@pytest.mark.parametrize("damage", ["flipped", "zeroed"])
def test_the_damaged_record_is_named(damage: str, trained: Path, tmp_path: Path) -> None:
    largest = max(records(trained), key=lambda record: record.file_size)
    content = bytearray(trained.read_bytes())
    begin = largest.header_offset + 30 + len(largest.filename)
    begin = content.index(zipfile.ZipFile(trained).read(largest)[:64], begin)
    middle = begin + largest.file_size // 2
    if damage == "flipped":
        content[middle] ^= 1
    else:
        content[middle : middle + 512] = bytes(512)
    path = tmp_path / "damaged.pt"
    path.write_bytes(content)
    name = largest.filename.partition("/")[2]
    assert (
        refused(read_checkpoint, path) == f"checkpoint {path} is damaged: the bytes of its record {name!r} have changed"
    )
    assert refused(built, path) == refused(read_checkpoint, path)


WRONG = st.sampled_from(
    [None, -1, 0, 1, 10**9, 2**63, 1.5, float("nan"), "", "x", b"x", [], [1], {}, {"x": 1}, True, torch.zeros(2)]
)


def paths_of(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a state, without the elements of long lists."""
    children: Any = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = list(enumerate(value))[:3]
    for key, child in children:
        yield (*place, key)
        yield from paths_of(child, (*place, key))


def put(state: Any, place: tuple[Any, ...], value: Any) -> None:
    for key in place[:-1]:
        state = state[key]
    state[place[-1]] = value


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], phases=WITHOUT_SHRINKING)
@given(data=st.data())
def test_changed_entries_end_in_one_line_or_do_no_harm(trained: Path, tmp_path: Path, data: st.DataObject) -> None:
    state = torch.load(trained, weights_only=True)
    groups = [("model",), ("cfg", "model"), ("cfg", "task"), ("extra_state",), ("optimizer_history",), ()]
    top = data.draw(st.sampled_from(groups))
    below: Any = state
    for key in top:
        below = below[key]
    place = data.draw(st.sampled_from([(*top, *each) for each in paths_of(below)]))
    put(state, place, data.draw(WRONG))
    path = tmp_path / "mutated.pt"
    path.write_bytes(bytes_of(state))
    for reader in READERS:
        refused(reader, path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], phases=WITHOUT_SHRINKING)
@given(data=st.data())
def test_changed_weights_are_refused(trained: Path, tmp_path: Path, data: st.DataObject) -> None:
    state = torch.load(trained, weights_only=True)
    weights = state["model"]
    name = data.draw(st.sampled_from([name for name in weights if name.endswith((".weight", ".bias"))]))
    kind = data.draw(st.sampled_from(["nan", "inf", "shape", "type", "gone", "more"]))
    value = weights[name].clone()
    if kind in ("nan", "inf"):
        value.view(-1)[data.draw(st.integers(0, value.numel() - 1))] = float(kind)
        weights[name] = value
    elif kind == "shape":
        weights[name] = value.unsqueeze(0).repeat(2, *[1] * value.dim())
    elif kind == "type":
        weights[name] = value.to(torch.int64)
    elif kind == "gone":
        del weights[name]
    else:
        weights[f"{name}.more"] = value
    path = tmp_path / "mutated.pt"
    path.write_bytes(bytes_of(state))
    said = [refused(reader, path) for reader in READERS]
    if kind in ("nan", "inf"):
        assert all(f"the weight {name} is not finite" in str(one) for one in said[:-1])
    elif kind in ("shape", "gone", "more"):
        assert None not in (said[1], said[3])


@pytest.mark.parametrize("history", [[], [{}], [{"num_updates": 2, "optimizer_name": "FairseqAdam"}]], ids=str)
def test_a_history_that_fairseq_cannot_take_is_refused(history: list[Any], trained: Path, tmp_path: Path) -> None:
    path = tmp_path / "history.pt"
    path.write_bytes(bytes_of({**torch.load(trained, weights_only=True), "optimizer_history": history}))
    message = f"checkpoint {path} is damaged: its entry 'optimizer_history' has no state of a schedule"
    assert refused(built, path) == message
    assert {refused(reader, path) for reader in READERS} <= {message, None}


def test_a_layer_count_of_a_billion_is_refused_at_once(trained: Path, tmp_path: Path) -> None:
    state = torch.load(trained, weights_only=True)
    state["cfg"]["model"]["encoder_layers"] = 10**9
    path = tmp_path / "deep.pt"
    path.write_bytes(bytes_of(state))
    message = f"checkpoint {path} is damaged: encoder_layers is 1,000,000,000, and it has {len(state['model'])} weights"
    assert [refused(reader, path) for reader in READERS[:-1]] == [message] * 4


class Allocates:
    """Unpickled by ``torch.load``, also with ``weights_only``, it takes a terabyte."""

    def __reduce__(self) -> tuple[Any, ...]:
        return bytearray, (2**40,)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_number_larger_than_the_file_is_not_allocated(legacy: bool, trained: Path, tmp_path: Path) -> None:
    state = torch.load(trained, weights_only=True)
    path = tmp_path / "large.pt"
    torch.save({**state, "task_state": {"x": Allocates()}}, path, _use_new_zipfile_serialization=not legacy)
    for reader in (read_checkpoint, built):
        assert refused(reader, path) == (
            f"checkpoint {path} is damaged: 'bytearray' should have 1,099,511,627,776 elements"
        )


@pytest.mark.parametrize("code", [pickle.BYTEARRAY8, pickle.BINBYTES8, pickle.BINUNICODE8], ids=repr)
@pytest.mark.parametrize("legacy", [False, True])
def test_bytes_that_the_file_does_not_have_are_not_allocated(legacy: bool, code: bytes, tmp_path: Path) -> None:
    path = tmp_path / "large.pt"
    torch.save({"model": {}}, path, _use_new_zipfile_serialization=not legacy)
    pickled = b"\x80\x05" + code + (3 * 10**8).to_bytes(8, "little")
    if legacy:
        path.write_bytes(LEGACY + pickled)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("large/data.pkl", pickled)
    tracemalloc.start()
    try:
        said = refused(read_checkpoint, path)
        assert said == f"checkpoint {path} is truncated or not a checkpoint"
        assert tracemalloc.get_traced_memory()[1] < 10**8
    finally:
        tracemalloc.stop()


def test_a_pickle_whose_local_name_has_changed_is_named(tmp_path: Path) -> None:
    path = tmp_path / "changed.pt"
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"model": {"w": torch.zeros(4)}}, path)
    finally:
        torch.serialization.set_crc32_options(True)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"/data.pkl", b"/dbta.pkl", 1))
    assert refused(read_checkpoint, path) == (
        f"checkpoint {path} is damaged: the bytes of its record 'data.pkl' have changed"
    )


def test_a_storage_that_is_longer_than_its_record_is_refused(tmp_path: Path) -> None:
    path, large = tmp_path / "small.pt", tmp_path / "large.pt"
    torch.save({"model": {"w": torch.zeros(64)}}, path)
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(large, "w") as other:
        for record in archive.infolist():
            content = archive.read(record)
            # BININT1 64, the number of elements of the storage, becomes BININT 2**30.
            changed = (
                content.replace(b"K\x40t", b"J\x00\x00\x00\x40t") if record.filename.endswith("data.pkl") else content
            )
            assert (changed != content) == record.filename.endswith("data.pkl")
            other.writestr(record.filename, changed)
    assert refused(read_checkpoint, large) == (
        f"checkpoint {large} is damaged: its record 'data/0' should have 4,294,967,296 bytes"
    )


def test_the_hash_of_an_average_finds_a_changed_weight(trained: Path, tmp_path: Path) -> None:
    path = tmp_path / "average.pt"
    average.average_checkpoints([trained], path)
    state = torch.load(path, weights_only=True)
    next(iter(state["model"].values())).view(-1)[0] += 1
    path.write_bytes(bytes_of(state))
    assert refused(read_checkpoint, path) == (
        f"checkpoint {path} is damaged: its weights are not those that were written (SHA-256), "
        "or another program has changed them"
    )
    write_checkpoint(state, path)
    assert refused(read_checkpoint, path) is None


def test_old_formats_are_read(trained: Path, tmp_path: Path) -> None:
    state = torch.load(trained, weights_only=True)
    older = {**copy.deepcopy(state), "args": Namespace(**state["cfg"]["model"]), "cfg": None}
    path = tmp_path / "old.pt"
    torch.save(older, path, _use_new_zipfile_serialization=False)
    assert weights_hash(read_checkpoint(path)["model"]) == weights_hash(state["model"])
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(state, path)
    finally:
        torch.serialization.set_crc32_options(True)
    assert weights_hash(read_checkpoint(path)["model"]) == weights_hash(state["model"])


def test_a_zip_archive_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "x")
    assert refused(read_checkpoint, path) == (
        f"{path} is a zip archive, but not one that torch has written: it needs one data.pkl"
    )


def test_weights_that_are_not_finite_are_read_on_request(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = torch.load(trained, weights_only=True)
    state["model"]["decoder.layers.1.fc1.weight"].view(-1)[0] = float("nan")
    path, output = tmp_path / "nan.pt", tmp_path / "out.pt"
    path.write_bytes(bytes_of(state))
    command = ["average", "--inputs", str(path), "--output", str(output)]
    assert cli.main(command) == 2
    assert capsys.readouterr().err == (
        f"error: {path}: the weight decoder.layers.1.fc1.weight is not finite: the training has diverged, or the "
        f"file is damaged; --allow-non-finite, or {NON_FINITE_ALLOWED}=1 in the environment, reads it nevertheless\n"
    )
    with monkeypatch.context() as asked:
        asked.setenv(NON_FINITE_ALLOWED, "1")
        assert read_checkpoint(path)["model"].keys() == state["model"].keys()
    assert not output.exists()
    assert cli.main([*command, "--allow-non-finite"]) == 0
    assert torch.load(output, weights_only=True)["model"].keys() == state["model"].keys()
    # It holds for that command alone.
    assert refused(read_checkpoint, path) is not None
