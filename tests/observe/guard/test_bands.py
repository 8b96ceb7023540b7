"""Running bands: what is constant, scaled or noisy is quiet, a jump is seen where it is, and a trend is followed."""

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.tools.observe.guard.signals import LEAST_HISTORY, Band, Signals, Update, hopeless

seeds = st.integers(0, 2**32)
scales = st.floats(-8, 8).map(lambda exponent: 10.0**exponent)


def findings(norms: list[float], losses: list[float] | None = None, tokens: list[float] | None = None) -> dict:
    signals, found = Signals(8.0), {}
    for number, norm in enumerate(norms, start=1):
        loss = losses[number - 1] if losses else 5.0
        update = Update(number, loss, loss, norm, 1e-3, False, tokens[number - 1] if tokens else 4000.0)
        if (finding := signals.judge(update)) is not None:
            found[number] = finding
    return found


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=80))
def test_mean_and_deviation_of_the_first_values_are_the_plain_ones(values: list[float]) -> None:
    band = Band(0.0)
    for value in values:
        band.take(value)
    assert band.mean == pytest.approx(statistics.fmean(values), abs=1e-9 * 1e3)
    assert band.deviation == pytest.approx(statistics.pstdev(values), rel=1e-6, abs=1e-6)


@given(scales, seeds, st.sampled_from([0.0, 0.1, 0.3, 0.5]))
def test_noise_at_any_scale_is_quiet(scale: float, seed: int, noise: float) -> None:
    draw = random.Random(seed)
    norms = [scale * math.exp(noise * draw.gauss(0, 1)) for _ in range(200)]
    losses = [5.0 + noise * draw.gauss(0, 1) for _ in norms]
    assert findings(norms, losses) == {}


@given(scales, seeds, st.integers(LEAST_HISTORY + 1, 150))
def test_a_jump_by_a_hundred_is_found_where_it_is(scale: float, seed: int, index: int) -> None:
    draw = random.Random(seed)
    norms = [scale * math.exp(0.3 * draw.gauss(0, 1)) for _ in range(150)]
    norms[index - 1] *= 100
    found = findings(norms)
    assert list(found) == [index]
    assert found[index].gradient_alone


def test_a_training_that_learns_is_quiet() -> None:
    """Loss from 14 bits to 4; the gradient falls tenfold, then rises threefold, as in warm-up."""
    steps = range(400)
    losses = [4.0 + 10.0 * math.exp(-step / 40) + 0.2 * math.sin(step) for step in steps]
    norms = [(0.5 + 4.5 * math.exp(-step / 20)) * (1 + 2 * step / 400) for step in steps]
    assert findings(norms, losses) == {}


def test_a_small_batch_may_be_further_off() -> None:
    """A batch with a hundredth of the tokens: ten times the deviation, and ten times the gradient."""
    tokens = [4000.0] * 60
    norms, losses = [1.0] * 60, [5.0] * 60
    norms[50], losses[50] = 20.0, 9.0
    assert list(findings(norms, losses, tokens)) == [51]
    tokens[50] = 40.0
    assert findings(norms, losses, tokens) == {}


def test_a_loss_that_creeps_up_is_found_by_the_best_there_was() -> None:
    """Slowly enough for the band to follow. The best is 5 bits; a recent mean above 5 + 8 * 0.25 / 2 is lost ground."""
    losses = [5.0] * 60 + [5.0 + 0.03 * step for step in range(1, 80)]
    found = findings([1.0] * len(losses), losses)
    first = min(found)
    # The mean of the last ten or so lags behind a rise of 0.03 an update by nine of them.
    assert 6.0 < losses[first - 1] < 6.35
    assert "its recent mean 6.0" in found[first].reason
    # One loss that is high, but inside of the band, is none.
    assert findings([1.0] * 80, [5.0] * 60 + [6.9] + [5.0] * 19) == {}


def test_a_jump_after_a_steep_fall_is_found() -> None:
    """The first hundreds of updates of a training look so: the mean falls by half."""
    losses = [7.0 + 5.4 * math.exp(-step / 40) + 0.3 * math.sin(7 * step) for step in range(190)]
    found = findings([1.0] * 191, [*losses, 11.0])
    assert list(found) == [191]


def test_what_is_not_finite_needs_no_history() -> None:
    for loss, norm, scaled, given_up, reason in (
        (math.nan, 1.0, False, False, "the loss is not a number"),
        (math.inf, 1.0, True, False, "the loss is infinite"),
        (5.0, math.inf, False, False, "the gradient norm is infinite"),
    ):
        assert hopeless(Update(1, loss, loss, norm, 1e-3, scaled), given_up) == reason
