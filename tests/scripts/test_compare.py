"""``scripts/compare.sh``: what its report would refuse after days of training is refused before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripts.running import refusal, run

ADMIN, POST_LN = (f"configs/multi30k_de_en/{method}_3e3d.yaml" for method in ("admin", "post_ln"))


@pytest.mark.parametrize("name", ["admin", "3e3d", "configs/multi30k_de_en/admin_3e3d.yaml"])
def test_a_baseline_that_is_no_row_is_refused_at_once(tmp_path: Path, name: str) -> None:
    line = refusal("compare.sh", tmp_path, tmp_path / "out", ADMIN, POST_LN, BASELINE=name)
    assert line == (
        f"unknown BASELINE '{name.removesuffix('.yaml')}'; legal values: admin_3e3d multi30k_de_en/admin_3e3d "
        "post_ln_3e3d multi30k_de_en/post_ln_3e3d"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["post_ln_3e3d", "multi30k_de_en/post_ln_3e3d.yaml"])
def test_a_baseline_is_handed_to_the_report(tmp_path: Path, name: str) -> None:
    ended = run("compare.sh", tmp_path, tmp_path / "out", ADMIN, POST_LN, BASELINE=name, SEEDS="7", DRY_RUN="1")
    assert (ended.returncode, ended.stderr) == (0, "")
    report = ended.stdout.splitlines()[-1].split()
    assert report[report.index("--baseline") + 1] == name


def test_seeds_that_are_none_are_refused_at_once(tmp_path: Path) -> None:
    line = "SEEDS must be whole numbers, not 'x'"
    assert refusal("compare.sh", tmp_path, tmp_path / "out", ADMIN, SEEDS="1 x") == line
    assert refusal("reproduce/admin_table2.sh", "iwslt14_de_en", SEEDS="1 x", OUT=str(tmp_path / "out")) == line
    assert not (tmp_path / "out").exists()
