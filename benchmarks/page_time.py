"""How large is the page of a report on many deep trainings, and how long does a browser take to show it?

The trainings are made up. The time is that of headless Chromium until the page is ready, less that for an empty page.
Run it from the repository's root: ``python benchmarks/page_time.py --help``.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import yaml

from fairseq_plugins.tools.cli.main import main as fairseq_deep
from fairseq_plugins.tools.pipeline.checkout import CONFIGS

SEEDS, UPDATES, SENTENCES = 3, 20000, 100
CHROMIUM = "chromium --headless --no-sandbox --disable-gpu --virtual-time-budget=60000 --dump-dom".split()


def write_trainings(place: Path, trainings: int, layers: int) -> None:
    """Write trainings as ``fairseq-deep compare`` leaves them: three seeds of each recipe, ``layers`` in each stack."""
    settings = yaml.safe_load((CONFIGS / "multi30k_de_en" / "admin_18e18d.yaml").read_text(encoding="utf-8"))
    words = "a man in the red coat looks at two dogs that run over green grass near some old house".split()
    draw = random.Random(1)
    sentences = [" ".join(draw.choices(words, k=12)) for _ in range(SENTENCES)]
    for number in range(trainings):
        recipe, seed = divmod(number, SEEDS)
        run = place / f"recipe{recipe:02}" / f"seed{seed + 1}"
        (run / "checkpoints").mkdir(parents=True)
        (run / "evaluation" / "test").mkdir(parents=True)
        settings["optimization"]["lr"] = [0.0001 * (recipe + 1)]
        said = {"config": f"made/recipe{recipe:02}", "seed": seed + 1, "parameters": 10**8, "configuration": settings}
        (run / "run.json").write_text(json.dumps(said))
        (run / "finished").write_text(json.dumps({"num_updates": UPDATES, "epochs": 9}))
        lines = []
        for update in range(50, UPDATES + 1, 50):
            loss = str(4 + recipe / 10 + 4 * math.exp(-update / 3000) + draw.random() / 10)
            inner = {
                "epoch": 1,
                "loss": loss,
                "nll_loss": loss,
                "wps": "4000",
                "wpb": "4000",
                "num_updates": str(update),
            }
            lines.append(f"2026-01-01 00:00:00 | INFO | train_inner | {json.dumps(inner)}")
            if update % 500 == 0:
                valid = {"epoch": 1, "valid_nll_loss": loss, "valid_num_updates": str(update)}
                lines.append(f"2026-01-01 00:00:00 | INFO | valid | {json.dumps(valid)}")
        (run / "train.log").write_text("\n".join(lines) + "\n")
        names = [f"{stack}.layers.{layer}.ffn" for stack in ("encoder", "decoder") for layer in range(layers)]
        with (run / "checkpoints" / "recorder.jsonl").open("w") as recorder:
            for update in range(200, UPDATES + 1, 200):
                values = {f"{name}/gradient_norm": draw.lognormvariate(-3, 2) for name in names}
                entry = {"update": update, "applied": True, "values": {"gradient_norm": 1 + draw.random(), **values}}
                recorder.write(json.dumps(entry) + "\n")
        score = {"metrics": [{"name": "sacreBLEU", "value": 20 + recipe + draw.random(), "signature": "made"}]}
        (run / "evaluation" / "test" / "score.json").write_text(json.dumps(score))
        outputs = [" ".join(draw.sample(sentence.split(), k=12)) for sentence in sentences]
        for name, text in (("references", sentences), ("hypotheses", outputs)):
            (run / "evaluation" / "test" / f"{name}.txt").write_text("\n".join(text) + "\n")


def seconds(address: str) -> float:
    """Time of Chromium for one page, in real time: while a page computes, its virtual time does not go on."""
    begun = time.perf_counter()
    subprocess.run([*CHROMIUM, address], capture_output=True, check=True)
    return time.perf_counter() - begun


def main() -> None:
    """Print size and time."""
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--trainings", type=int, default=60)
    flags.add_argument("--layers", type=int, default=100, help="of the encoder, and as many of the decoder")
    flags.add_argument("--repeats", type=int, default=5)
    args = flags.parse_args()
    if shutil.which(CHROMIUM[0]) is None:
        flags.error("no chromium is installed")
    with tempfile.TemporaryDirectory() as directory:
        runs, report = Path(directory, "runs"), Path(directory, "report")
        write_trainings(runs, args.trainings, args.layers)
        begun = time.perf_counter()
        fairseq_deep(["report", str(runs), "--output", str(report)])
        made = time.perf_counter() - begun
        page = report / "report.html"
        empty = [seconds("about:blank") for _ in range(args.repeats)]
        shown = [seconds(page.as_uri()) for _ in range(args.repeats)]
        print(f"{args.trainings} trainings of {args.layers} + {args.layers} layers")
        print(f"page: {page.stat().st_size:,} bytes; the report took {made:.1f} s")
        print(f"Chromium: {min(shown):.2f} s, of which {min(empty):.2f} s for an empty page (least of {args.repeats})")


if __name__ == "__main__":
    main()
