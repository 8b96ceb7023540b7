"""``--processes N``: one test set, translated by several processes of one machine, printed as one process prints it.

fairseq can translate every N-th batch (``num_shards`` of its iterator), but prints only its own part and scores only
that. Here N copies of the command translate a share each, on as many GPUs, or on the cores of a CPU; the sentences are
then printed in the order of the test set, and the score is that of the whole.
"""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import pickle
import re
import signal
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from fairseq import scoring, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf, open_dict

from fairseq_plugins.errors import UserError
from fairseq_plugins.process import end_with, users_mistake
from fairseq_plugins.processor import core_count

SENTENCE = re.compile(r"^[A-Z]-(\d+)[\t_]")
OUTCOME = "outcome.pickle"

logger = logging.getLogger(__name__)


def translate_in_processes(translate: Callable[[Any], Any], cfg: Any) -> Any:
    """``fairseq_cli.generate.main`` that applies ``generation.processes``; returns the scorer of the whole test set.

    Raises:
        UserError: an impossible number of processes, or the mistake of the user that stopped one of them.
    """
    if isinstance(cfg, Namespace):
        cfg = convert_namespace_to_omegaconf(cfg)
    count = int(getattr(cfg.generation, "processes", 1))
    if count == 1:
        return translate(cfg)
    if count < 1:
        raise UserError(f"--processes {count}: a number of processes, at least 1")
    if cfg.distributed_training.distributed_world_size > 1:
        raise UserError("--processes and --distributed-world-size both split the test set: drop one of the two")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        shares = [Path(folder) / str(rank) for rank in range(count)]
        counted = _run(cfg, shares)
        name = f"generate-{cfg.dataset.gen_subset}.txt"
        texts = [lines_of(share / name) for share in shares if (share / name).exists()]
    sentences = in_order(texts)
    scorer = scoring.build_scorer(cfg.scoring, tasks.setup_task(cfg.task).target_dictionary)
    for one in counted:
        add_counts(scorer, one)
    results = cfg.common_eval.results_path
    if results is not None:
        os.makedirs(results, exist_ok=True)
    with (
        open(Path(results) / name, "w", encoding="utf-8") if results is not None else nullcontext(sys.stdout) as output
    ):
        for lines in sentences.values():
            print(*lines, sep="\n", file=output)
        print(
            f"Generate {cfg.dataset.gen_subset} with beam={cfg.generation.beam}: {scorer.result_string()}", file=output
        )
    seconds = time.monotonic() - began
    logger.info("%d processes translated %d sentences in %.1f s, their start included", count, len(sentences), seconds)
    return scorer


def refuse_processes(translate: Callable[[Any], Any], cfg: Any) -> Any:
    """``fairseq_cli.interactive.main``, which translates in one process.

    Raises:
        UserError: it was asked for several.
    """
    settings = cfg if isinstance(cfg, Namespace) else cfg.generation
    if int(getattr(settings, "processes", 1)) != 1:
        raise UserError("--processes splits a binarised test set: fairseq-generate and fairseq-deep translate have it")
    return translate(cfg)


def lines_of(path: Path) -> list[str]:
    """The lines of a file of fairseq; only a line feed ends one."""
    return path.read_bytes().decode().removesuffix("\n").split("\n")


def in_order(texts: Iterable[Sequence[str]]) -> dict[int, list[str]]:
    """Return the lines of each sentence, in the order of the test set, from what the processes have printed.

    Raises:
        RuntimeError: two processes translated the same sentence.
    """
    found: dict[int, list[str]] = {}
    for text in texts:
        mine: dict[int, list[str]] = {}
        for line in text:
            match = SENTENCE.match(line)
            if match:
                mine.setdefault(int(match.group(1)), []).append(line)
        twice = sorted(mine.keys() & found.keys())
        if twice:
            raise RuntimeError(f"two processes translated sentence {twice[0]}")
        found.update(mine)
    return dict(sorted(found.items()))


def counts_of(scorer: Any) -> dict[str, Any]:
    """Return what a scorer has counted: numbers, texts, and fairseq's counts for BLEU, by their names."""
    kept: dict[str, Any] = {
        name: value for name, value in vars(scorer).items() if isinstance(value, (int, float, list))
    }
    for name, value in vars(scorer).items():
        if isinstance(value, ctypes.Structure):
            kept[name] = {field[0]: getattr(value, field[0]) for field in value._fields_}
    return kept


def add_counts(scorer: Any, counts: dict[str, Any]) -> None:
    """Add what another scorer of the same kind has counted; settings, which are the same in both, stay."""
    fresh = ("pad", "eos", "unk")
    for name, value in counts.items():
        mine = getattr(scorer, name)
        if isinstance(value, dict):
            for field, number in value.items():
                setattr(mine, field, getattr(mine, field) + number)
        elif name not in fresh and not isinstance(value, bool):
            setattr(scorer, name, mine + value)


def _run(cfg: Any, shares: Sequence[Path]) -> list[dict[str, Any]]:
    """Translate each share in a process of its own; returns what their scorers have counted."""
    context = multiprocessing.get_context("spawn")
    plain = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    running: list[BaseProcess] = []
    before = dict(os.environ)
    try:
        for rank, share in enumerate(shares):
            share.mkdir()
            os.environ.update(environment(rank, len(shares), cfg.common.cpu, before))
            arguments = (plain, rank, len(shares), str(share), os.getpid())
            running.append(context.Process(target=_translate_share, args=arguments))
            _start_without_interrupts(running[-1])
        _wait(running)
    finally:
        os.environ.clear()
        os.environ.update(before)
        for process in running:
            if process.is_alive():
                process.terminate()
            process.join()
    outcomes = [pickle.loads((share / OUTCOME).read_bytes()) for share in shares if (share / OUTCOME).exists()]
    for outcome in outcomes:
        if isinstance(outcome, UserError):
            raise outcome
    if len(outcomes) < len(shares):
        codes = [process.exitcode for process in running]
        raise RuntimeError(f"a process of --processes ended without a result; exit codes {codes}")
    return outcomes


def _start_without_interrupts(process: BaseProcess) -> None:
    """Start a process that Ctrl-C does not reach, not even while it imports: this one ends it."""
    resource_tracker.ensure_running()  # which lets Ctrl-C through again when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait(running: Sequence[BaseProcess]) -> None:
    """Wait until all have ended, or one has failed."""
    left = list(running)
    while left and not any(process.exitcode for process in running):
        left = [process for process in left if process.is_alive()]
        if left:
            left[0].join(timeout=0.2)


def environment(rank: int, count: int, cpu: bool, given: dict[str, str]) -> dict[str, str]:
    """Return the variables of one of ``count`` processes: its GPU, or its share of the cores."""
    gpus = 0 if cpu else torch.cuda.device_count()
    if gpus:
        names = given.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))).split(",")
        return {"CUDA_VISIBLE_DEVICES": names[rank % gpus]}
    threads = max(1, core_count() // count)
    return {"OMP_NUM_THREADS": given.get("OMP_NUM_THREADS", str(threads))}


def _translate_share(plain: dict[str, Any], rank: int, count: int, folder: str, parent: int) -> None:
    """Translate every ``count``-th batch into ``folder``; runs in a new process, which ends with its parent."""
    end_with(parent)
    # Otherwise what loads the batches is spawned, too, and imports torch without the patch for orphaned_loaders.
    multiprocessing.set_start_method(None, force=True)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO if rank == 0 else logging.WARNING)
    outcome: Any = {}
    try:
        # The import of this module, which a new process begins with, has patched fairseq and registered the methods.
        from fairseq_cli import generate

        cfg = OmegaConf.create(plain, flags={"allow_objects": True})
        with open_dict(cfg):
            cfg.generation.processes = 1
            cfg.common_eval.results_path = folder
            cfg.distributed_training.distributed_world_size = count
            cfg.distributed_training.distributed_rank = rank
        try:
            outcome = counts_of(generate.main(cfg))
        except ZeroDivisionError:  # fairseq divides by the time of a share without sentences
            if in_order([lines_of(Path(folder, f"generate-{cfg.dataset.gen_subset}.txt"))]):
                raise
    except Exception as error:
        mistake = users_mistake(error)
        if mistake is None:
            raise
        outcome = mistake
    Path(folder, OUTCOME).write_bytes(pickle.dumps(outcome))
    if isinstance(outcome, UserError):
        sys.exit(outcome.exit_code)
