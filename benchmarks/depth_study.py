"""The study of ``docs/results/depth_protocol.md``: rates tuned for each method and depth, then trainings to the end.

Each training is ``fairseq-deep run`` and ``fairseq-deep evaluate`` on a file of ``configs/tatoeba_de_en``. As soon as
it ends, its line is in ``docs/results/depth.tsv``; what has a line is not trained again. A stopped training goes on.
The methods are called as these files, also ``pre_ln_wide`` (at 6-6 alone) and ``rezero_warm_up``.
Run it from the repository's root: ``python benchmarks/depth_study.py --help``.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import torch

from fairseq_plugins.lines import read_lines
from fairseq_plugins.tools.pipeline.checkout import commit
from fairseq_plugins.tools.pipeline.machine import this_machine
from fairseq_plugins.tools.pipeline.results import HYPOTHESES, REFERENCES, Run, read_run
from fairseq_plugins.tools.pipeline.verdicts import verdict_of
from fairseq_plugins.tools.pipeline.workspace import Workspace
from fairseq_plugins.tools.scoring.significance import compare

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results" / "depth.tsv"
BASELINE = "pre_ln"
DEPTHS = ("18e18d", "6e6d")
RATES = (5e-4, 1e-3, 2e-3, 4e-3)
HIGHEST = 16e-3
"""The rate at which a sweep ends at the latest: while the highest tried is the best, twice that rate is tried."""


@dataclass
class Settings:
    """Settings of a call.

    Attributes:
        results: the file with a line for each training.
        rates: those of a sweep.
        highest: see ``HIGHEST``.
        rate: of the trainings to the end, without a sweep; None for the best of the sweep.
        precision: of every training, as ``fairseq-deep run --precision`` names it.
        changes: to every configuration, as ``KEY=VALUE``.
        gpu: name of the GPU that trains; empty for a CPU.
    """

    results: Path = RESULTS
    rates: Sequence[float] = RATES
    highest: float = HIGHEST
    rate: float | None = None
    precision: str = "fp32"
    changes: Sequence[str] = ()
    gpu: str = ""


settings = Settings()
SWEEP, FULL, LONG = "sweep", "full", "long"
SEEDS = (1, 2, 3)
LENGTHS = {SWEEP: 0.2, FULL: 1, LONG: 3}
"""The updates of a stage, as a multiple of those of a training to the end."""
TEST_SETS = ("test", "multi30k")
LAST = 3
"""Checkpoints of the last tenth, which are averaged."""
COLUMNS = (
    *("config", "stage", "seed", "rate", "updates", "outcome", "valid", "best_update"),
    *(f"{metric}_{name}{kind}" for kind in ("", "_averaged") for name in TEST_SETS for metric in ("bleu", "chrf")),
    *("p_test", "processor_s", "wall_s", "parameters", "machine", "revision", "curve"),
)


@dataclass(frozen=True)
class Training:
    """One training: the name of its file in ``configs/tatoeba_de_en``, a stage of ``LENGTHS``, its seed and rate."""

    config: str
    stage: str
    seed: int
    rate: float

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that tell its line from all others."""
        return self.config, self.stage, str(self.seed), f"{self.rate:g}"

    def directory(self, out: Path) -> Path:
        """Where it is trained."""
        return out / self.config / "-".join(self.key[1:])


def lines() -> list[dict[str, str]]:
    """The lines of the results file."""
    if not settings.results.exists():
        return []
    with open(settings.results, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def machine() -> str:
    """The name of the processor that trains."""
    return settings.gpu or this_machine(cpu_wanted=True).processor


def best_rate(config: str) -> float | None:
    """The rate with the lowest validation loss of the sweep; None before the sweep is complete."""
    swept = [line for line in lines() if line["config"] == config and line["stage"] == SWEEP]
    losses = {float(line["rate"]): float(line["valid"] or "inf") for line in swept}
    return min(sorted(losses), key=lambda rate: losses[rate]) if set(losses) >= set(settings.rates) else None


def higher_rate(config: str) -> float | None:
    """Twice the highest rate that was tried, if that is the best; None if the sweep has ended."""
    best = best_rate(config)
    tried = [float(line["rate"]) for line in lines() if line["config"] == config and line["stage"] == SWEEP]
    return 2 * best if best is not None and best == max(tried) and best < settings.highest else None


def baseline(config: str) -> str:
    """The configuration against which one is tested: the baseline's of the same depth."""
    return f"{BASELINE}_{config.rpartition('_')[2]}"


def hopeless(config: str) -> bool:
    """Whether nothing of it has learnt: neither a rate of the sweep nor a training to the end."""
    outcomes = [(line["stage"], line["outcome"]) for line in lines() if line["config"] == config]
    return any(stage == FULL for stage, _ in outcomes) and not any(outcome == "ok" for _, outcome in outcomes)


def stages(configs: Sequence[str], seeds: Sequence[int], last: str = FULL) -> Iterator[list[Training]]:
    """The trainings in their order; those of a list do not depend on each other. ``last`` comes after the sweep."""
    for config in configs if settings.rate is None else ():
        yield [Training(config, SWEEP, 1, rate) for rate in settings.rates]
        while (higher := higher_rate(config)) is not None:
            yield [Training(config, SWEEP, 1, higher)]
    if last == SWEEP:
        return
    for seed in seeds:
        rates = {config: settings.rate or best_rate(config) for config in configs}
        full = [Training(config, last, seed, rate) for config, rate in rates.items() if rate is not None]
        full = [training for training in full if not hopeless(training.config)]
        # The baseline comes first: the others are tested against its translations.
        yield sorted(full, key=lambda training: training.config != baseline(training.config))


def train(training: Training, data: Path, out: Path, updates: int, theirs: Future[None] | None) -> dict[str, str]:
    """Train, and after the sweep also translate and score; return the line of the results file.

    The scores wait for ``theirs``, the training of the baseline, against which they are tested.
    """
    directory = training.directory(out)
    resumed = (directory / "train.log").exists()
    length = round(updates * LENGTHS[training.stage])
    changes = [f"common.seed={training.seed}", f"optimization.lr=[{training.rate:g}]"]
    changes += [f"optimization.max_update={length}", f"lr_scheduler.total_num_update={length}"]
    changes += [*(["common.cpu=false"] if settings.gpu else []), *settings.changes]
    config = ROOT / "configs" / "tatoeba_de_en" / f"{training.config}.yaml"
    used, passed = _call("run", "--precision", settings.precision, "--quiet", config, data, directory, *changes)
    run = read_run(directory)
    outcome = verdict_of(run).outcome.replace("not evaluated", "ok")
    losses = run.log.valid_loss
    line = dict.fromkeys(COLUMNS, "")
    line |= dict(zip(("config", "stage", "seed", "rate"), training.key, strict=True))
    line |= {"updates": str(run.updates), "outcome": outcome, "revision": (commit() or "")[:12]}
    line["machine"] = machine()
    line["parameters"] = str(run.settings["parameters"])
    # A resumed training does not know what it took before, and one on a GPU uses little of the processor.
    if not resumed:
        line |= {"processor_s": "" if settings.gpu else f"{used:.0f}", "wall_s": f"{passed:.0f}"}
    line["curve"] = " ".join(f"{update}:{loss:.3f}" for update, loss in sorted(losses.items()))
    if outcome == "ok":
        best = min(losses, key=lambda update: losses[update])
        line |= {"valid": f"{losses[best]:.3f}", "best_update": str(best)}
        if training.stage != SWEEP:
            if theirs is not None:
                theirs.result()
            line |= scores(run, data, out, training)
    return line


def scores(run: Run, data: Path, out: Path, training: Training) -> dict[str, str]:
    """BLEU and chrF of the checkpoint with the best validation loss and of the average, and the p-value."""
    found = {}
    for kind, average in (("", run.checkpoints / "checkpoint_best.pt"), ("_averaged", f"last-updates={LAST}")):
        place = run.directory / f"evaluation{kind}"
        _call("evaluate", run.directory, data, *TEST_SETS, "--output", place, "--average", average)
        for name in TEST_SETS:
            metrics = json.loads((place / name / "score.json").read_text(encoding="utf-8"))["metrics"]
            values = {metric["name"].lower(): metric["value"] for metric in metrics}
            for metric, value in (("bleu", values["sacrebleu"]), ("chrf", values["chrf"])):
                found[f"{metric}_{name}{kind}"] = f"{value:.2f}"
    ours = run.directory / "evaluation" / TEST_SETS[0]
    theirs_at = baseline(training.config)
    # Some baselines are trained at several rates: the rate with the most seeds is the baseline.
    wanted = (theirs_at, training.stage, "ok")
    rates = Counter(line["rate"] for line in lines() if (line["config"], line["stage"], line["outcome"]) == wanted)
    for rate, _ in rates.most_common(1) if theirs_at != training.config else ():
        theirs = out / theirs_at / f"{training.stage}-{training.seed}-{rate}" / "evaluation" / TEST_SETS[0]
        if (theirs / HYPOTHESES).exists():
            systems = {place.parents[2].name: _lines(place / HYPOTHESES) for place in (theirs, ours)}
            [tested] = compare(systems, [_lines(ours / REFERENCES)], tests=["bootstrap"])
            found["p_test"] = f"{tested.p:.3f}"
    return found


def _lines(path: Path) -> list[str]:
    return list(read_lines(path))


def _call(command: str, *words: str | Path) -> tuple[float, float]:
    """Run a command of the package; return its seconds of processor and wall time. A divergence is a result, too."""
    begun = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", "fairseq_plugins.tools.cli", command, *map(str, words)],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    _, status, used = os.wait4(child.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"{command} has failed: {' '.join(map(str, words))}")
    return used.ru_utime + used.ru_stime, time.monotonic() - begun


def train_all(trainings: Sequence[Training], one: Callable[[Training, Future[None] | None], None], jobs: int) -> None:
    """Call ``one`` for each training, with what waits for its baseline; after one that fails none is begun."""
    with ThreadPoolExecutor(jobs) as pool:
        begun: dict[Training, Future[None]] = {}
        for training in trainings:
            theirs = next((begun[other] for other in begun if other.config == baseline(training.config)), None)
            begun[training] = pool.submit(one, training, theirs)
        try:
            for future in begun.values():
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def main(argv: Sequence[str] | None = None) -> None:
    """Train what has no line yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="made by scripts/prepare_tatoeba.sh")
    parser.add_argument("out", type=Path, help="where the trainings are")
    parser.add_argument("--methods", nargs="+", required=True, help="as their files are called, without the depth")
    parser.add_argument("--depths", nargs="+", default=DEPTHS)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--updates", type=int, required=True, help="of a training to the end")
    stage_help = "sweep: the rates alone; long: three times the updates"
    parser.add_argument("--stage", choices=[SWEEP, FULL, LONG], default=FULL, help=stage_help)
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time, each on one core")
    parser.add_argument("--gpu", action="store_true", help="all of them on one GPU")
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("--rates", nargs="+", type=float, help="of the sweep, and none above; default: the protocol's")
    rate_help = "of the trainings to the end, without a sweep; default: the best of the sweep"
    parser.add_argument("--rate", type=float, help=rate_help)
    parser.add_argument("--again", action="store_true", help="on a CPU what a GPU has trained, and the reverse")
    parser.add_argument("--precision", default=settings.precision, help="default: %(default)s")
    parser.add_argument("--changes", nargs="+", default=(), metavar="KEY=VALUE", help="to every configuration")
    args = parser.parse_args(argv)
    lock = Lock()
    # A line does not say them, and what has a line is not trained again.
    kept = {"updates": args.updates, "precision": args.precision, "changes": " ".join(args.changes)}
    Workspace(args.out).remember([(name, str(value)) for name, value in kept.items()])
    settings.results, settings.precision, settings.changes = args.results, args.precision, args.changes
    settings.rate = args.rate
    settings.gpu = torch.cuda.get_device_name() if args.gpu else ""
    if args.rates:
        settings.rates, settings.highest = args.rates, max(args.rates)

    def one(training: Training, theirs: Future[None] | None) -> None:
        # Another call may have trained it meanwhile.
        for line in lines():
            if training.key == tuple(line[name] for name in COLUMNS[:4]):
                if not args.again or line["machine"].startswith("NVIDIA") == args.gpu:
                    print(*training.key, "has a line in", settings.results, flush=True)
                    return
        line = train(training, args.data, args.out, args.updates, theirs)
        with lock:
            new = not settings.results.exists()
            with open(settings.results, "a", encoding="utf-8", newline="") as stream:
                writer = csv.DictWriter(stream, COLUMNS, delimiter="\t", lineterminator="\n")
                if new:
                    writer.writeheader()
                writer.writerow(line)
        print(*training.key, line["outcome"], line["valid"], line["bleu_test"], flush=True)

    configs = [f"{method}_{depth}" for depth in args.depths for method in args.methods]
    for trainings in stages(configs, args.seeds, args.stage):
        train_all(trainings, one, args.jobs)


if __name__ == "__main__":
    main()
