"""The tables of the study of depth against numbers that are worked out by hand."""

import pytest

from docs import depth_tables as tables


def line(config: str, stage: str, rate: str, valid: str, outcome: str = "ok", **more: str) -> dict[str, str]:
    shared = {"parameters": "1770000", "updates": "100", "machine": "AMD EPYC", "processor_s": ""}
    return {"config": config, "stage": stage, "rate": rate, "valid": valid, "outcome": outcome, **shared, **more}


def full(config: str, seed: int, valid: float, bleu: float, rate: str = "0.001") -> dict[str, str]:
    curve = f"50:{valid + 1} 89:{valid + 0.5} 90:{1.25 * valid} 100:{valid}"
    columns = {"bleu_test": bleu, "bleu_test_averaged": bleu + 1, "chrf_test": 2 * bleu, "bleu_multi30k": bleu - 1}
    texts = {name: str(value) for name, value in columns.items()}
    p = "" if config.startswith("pre_ln") or seed == 3 else f"0.0{seed}"
    return line(config, "full", rate, str(valid), seed=str(seed), curve=curve, p_test=p, **texts)


THREE = [full("pre_ln_6e6d", seed, 4.0 + 0.1 * seed, 20.0 + seed) for seed in (1, 2, 3)]
THREE += [full("admin_6e6d", seed, 3.0 + 0.1 * seed, 30.0 + seed) for seed in (1, 2, 3)]


def test_a_training_of_a_sweep_stands_beside_the_best_of_its_configuration() -> None:
    swept = (("0.001", "5.0", "ok"), ("0.002", "4.5", "ok"), ("0.004", "4.75", "ok"), ("0.008", "", "diverged"))
    lines = [line("admin_6e6d", "sweep", *each) for each in swept]
    lines += [line("pre_ln_6e6d", "sweep", rate, valid) for rate, valid in (("0.004", "4.0"), ("0.002", "4.25"))]
    lines.append(line("post_ln_18e18d", "sweep", "0.002", "", "failed to train"))
    rows = [row.split("\t") for row in tables.sweep_tsv(lines).splitlines()[1:]]
    assert [[row[0], row[3], *row[5:]] for row in rows] == [
        ["admin_6e6d", "0.001", "ok", "5.0", "0.500", ""],
        ["admin_6e6d", "0.002", "ok", "4.5", "0.000", "best"],
        ["admin_6e6d", "0.004", "ok", "4.75", "0.250", ""],
        ["admin_6e6d", "0.008", "diverged", "", "", ""],
        ["pre_ln_6e6d", "0.002", "ok", "4.25", "0.250", ""],
        ["pre_ln_6e6d", "0.004", "ok", "4.0", "0.000", "best, highest tried"],
        ["post_ln_18e18d", "0.002", "failed to train", "", "", ""],
    ]
    lines += [line("b2t_6e6d", "sweep", "0.004", "5.0"), line("b2t_18e18d", "sweep", "0.016", "5.0")]
    lines += [line("pre_ln_18e18d", "sweep", "0.016", "5.0")]
    assert tables.rates_table(lines).splitlines()[2:] == [
        "| `post_ln` |  | fails at every rate |",
        "| `admin` | 2e-3, fails from 8e-3 |  |",
        "| `b2t`, `pre_ln` | ≥ 4e-3 | ≥ 16e-3 |",
    ]


def test_means_spreads_and_tests_over_the_seeds() -> None:
    lines = [*THREE, line("post_ln_6e6d", "full", "0.001", "", "failed to train", p_test="")]
    admin, post, base = tables.results_rows(lines, "6e6d")
    cell = ["1.77M", "100", "0.001", "3 of 3", "AMD EPYC"]
    assert base == ["`pre_ln` 6-6", *cell, "4.200 ± 0.100", "22.0 ± 1.0", "", "", ""]
    # Means 4.2 and 3.2, both with a variance of 0.01 over three seeds: t = 1 / sqrt(0.02 / 3) = 12.25, 4 degrees.
    assert admin == ["`admin` 6-6", *cell, "3.200 ± 0.100", "32.0 ± 1.0", "<0.001", "<0.001", "0.020 (2 of 3)"]
    assert post[4:] == ["0 of 1", "AMD EPYC", "", "", "", "", ""]
    assert tables.results_rows(lines, "6e6d", least_seeds=2) == [admin, base]
    assert tables.over_seeds(THREE[3:], THREE[:3], "valid") == pytest.approx(0.000255, rel=0.01)
    assert tables.over_seeds(THREE[3:4], THREE[:3], "valid") is None


def test_controls_and_cells_of_fewer_seeds_are_in_no_family() -> None:
    expected = tables.against_baseline(THREE, "6e6d", "valid")
    more = [full(f"{name}_6e6d", seed, 3.0 + 0.1 * seed, 30.0) for name in ("mhc", "pre_ln_wide") for seed in (1, 2)]
    more.append(full("pre_ln_wide_6e6d", 3, 3.0, 30.0))
    assert tables.against_baseline([*THREE, *more], "6e6d", "valid") == expected != {}


def test_another_rate_or_a_gpu_is_a_cell_of_its_own_and_a_test_takes_the_rate_with_most_seeds() -> None:
    higher = {**full("admin_6e6d", 1, 2.0, 40.0, rate="0.008"), "machine": "Intel(R) Xeon(R) Processor"}
    rows = tables.results_rows([higher, *THREE], "6e6d")
    assert [row[3:7] for row in rows[:2]] == [
        ["0.001", "3 of 3", "AMD EPYC", "3.200 ± 0.100"],
        ["0.008", "1 of 1", "Intel Xeon", "2.000"],
    ]
    assert rows[1][-3:] == ["", "", "0.010 (1 of 1)"]
    assert tables.mean_scores([higher, *THREE], "6e6d") == {"pre_ln": "6-6 22.0 BLEU", "admin": "6-6 32.0 BLEU"}
    gpu = [{**each, "machine": "NVIDIA H200", "bleu_test": "50"} for each in THREE]
    assert tables.mean_scores([*gpu, *THREE], "6e6d") == tables.mean_scores(THREE, "6e6d")
    assert [row[5] for row in tables.results_rows([*gpu, *THREE], "6e6d")] == ["NVIDIA H200", "AMD EPYC"] * 2
    mixed = [{**each, "machine": "Intel(R) Xeon(R) Processor"} if each["seed"] == "3" else each for each in THREE]
    assert tables.mean_scores(mixed, "6e6d") == tables.mean_scores(THREE, "6e6d")
    assert {row[5] for row in tables.results_rows(mixed, "6e6d")} == {"AMD EPYC, Intel Xeon"}


def test_a_verdict_follows_the_mean_and_the_test() -> None:
    """Variances of 0.01 and three seeds: a mean that is 1 lower has p = 0.000255, as above."""
    failed = [line("post_ln_18e18d", "sweep", rate, "", "failed to train") for rate in tables.RATES]
    assert "| 0 of 3 learnt |  | open |" in tables.verdicts_table(failed[:3])
    lines = [*failed, full("admin_18e18d", 1, 3.0, 20.0), full("pre_ln_18e18d", 1, 3.0, 21.0)]
    lines += [full("b2t_18e18d", seed, 3.0 + 0.1 * seed, 20.0, rate="0.002") for seed in (1, 2, 3)]
    lines += [full("b2t_6e6d", seed, 4.0 + 0.1 * seed, 20.0) for seed in (1, 2, 3)]
    lines += [full("admin_6e6d", seed, 2.9 + 0.1 * seed, 20.0) for seed in (1, 2, 3)]
    rows = [[cell.strip() for cell in row.split("|")[1:8]] for row in tables.verdicts_table(lines).splitlines()[2:]]
    sizes = ["1.77M, 1.77M", "100"]
    same = [*sizes, "0.001, 0.001"]
    assert rows[:4] == [
        ["H1: Post-LN fails at 18-18", "1.77M", "600, 3000", "all", "0 of 4 learnt", "", "supported"],
        ["H2: depth helps Admin", *same, "3.000, 3.100 bits", "", "undecided, 1 of 3 seeds"],
        ["H2: depth helps B2T", *sizes, "0.002, 0.001", "3.200, 4.200 bits", "\\<0.001", "supported"],
        ["H3: Admin is better than Pre-LN at 18-18", *same, "20.0, 21.0 BLEU", "", "not supported, 1 of 3 seeds"],
    ]
    assert [(row[0][:2], row[-1]) for row in rows[5:]] == [("H4", "open")] * 4 + [("H5", "open")] * 2
    lines.append(full("post_ln_18e18d", 1, 7.5, 0.1))
    assert "| 1 of 5 learnt, the best 7.500 bits |  | not supported |" in tables.verdicts_table(lines)


def test_a_change_stands_beside_the_training_without_it() -> None:
    changed = [
        ("admin_warm_up_1000", 2, 2.0, 40.0),
        ("admin_base_init", 2, 3.5, 25.0),
        ("pre_ln_base_init", 1, 5.0, 9.0),
    ]
    lines = [*THREE, *(full(f"{name}_6e6d", *scores) for name, *scores in changed)]
    rows = [[cell.strip() for cell in row.split("|")[1:10]] for row in tables.changes_table(lines).splitlines()[2:]]
    same = ["1.77M", "100", "0.001", "AMD EPYC"]
    assert rows == [
        ["`admin` 6-6", *same, "3.200, 32.0", "3.500, 25.0", "2.000, 40.0", ""],
        ["`pre_ln` 6-6", *same, "4.100, 21.0", "5.000, 9.0", "", ""],
    ]


def test_the_fields_of_a_page() -> None:
    timed = [
        ("admin_6e6d", "6", tables.TIMED_ON),
        ("pre_ln_18e18d", "8", tables.TIMED_ON),
        ("admin_6e6d", "9", "AMD EPYC"),
    ]
    lines = [line(config, "sweep", "0.004", "5.0", processor_s=s, machine=on) for config, s, on in timed]
    lines += [*THREE, {**full("admin_6e6d", 2, 1.0, 40.5), "stage": "long"}]
    said = "{{bits admin_6e6d}} {{p bits admin_6e6d pre_ln_6e6d}} {{time admin_6e6d}} {{gained admin_6e6d}}"
    assert tables.page(said, lines) == "3.200 <0.001 0.75 32.0 to 40.5"
    with pytest.raises(ValueError, match="b2t_6e6d has not been trained"):
        tables.page("{{bleu b2t_6e6d}}", lines)


def test_holm_s_correction() -> None:
    """The example of the correction's own definition: three tests, of which the second is held by the first."""
    assert tables.holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": None}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
