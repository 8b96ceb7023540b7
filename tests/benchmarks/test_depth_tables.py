"""The tables of the study of depth against numbers that are worked out by hand."""

from __future__ import annotations

import pytest

from docs import depth_tables as tables


def line(config: str, stage: str, rate: str, valid: str, outcome: str = "ok", **more: str) -> dict[str, str]:
    return {"config": config, "stage": stage, "rate": rate, "valid": valid, "outcome": outcome, **more}


def full(config: str, seed: int, valid: float, bleu: float) -> dict[str, str]:
    curve = f"50:{valid + 1} 89:{valid + 0.5} 90:{1.25 * valid} 100:{valid}"
    columns = {"bleu_test": bleu, "bleu_test_averaged": bleu + 1, "chrf_test": 2 * bleu, "bleu_multi30k": bleu - 1}
    texts = {name: str(value) for name, value in columns.items()}
    p = "" if config.startswith("pre_ln") else f"0.0{seed}"
    more = {"seed": str(seed), "updates": "100", "curve": curve, "p_test": p}
    more |= {"processor_s": "7", "wall_s": "70", "device": "cpu"}
    return line(config, "full", "0.001", str(valid), **more, **texts)


def test_the_sensitivity_is_what_half_and_twice_the_best_rate_cost() -> None:
    swept = (("0.001", "5.0"), ("0.002", "4.5"), ("0.004", "4.75"))
    lines = [line("admin_6e6d", "sweep", rate, valid) for rate, valid in swept]
    lines += [line("pre_ln_6e6d", "sweep", "0.001", "", "diverged"), line("pre_ln_6e6d", "sweep", "0.002", "4.0")]
    lines.append(line("post_ln_18e18d", "sweep", "0.002", "", "failed to train"))
    assert [row.split("|")[1:5] for row in tables.sensitivity_table(lines).splitlines()[2:]] == [
        [" `admin` 6-6 ", " 0.002 ", " +0.500 ", " +0.250 "],
        [" `pre_ln` 6-6 ", " 0.002 ", " diverged ", " not tried "],
    ]


def test_the_best_rate_of_a_whole_sweep_is_bold_and_marked_at_an_end() -> None:
    lines = [line("admin_6e6d", "sweep", rate, valid) for rate, valid in (("0.001", "5.0"), ("0.002", "4.5"))]
    lines += [
        line("pre_ln_18e18d", "sweep", "0.001", "", "diverged"),
        line("pre_ln_18e18d", "sweep", "0.002", "6.5"),
        line("pre_ln_6e6d", "sweep", "0.001", "5.5"),
    ]
    assert tables.sweep_table(lines).splitlines()[2:] == [
        "| `admin` 6-6 | 5.0 | **4.5** * |",
        "| `pre_ln` 6-6 | 5.5 |  |",
        "| `pre_ln` 18-18 | diverged | **6.5** * |",
    ]


def test_means_spreads_and_tests_over_the_seeds() -> None:
    lines = [full("pre_ln_6e6d", seed, 4.0 + 0.1 * seed, 20.0 + seed) for seed in (1, 2, 3)]
    lines += [full("admin_6e6d", seed, 3.0 + 0.1 * seed, 30.0 + seed) for seed in (1, 2, 3)]
    lines += [line("post_ln_6e6d", "full", "0.001", "", "failed to train", p_test="")]
    admin, post, base = tables.results_table(lines, "6e6d").splitlines()[2:]
    values = "3 of 3 | 0.001 | 4.200 ± 0.100 | 5.200 | 20.0 | 22.0 ± 1.0 | 23.0 ± 1.0 | 44.0 ± 2.0 | 21.0 ± 1.0"
    # 5 bits are reached at 57.8, 65.6 and 73.4 of 100 updates: after 4.59 of 7 seconds of the processor in the mean.
    assert base == f"| `pre_ln` 6-6 | {values} |  |  |  | 7 | 5 | 46 |"
    # Means 4.2 and 3.2, both with a variance of 0.01 over three seeds: t = 1 / sqrt(0.02 / 3) = 12.25, 4 degrees.
    assert admin.split(" | ")[-6:] == ["0.030", "0.000", "0.000", "7", "4", "35 |"]
    assert post.startswith("| `post_ln` 6-6 | 0 of 1 | 0.001 |  |")
    assert tables.over_seeds(lines[3:6], lines[:3], "valid") == pytest.approx(0.000255, rel=0.01)
    assert tables.over_seeds(lines[3:4], lines[:3], "valid") is None
    # Two seeds of one more method are in no test, and leave the others' correction as it is.
    more = [full("mhc_6e6d", seed, 3.0 + 0.1 * seed, 30.0) for seed in (1, 2)]
    expected = tables.against_baseline(lines, "6e6d", "valid")
    assert tables.against_baseline(lines + more, "6e6d", "valid") == expected != {}


def test_a_verdict_follows_the_mean_and_the_test() -> None:
    """Variances of 0.01 and three seeds: a mean that is 1 lower has p = 0.000255, as above."""
    failed = [line("post_ln_18e18d", "sweep", str(rate), "", "failed to train") for rate in (1, 2, 4, 8)]
    assert "0 of 3 trainings have learnt |  | open" in tables.verdicts_table(failed[:3])
    lines = [*failed, full("admin_18e18d", 1, 3.0, 20.0), full("pre_ln_18e18d", 1, 3.0, 21.0)]
    lines += [full("b2t_18e18d", seed, 3.0 + 0.1 * seed, 20.0) for seed in (1, 2, 3)]
    lines += [full("b2t_6e6d", seed, 4.0 + 0.1 * seed, 20.0) for seed in (1, 2, 3)]
    lines += [full("admin_6e6d", seed, 2.9 + 0.1 * seed, 20.0) for seed in (1, 2, 3)]
    rows = [[cell.strip() for cell in row.split("|")[1:5]] for row in tables.verdicts_table(lines).splitlines()[2:]]
    assert rows[:4] == [
        ["H1: Post-LN fails at 18-18", "0 of 4 trainings have learnt", "", "supported"],
        ["H2: depth pays for Admin", "3.000 against 3.100 bits", "", "undecided, 1 of 3 seeds"],
        ["H2: depth pays for B2T", "3.200 against 4.200 bits", "0.000", "supported"],
        ["H3: Admin is better than Pre-LN at 18-18", "20.0 against 21.0 BLEU", "", "refuted, 1 of 3 seeds"],
    ]
    assert [(row[0][:2], row[-1]) for row in rows[5:]] == [("H4", "open")] * 4 + [("H5", "open")] * 2
    lines.append({**full("post_ln_18e18d", 1, 7.5, 0.1)})
    assert "| 1 of 5 trainings have learnt, the best 7.500 bits |  | refuted |" in tables.verdicts_table(lines)


def test_a_long_training_stands_below_the_short_one_of_its_seed() -> None:
    short, other = (full("admin_6e6d", seed, 4.0, 20.0) for seed in (1, 2))
    long = {**short, "stage": "long", "updates": "300", "curve": "150:3.5 270:3.125 300:3.0", "valid": "3.0"}
    assert tables.long_table([long, other, short, full("b2t_6e6d", 1, 3.0, 20.0)]).splitlines()[2:] == [
        "| `admin` 6-6 | 100 | 4.0 | 5.000 | 20.00 | 20.0 | 21.0 | 40.0 | 19.0 | 0.01 |",
        "| `admin` 6-6 | 300 | 3.0 | 3.500 | 4.00 | 20.0 | 21.0 | 40.0 | 19.0 | 0.01 |",
    ]


def test_holm_s_correction() -> None:
    """The example of the correction's own definition: three tests, of which the second is held by the first."""
    assert tables.holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": None}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
