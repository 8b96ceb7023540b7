"""Averaging: the mean is the mean, ties and integers survive, and what does not belong together is refused."""

import hashlib
import pickle
import struct
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_plugins.checkpoints.average import average_checkpoints, main, measured_names
from fairseq_plugins.checkpoints.mean import CHUNK, RunningMean
from fairseq_plugins.checkpoints.names import checkpoints_of
from fairseq_plugins.errors import UserError
from fairseq_plugins.integrity import read_checkpoint, weights_hash
from tests import processes, toy

Weights = dict[str, torch.Tensor]


def checkpoint(weights: Weights, arch: str = "transformer", updates: int = 10) -> dict[str, Any]:
    """A checkpoint with the entries of fairseq's, optimiser and meters included."""
    return {
        "args": None,
        "cfg": {"model": {"_name": arch, "encoder_layers": 2}},
        "model": weights,
        "optimizer_history": [{"optimizer_name": "FairseqAdam", "num_updates": updates}],
        "extra_state": {"train_iterator": {"epoch": 1}, "previous_training_time": 3.5 * updates, "val_loss": 4.0},
        "last_optimizer_state": {"state": {0: {"exp_avg": torch.ones(3)}}},
    }


def save(path: Path, weights: Weights, **kwargs: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    torch.save(checkpoint(weights, **kwargs), path)
    return path


def averaged(directory: Path, *weights: Weights) -> Weights:
    inputs = [save(directory / f"in{place}.pt", state) for place, state in enumerate(weights)]
    average_checkpoints(inputs, directory / "out.pt")
    return read_checkpoint(directory / "out.pt")["model"]


@settings(max_examples=60)
@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=8), st.integers(1, 9))
def test_mean_of_equal_weights_is_the_weight_to_the_bit(values, times):
    weights = {"w": torch.tensor(values, dtype=torch.float32)}
    mean = RunningMean(weights, {"w": "w"}, "checkpoint 0")
    for place in range(times):
        mean.add(weights, f"checkpoint {place}")
    # To the bit: compared as integers, so that -0.0 is not 0.0.
    reached, given_bits = mean.result()["w"], torch.tensor(values, dtype=torch.float32)
    assert reached.view(torch.int32).tolist() == given_bits.view(torch.int32).tolist()


@settings(max_examples=60)
@given(st.lists(st.lists(st.floats(-100, 100), min_size=4, max_size=4), min_size=1, max_size=12))
def test_running_mean_is_the_mean_in_double_precision(rows):
    checkpoints = [{"w": torch.tensor(row, dtype=torch.float32)} for row in rows]
    mean = RunningMean(checkpoints[0], {"w": "w"}, "a checkpoint")
    for weights in checkpoints:
        mean.add(weights, "a checkpoint")
    expected = torch.tensor(rows, dtype=torch.float64).mean(dim=0)
    assert torch.allclose(mean.result()["w"].double(), expected, rtol=0, atol=1e-4)


def test_half_precision_is_summed_in_float32_and_integers_are_the_newest(tmp_path):
    # Four times 60000 overflows float16, whose largest number is 65504.
    half = torch.full((2,), 60000.0, dtype=torch.float16)
    result = averaged(tmp_path, *({"w": half, "n": torch.tensor([number, 7])} for number in range(4)))
    assert (result["w"].dtype, result["w"].tolist()) == (torch.float16, [60000.0, 60000.0])
    assert (result["n"].dtype, result["n"].tolist()) == (torch.int64, [3, 7])


def test_tied_weights_stay_tied_and_are_stored_once(tmp_path):
    def tied(value: float) -> Weights:
        table = torch.full((1000, 10), value)
        return {"encoder.embed": table, "decoder.embed": table, "other": torch.zeros(3)}

    result = averaged(tmp_path, tied(1.0), tied(2.0))
    assert result["encoder.embed"].data_ptr() == result["decoder.embed"].data_ptr()
    assert result["encoder.embed"][0, 0].item() == 1.5
    assert (tmp_path / "out.pt").stat().st_size < 1.5 * 1000 * 10 * 4
    assert list(result) == ["encoder.embed", "decoder.embed", "other"]


def test_what_does_not_belong_together_is_refused_by_name(tmp_path):
    one, table = {"w": torch.ones(2)}, torch.ones(2)
    profile = "encoder.layers.0.ffn_residual.omega_profiled"
    assert measured_names() == {"version", "calibrated", "omega_profiled", "branch_variance"}
    same = averaged(tmp_path, *({profile: torch.tensor([1.3]), "w": torch.ones(1)} for _ in range(2)))
    assert torch.equal(same[profile], torch.tensor([1.3]))
    (tmp_path / "out.pt").unlink()
    for first, other, message in (
        (one, {**one, "extra": torch.ones(1)}, r"'extra' is in .*in1\.pt but not in .*in0\.pt"),
        (one, {}, r"'w' is in .*in0\.pt but not in .*in1\.pt"),
        (one, {"w": torch.ones(3)}, r"'w' is torch.float32 \(2,\) in .*in0\.pt but torch.float32 \(3,\) in .*in1\.pt"),
        (one, {"w": torch.ones(2).half()}, r"'w' is torch.float32 .* but torch.float16"),
        (one, {"w": torch.tensor([1.0, float("nan")])}, r"in1\.pt: the weight w is not finite"),
        (
            {"a": table, "b": table},
            {"a": torch.ones(2), "b": torch.zeros(2)},
            r"'b' and 'a' are tied in .*in0\.pt but differ in .*in1\.pt",
        ),
        ({profile: table}, {profile: 2 * table}, rf"'{profile}' differs between .*in0\.pt and .*in1\.pt: it is"),
        # Layouts of two versions of fairseq.
        ({"decoder.version": table}, {"decoder.version": 2 * table}, r"'decoder\.version' differs"),
    ):
        with pytest.raises(UserError, match=message):
            averaged(tmp_path, first, other)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["in0.pt", "in1.pt"]


def test_another_architecture_language_or_dictionary_is_refused(tmp_path):
    """Dictionaries are recorded in our checkpoints alone."""

    def stock(language: str) -> dict[str, Any]:
        return {"cfg": {"model": {}, "task": {"source_lang": language}}}

    def ours(dictionary: str) -> dict[str, Any]:
        return {**stock("de"), "extra_state": {"trained_on": {"target_dictionary": dictionary}}}

    for changes, problem in (
        ([{"cfg": {"model": {"_name": name}}} for name in ("admin", "b2t")], "architecture"),
        ([{"cfg": {"model": {"_name": "a", "heads": count, "dropout": count}}} for count in (2, 4)], "model"),
        ([ours("abc"), ours("abd")], "target dictionary"),
        ([{"cfg": None, "args": Namespace(arch="t", source_lang=name)} for name in ("de", "fr")], "source lang"),
        ([stock("de"), stock("fr")], "source lang"),
        ([stock("de"), stock("de"), ours("abc")], None),
    ):
        inputs = [tmp_path / f"{place}.pt" for place in range(len(changes))]
        for path, change in zip(inputs, changes, strict=True):
            torch.save({**checkpoint({"w": torch.ones(1)}), **change}, path)
        if problem is None:
            average_checkpoints(inputs, tmp_path / "out.pt")
            continue
        named = r" \(model\.heads: 4, was 2\)" if problem == "model" else ""
        with pytest.raises(UserError, match=rf"{inputs[-1].name}: its {problem} is not that of .*\d\.pt{named}$"):
            average_checkpoints(inputs, tmp_path / "out.pt")
        assert not (tmp_path / "out.pt").exists()


def test_output_records_its_inputs_and_drops_what_is_not_of_an_average(tmp_path):
    inputs = [save(tmp_path / f"checkpoint_1_{n}.pt", {"w": torch.tensor([float(n)])}, updates=n) for n in (10, 20)]
    average_checkpoints(inputs, tmp_path / "out.pt")
    state = read_checkpoint(tmp_path / "out.pt")
    # The float32 bytes of 10 and 20, little-endian, after the line that says what they are.
    sums = [hashlib.sha256(b"w torch.float32 (1,)\n" + struct.pack("<f", n)).hexdigest() for n in (10, 20)]
    assert state["averaged_from"] == [
        {"file": "checkpoint_1_10.pt", "num_updates": 10, "weights_sha256": sums[0]},
        {"file": "checkpoint_1_20.pt", "num_updates": 20, "weights_sha256": sums[1]},
    ]
    assert "last_optimizer_state" not in state
    assert state["extra_state"] == {"train_iterator": {"epoch": 1}, "weights_sha256": weights_hash(state["model"])}
    assert state["cfg"]["model"]["encoder_layers"] == 2


def test_the_same_weights_give_the_same_bytes_in_any_directory_and_after_a_resumption(tmp_path):
    outputs = []
    for directory in (tmp_path / "a", tmp_path / "another directory"):
        inputs = [save(directory / f"{n}.pt", {"w": torch.full((5,), float(n))}) for n in (1, 2)]
        outputs += [directory / "first.pt", directory / "second name.pt"]
        average_checkpoints(inputs, outputs[-2])
        state = torch.load(inputs[-1], weights_only=True)
        # fairseq adds these at every start, or reads them from a clock.
        state["optimizer_history"].insert(0, {"optimizer_name": "FairseqAdam", "num_updates": 3})
        state["extra_state"]["previous_training_time"] = 99.0
        torch.save(state, inputs[-1])
        average_checkpoints(inputs, outputs[-1])
    assert len({path.read_bytes() for path in outputs}) == 1
    assert read_checkpoint(outputs[0])["optimizer_history"] == [{"optimizer_name": "FairseqAdam", "num_updates": 10}]


def test_the_last_are_by_number_not_by_name_and_no_input_is_overwritten(tmp_path, capsys):
    for n in (900, 1000, 100):
        save(tmp_path / f"checkpoint_{n // 500}_{n}.pt", {"w": torch.tensor([float(n)])}, updates=n)
    for name in ("9", "10", "_last", "_best"):
        (tmp_path / f"checkpoint{name}.pt").touch()
    output = tmp_path / "average.pt"
    assert main(["--last-updates", "2", "--checkpoints", str(tmp_path), "--output", str(output)]) == 0
    assert read_checkpoint(output)["model"]["w"].item() == 950.0
    assert "checkpoint_1_900.pt, checkpoint_2_1000.pt" in capsys.readouterr().out
    by_epoch = checkpoints_of("last-epochs=2", tmp_path)
    assert [path.name for path in by_epoch] == ["checkpoint9.pt", "checkpoint10.pt"]
    too_few = "only 3 checkpoints saved by update, not the 4 requested; 2 are saved by epoch$"
    with pytest.raises(UserError, match=too_few):
        checkpoints_of("last-updates=4", tmp_path)
    with pytest.raises(UserError, match="misspelt: no such directory"):
        checkpoints_of("last-updates=4", tmp_path / "misspelt")
    before = output.read_bytes()
    assert main(["--inputs", str(output), "--output", str(output)]) == 2
    assert capsys.readouterr().err == f"error: {output}: the output is also an input; choose another name\n"
    assert output.read_bytes() == before


def test_tensors_larger_than_a_chunk_and_of_every_other_layout_in_memory(tmp_path):
    large, table = torch.arange(CHUNK + 7, dtype=torch.float32), torch.arange(6.0).reshape(2, 3)
    result = averaged(
        tmp_path,
        {"w": large, "t": table.t(), "n": torch.tensor(2.0)},
        {"w": torch.zeros_like(large), "t": table.t() + 2, "n": torch.tensor(4.0)},
    )
    assert torch.equal(result["w"], large / 2)
    assert result["t"].tolist() == [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]
    assert result["n"].item() == 3.0


def ema_checkpoint(path: Path, ema: Weights, fp32: Weights | None = None) -> Path:
    table = torch.ones(2, dtype=torch.float16)
    state = checkpoint({"a": table, "b": table, "version": torch.tensor([3.0])})
    state["extra_state"]["ema"] = ema
    if fp32:
        state["extra_state"]["ema_fp32_params"] = fp32
    torch.save(state, path)
    return path


def test_moving_averages_are_averaged_in_float32_where_there_are_any_and_stay_tied(tmp_path):
    inputs = []
    for place, value in enumerate((1.0, 2.0)):
        half = torch.full((2,), value, dtype=torch.float16)
        inputs.append(ema_checkpoint(tmp_path / f"{place}.pt", {"a": half, "b": half, "version": torch.ones(1)}))
    average_checkpoints(inputs, tmp_path / "both.pt", ema=True)
    result = read_checkpoint(tmp_path / "both.pt")["model"]
    assert result["a"].tolist() == result["b"].tolist() == [1.5, 1.5]
    assert result["version"].tolist() == [3.0]
    exact = {"a": torch.full((2,), 1.0001), "b": torch.full((2,), 1.0001)}
    average_checkpoints([ema_checkpoint(tmp_path / "0.pt", {"a": half, "b": half}, exact)], tmp_path / "o.pt", ema=True)
    result = read_checkpoint(tmp_path / "o.pt")["model"]
    assert torch.equal(result["b"], exact["a"])
    assert result["a"].data_ptr() == result["b"].data_ptr()


def test_a_moving_average_that_cannot_be_used_is_refused(tmp_path):
    half = torch.ones(2, dtype=torch.float16)
    not_finite = ema_checkpoint(tmp_path / "nan.pt", {"a": half * float("nan"), "b": half})
    for path, message in (
        (save(tmp_path / "plain.pt", {"w": torch.ones(1)}), "contains no moving average"),
        (ema_checkpoint(tmp_path / "lost.pt", {"version": half}), r"lost\.pt: its moving average lacks 'a'"),
        (not_finite, r"nan\.pt: the weight a is not finite"),
    ):
        with pytest.raises(UserError, match=message):
            average_checkpoints([path], tmp_path / "out.pt", ema=True)
    average_checkpoints([not_finite], tmp_path / "out.pt")  # the weights themselves are


MEMORY = """
import re, sys
from pathlib import Path
import fairseq_plugins
from fairseq_plugins.checkpoints.average import average_checkpoints

def kilobytes(name):
    return int(re.search(name + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text()).group(1))

output, small, *large = map(Path, sys.argv[1:])
average_checkpoints([small, small], output)  # code and buffers that any average needs
before = kilobytes("VmRSS")
average_checkpoints(large, output)
print((kilobytes("VmHWM") - before) * 1024)
"""
"""Prints the bytes that averaging takes at most, mapped files included. (ru_maxrss would be that of pytest.)"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from Linux")
def test_memory_stays_near_two_models(tmp_path):
    """Four checkpoints of 32 MB of weights and twice that of moments, which are not to be read."""
    model = 32 * 2**20
    inputs = []
    for place in range(4):
        state = checkpoint({"embed": torch.full((model // 8,), float(place)), "w": torch.ones(model // 8)})
        state["last_optimizer_state"] = {"state": {0: {"exp_avg": torch.ones(model // 2)}}}
        inputs.append(str(tmp_path / f"{place}.pt"))
        torch.save(state, inputs[-1])
    small = save(tmp_path / "small.pt", {"w": torch.ones(2 * CHUNK)})
    taken = int(processes.python("-c", MEMORY, tmp_path / "out.pt", small, *inputs).output.split()[-1])
    for path in tmp_path.iterdir():
        path.unlink()
    assert model < taken < 2.3 * model, f"{taken / model:.2f} models"


def test_an_average_holds_nothing_that_a_plain_torch_refuses(toy_data, tmp_path):
    """It would refuse the checkpoints themselves, which hold an ``argparse.Namespace``."""
    flags = ("--max-update", "4", "--save-interval-updates", "2", "--no-epoch-checkpoints")
    toy.train_toy(toy_data, tmp_path, *flags)
    inputs = [tmp_path / f"checkpoint_1_{updates}.pt" for updates in (2, 4)]
    average_checkpoints(inputs, tmp_path / "average.pt")
    known = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    try:
        with pytest.raises(pickle.UnpicklingError, match="Namespace"):
            torch.load(inputs[0], weights_only=True)
        assert "model" in torch.load(tmp_path / "average.pt", weights_only=True)
    finally:
        torch.serialization.add_safe_globals(known)
