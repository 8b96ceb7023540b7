"""The report for a browser: what it shows of made runs with known numbers, and what a real browser does with it."""

from __future__ import annotations

import base64
import gzip
import html
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.cli.main import main
from fairseq_plugins.tools.observe.recorder.entries import Entry
from fairseq_plugins.tools.pipeline import page
from fairseq_plugins.tools.pipeline.report import make_report
from tests.pipeline.making import write_run

HOSTILE = "<img src=x onerror=alert(1)></script>"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NORMS = {
    "gradient_norm": 9.0,
    "encoder.layers.0.self_attn/gradient_norm": 3.0,
    "encoder.layers.0.ffn/gradient_norm": 4.0,
    "encoder.layers.0.ffn/branch_gradient_norm": 100.0,
    "encoder.layers.1.ffn/gradient_norm": float("inf"),
    "decoder.layers.10.ffn/gradient_norm": 2.0,
    "decoder.layers.9.ffn/gradient_norm": 0.00123456,
    "encoder.embed_tokens/gradient_norm": 7.0,
}
EVENT = {"divergence_guard": "a spike; noted", "update": 3, "ends": ""}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two seeds of Admin, one of which is recorded, and a run of Pre-LN with hostile text."""
    place = tmp_path / "runs"
    texts = ([f"line {number}" for number in range(20)], [f"reference {number}" for number in range(20)])
    for seed, loss in ((1, 4.0), (2, 5.0)):
        valid = {2: loss, 4: 3.0, 6: float("nan")}
        write_run(
            place / f"a{seed}", seed=seed, valid=valid, speeds=[500.0] * 4, scores={"sacreBLEU": seed}, texts=texts
        )
    with (place / "a1" / "train.log").open("a") as log:
        log.write(f"2026-01-01 00:00:00 | INFO | guard | {json.dumps(EVENT)}\n")
    (place / "a1" / "checkpoints").mkdir()
    lines = [
        Entry(update, True, {**NORMS, "decoder.layers.10.ffn/gradient_norm": update}).to_json() for update in (5, 9)
    ]
    (place / "a1" / "checkpoints" / "recorder.jsonl").write_text("\n".join(lines))
    write_run(
        place / "b",
        config=f"x/{HOSTILE.replace('/', '')}",
        scores={"sacreBLEU": 10.0},
        texts=([HOSTILE, *texts[0][1:]], texts[1]),
        record={"devices": [HOSTILE]},
    )
    return place


def data_of(runs: Path) -> dict[str, Any]:
    return page.data(make_report([runs]).groups)


def test_curves_are_means_with_a_band_over_updates_and_hours(runs: Path) -> None:
    points = [point for point in data_of(runs)["curves"] if point["group"] == "admin_6e6d"]
    names = ("kind", "updates", "hours", "loss", "low", "high")
    # 1000 words a batch at 500 a second are 2 seconds an update; the deviation of 4 and 5 is 0.7071. NaN is no point.
    assert [tuple(point[name] for name in names) for point in points][:3] == [
        ("validation", 2, 0.001111, 4.5, 3.793, 5.207),
        ("validation", 4, 0.002222, 3.0, 3.0, 3.0),
        ("training", 1, 0.0005556, 8.0, 8.0, 8.0),
    ]


def test_the_norm_of_a_layer_is_that_of_its_sub_layers_and_the_guard_is_on_the_time_axis(runs: Path) -> None:
    shown = data_of(runs)
    assert shown["runs"][:2] == ["admin_6e6d, seed 1", "admin_6e6d, seed 2"]
    assert shown["of"] == [0, 0, 1]
    stacks = {"encoder": {0: [5.0, 5.0], 1: [None, None]}, "decoder": {9: [0.00123, 0.00123], 10: [5.0, 9.0]}}
    assert shown["gradients"] == [{"updates": [5, 9], "stacks": stacks}, None, None]
    assert shown["shades"][0] == pytest.approx(0.00123)
    assert shown["shades"][1] == 9.0
    event = {"group": "admin_6e6d", "run": "admin_6e6d, seed 1", "updates": 3, "hours": 0.001667}
    assert shown["events"] == [{**event, "says": "a spike; noted"}]


def test_runs_of_one_seed_and_those_without_one_have_names(runs: Path) -> None:
    shutil.copytree(runs / "a1", runs / "again")
    (runs / "b" / "run.json").unlink()
    directory = os.path.relpath(runs / "b")
    names = {"admin_6e6d, seed 2", directory, *(f"admin_6e6d, seed 1, {runs / name}" for name in ("a1", "again"))}
    assert set(data_of(runs)["runs"]) == names


def test_a_heat_map_keeps_the_update_whose_norm_is_not_a_number(runs: Path) -> None:
    norms = [float("nan") if update == 500 else 1.0 for update in range(1000)]
    lines = [Entry(place, True, {**NORMS, "gradient_norm": norm}).to_json() for place, norm in enumerate(norms)]
    (runs / "a1" / "checkpoints" / "recorder.jsonl").write_text("\n".join(lines))
    assert 500 in data_of(runs)["gradients"][0]["updates"]


def test_a_recipe_may_be_called_reference(tmp_path: Path) -> None:
    texts = (["said", "so"], ["meant", "this"])
    write_run(tmp_path / "a", config="x/reference", scores={"sacreBLEU": 1.0}, texts=texts)
    shown = page.sentences(make_report([tmp_path]).groups)
    assert shown == [["", "reference", "reference"], ["1", "meant", "said"], ["2", "this", "so"]]


def test_settings_and_sentences_are_side_by_side(runs: Path) -> None:
    shown = data_of(runs)
    pairs = zip(shown["keys"], *shown["settings"], strict=True)
    differing = {key: (first, second) for key, first, second, _ in pairs if first != second}
    assert differing == {"seed": ("1", "2"), "overrides": ('["common.seed=1"]', '["common.seed=2"]')}
    assert dict(zip(shown["keys"], shown["settings"][0], strict=True))["configuration.model.encoder_layers"] == "6"
    header, *rows = page.sentences(make_report([runs]).groups)
    assert header[1:3] == ["reference", "admin_6e6d"]
    assert [row[:3] for row in rows[:2]] == [["1", "reference 0", "line 0"], ["3", "reference 2", "line 2"]]
    assert (len(rows), rows[0][3]) == (10, HOSTILE)


def test_a_thinned_curve_keeps_its_spikes_and_its_end() -> None:
    points = [(place, 1.0 + (place == 617)) for place in range(1000)]
    for most in (10, 50, 999):
        kept = page.thinned(points, most, lambda point: point[1])
        assert len(kept) == most
        assert {(617, 2.0), (999, 1.0)} <= set(kept)
        assert kept == sorted(kept)
    assert page.thinned(points, 1000, lambda point: point[1]) == points


class Tags(HTMLParser):
    """The elements of a page, and the addresses that it names."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [f"{name}={value}" for name, value in attrs if name in ("src", "href", "srcset", "action")]


def test_text_of_others_is_never_markup_and_nothing_is_fetched(runs: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(page, "vega", lambda: "/* <!--data--> */")
    target = tmp_path / "report" / "report.html"
    assert main(["report", str(runs), "--output", str(target.parent)]) == 0
    text = target.read_text(encoding="utf-8")
    assert "/* <!--data--> */" in text
    tags = Tags()
    tags.feed(text)
    assert (tags.tags.count("script"), tags.tags.count("img"), tags.addresses) == (3, 0, [])
    assert text.count(html.escape(HOSTILE)) == 2  # a sentence and a device
    packed = re.search(r'id="data">([\w+/=]+)</script>', text)
    assert json.loads(gzip.decompress(base64.b64decode(packed[1])))["runs"] == data_of(runs)["runs"]


def test_without_vl_convert_a_page_is_left_out(runs: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert main(["report", str(runs), "--output", str(tmp_path / "report")]) == 0
    assert capsys.readouterr().out.endswith(f"{page.NO_PAGE}\n")
    assert not list(tmp_path.rglob("*.html"))


def test_a_page_that_cannot_be_made_leaves_no_half_of_a_report(runs: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    def refused(path: Path) -> list[Entry]:
        raise UserError(f"{path}: Permission denied")

    monkeypatch.setattr(page, "read", refused)
    assert main(["report", str(runs), "--output", str(tmp_path / "report")]) == 2
    assert capsys.readouterr().err.endswith("recorder.jsonl: Permission denied\n")
    assert not (tmp_path / "report").exists()


# --- a browser ------------------------------------------------------------------------------------------------------


def browse(target: Path, actions: str) -> Any:
    """Open a page in a browser, and return what ``actions`` return in it when it is ready.

    An error in the console fails the test.
    """
    script = (
        "<script type='module'>"
        "while (!document.documentElement.dataset.ready) await new Promise(requestAnimationFrame);"
        f"const done = await (async () => {{ {actions} }})(); const place = document.createElement('pre');"
        "place.id = 'done'; place.textContent = JSON.stringify(done); document.body.append(place);</script>"
    )
    copy = target.with_name("browsed.html")
    copy.write_text(target.read_text(encoding="utf-8") + script, encoding="utf-8")
    flags = "--headless --no-sandbox --disable-gpu --enable-logging=stderr --virtual-time-budget=60000 --dump-dom"
    command = [str(BROWSER), *flags.split(), copy.as_uri()]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert [line for line in ended.stderr.splitlines() if "CONSOLE" in line] == []
    said = re.search(r'<pre id="done">(.*?)</pre>', ended.stdout, re.DOTALL)
    assert said is not None, ended.stdout[-2000:]
    return json.loads(html.unescape(said[1]))


SORT_AND_HIDE = """
const column = (place) => [...document.querySelectorAll("#scores tbody tr")].map((row) => row.cells[place].innerText);
const [names, scores] = [column(0), column(6)];
const header = document.querySelectorAll("#scores th")[6];
header.click();
const up = column(6);
header.click();
const down = column(6);
const canvas = document.querySelector("#losses canvas");
const before = canvas.toDataURL();
const drawn = () => new Promise((done) => setTimeout(done, 500));
const others = [...document.querySelectorAll("#sentences th")];
document.querySelectorAll("#scores input")[1].click();
await drawn();
const shown = others.filter((cell) => !cell.hidden).length;
const hidden = canvas.toDataURL() !== before;
document.querySelectorAll("#scores input")[1].click();
await drawn();
const again = canvas.toDataURL() === before;
const right = document.getElementById("right");
right.value = 1;
right.dispatchEvent(new Event("change"));
const settings = [...document.querySelectorAll("#differences td:first-child")].map((cell) => cell.innerText);
const maps = document.querySelectorAll("#gradients canvas").length;
return {names, header: header.innerText, up, down, columns: others.length, shown, hidden, again, settings, maps};
"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_a_browser_sorts_hides_and_compares_without_an_error(runs: Path, tmp_path: Path) -> None:
    target = tmp_path / "report" / "report.html"
    assert main(["report", str(runs), "--output", str(target.parent)]) == 0
    done = browse(target, SORT_AND_HIDE)
    assert done["header"].startswith("test sacreBLEU")
    assert (done["up"], done["down"]) == (["1.50 ± 0.71", "10.00 *"], ["10.00 *", "1.50 ± 0.71"])
    assert (done["columns"], done["shown"], done["hidden"], done["again"]) == (4, 3, True, True)
    assert (done["settings"], done["maps"]) == (["overrides", "seed"], 1)


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_sixty_trainings_of_a_hundred_layers_are_a_page_of_five_megabytes(tmp_path: Path) -> None:
    from benchmarks.page_time import write_trainings

    write_trainings(tmp_path / "runs", trainings=60, layers=100)
    target = tmp_path / "report" / "report.html"
    assert main(["report", str(tmp_path / "runs"), "--output", str(target.parent)]) == 0
    assert target.stat().st_size <= 5_000_000
    count = "return document.querySelectorAll('#scores tbody tr').length;"
    assert browse(target, count) == 20
