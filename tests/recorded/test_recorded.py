"""This revision computes the recorded values: losses, weights, interface, translations of old checkpoints.

A method, a flag or an architecture that is lost fails here, and so does a new one until ``make record``.
"""

from pathlib import Path

import pytest

from tests import models
from tests.recorded import checkpoints, interface, launches, numbers, record
from tests.representatives import slow_but

# Runs with SSE, AVX2 and AVX512 (ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA, MKL_ENABLE_INSTRUCTIONS) differ by at most
# 4.4e-7 of a loss and 4e-6 of a gradient norm (gpt2_norm, whose norms are the largest); these are ten times that.
LOSS, GRADIENT_NORM = 5e-6, 4e-5
SCORE = 1e-5
"""Tolerance for scores of a checkpoint; machines differ by less than 1e-6."""


def read(path: str) -> str:
    file = record.HERE / path
    assert file.exists(), f"tests/recorded/{path} is not there: make record"
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize("count", [2, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", models.CASES)
def test_first_updates_and_weights(case: str, count: int | None) -> None:
    """Together, so that no model is built twice; all updates in the slow tests."""
    built = {family: numbers.build(family, case) for family in numbers.families(case)}
    found = "".join(numbers.weights_text(family, model) for family, model in built.items())
    assert found.splitlines() == read(f"weights/{case}.tsv").splitlines()
    recorded = numbers.read_losses(read(f"losses/{case}.tsv"))
    assert list(recorded) == list(built)
    if numbers.random_numbers() != read("random_numbers.tsv"):
        pytest.skip("this build of PyTorch draws other random numbers than the recorded")
    for family, model in built.items():
        updates = numbers.updates(family, model, count)
        assert len(recorded[family]) == numbers.UPDATES[family]
        for number, (update, before) in enumerate(zip(updates, recorded[family][:count], strict=True), start=1):
            where = f"{family}, update {number}"
            assert update.loss == pytest.approx(before.loss, rel=LOSS, abs=0), where
            assert update.gradient_norm == pytest.approx(before.gradient_norm, rel=GRADIENT_NORM, abs=0), where


def test_what_users_type() -> None:
    found = dict(interface.texts())
    assert {f"interface/{name}" for name in found} == {name for name in record.recorded() if "interface/" in name}
    lost, new = {}, {}
    for name, text in found.items():
        now, before = set(text.splitlines()), set(read(f"interface/{name}").splitlines())
        lost[name], new[name] = sorted(before - now), sorted(now - before)
    assert {name: lines for name, lines in lost.items() if lines} == {}, "lost"
    assert {name: lines for name, lines in new.items() if lines} == {}, "new: make record"


def test_nothing_is_recorded_of_what_is_no_more() -> None:
    found = {Path(name).stem for name in record.recorded() if not name.startswith("interface/")}
    assert found == set(models.CASES)


@pytest.mark.parametrize("name", checkpoints.STORED)
def test_old_checkpoints_give_the_same_outputs(name: str) -> None:
    """Translations exactly, scores but for rounding."""
    found = checkpoints.outputs(name)
    recorded = [line.split("\t") for line in read(f"checkpoints/{name}/outputs.tsv").splitlines()]
    assert len(found) == len(recorded) == checkpoints.SENTENCES
    if checkpoints.STORED[name] != "language_model":
        translations = [row.pop(0) for row in found]
        assert translations == [row.pop(0) for row in recorded]
        assert len(set(translations)) > 1, "it translates everything alike, which says nothing"
    for row, before in zip(found, recorded, strict=True):
        expected = [float(score) for score in before]
        assert [float(score) for score in row] == pytest.approx(expected, rel=SCORE, abs=SCORE)


LAUNCHES = {
    f"{layers}-{layers}\t{flags}": (layers, flags) for layers in launches.DEPTHS for flags in launches.PRECISIONS
}


@pytest.mark.parametrize("case", slow_but(["6-6\t--fp16"], LAUNCHES))
def test_launches_and_waits_of_an_update(case: str) -> None:
    header, *recorded = read(launches.FILE).splitlines()
    assert (header, len(recorded)) == (launches.HEADER, len(LAUNCHES))
    layers, flags = LAUNCHES[case]
    assert list(launches.rows([layers], [flags])) == [row for row in recorded if row.startswith(f"{case}\t")]
