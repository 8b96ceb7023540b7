"""How a run is averaged and decoded: from its checkpoints, its data and the user's options to fairseq's commands."""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fairseq_plugins
from fairseq_plugins.errors import UserError, flag, unknown_name
from fairseq_plugins.pipeline import corpus
from fairseq_plugins.pipeline.results import Run, read_run
from fairseq_plugins.scoring.metrics import metric_named
from fairseq_plugins.scoring.text import read_sentences
from fairseq_plugins.text.description import FILE as DESCRIPTION
from fairseq_plugins.text.description import SUBWORDS, Description, described

TEST_SETS = "test_sets"
MAX_TOKENS = {"translation": 4000, "language_model": 4000, "speech": 50000}
"""Default batch size: tokens, or frames for speech."""
LOGS = {"translation": "generate.log", "language_model": "eval-lm.log", "speech": "generate.log"}
"""What fairseq prints."""
KINDS: Mapping[str, str] = {
    "translation": "translation",
    "language_modeling": "language_model",
    "speech_to_text": "speech",
}
"""How a model of each fairseq task is evaluated."""

SEARCH = ("max_len_a", "max_len_b", "min_len", "no_repeat_ngram_size")
"""Settings of ``generation`` that the decoder gets besides the beam and the length penalty."""


@dataclass(frozen=True)
class TestSet:
    """A test set: its split in ``data-bin``, its name, and the file of its published references."""

    __test__ = False  # no class of tests

    subset: str
    name: str
    published: Path = Path()


@dataclass(frozen=True)
class Decoding:
    """How the test sets of a run are translated and scored, or scored with a language model.

    Args:
        test_sets: the test sets.
        flags: of ``fairseq-deep generate`` or ``eval-lm``.
        settings: by name; later calls must have the same.
        beam, length_penalty: for the signature; empty for a language model.
        source, target: languages; empty if there are none.
        text: tokens, subwords and case of the text; None if the task undoes them.
        scored_as: the task of ``fairseq-deep score``.
        configuration: for speech, the name of the file that describes its units.
    """

    test_sets: tuple[TestSet, ...]
    flags: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]
    beam: str = ""
    length_penalty: str = ""
    source: str = ""
    target: str = ""
    text: Description | None = None
    scored_as: str = "speech"
    configuration: str = "config.yaml"


@dataclass(frozen=True)
class Plan:
    """How a run is averaged and decoded.

    Args:
        kind: ``translation``, ``language_model`` or ``speech``.
        run: the training.
        data: the prepared directory.
        binarised: the directory that fairseq reads.
        average: the checkpoints to average, as in the settings and the signature.
        choice: the same without ``ema``, as :func:`~fairseq_plugins.pipeline.averaging.inputs` reads it.
        ema: whether the moving averages in these checkpoints are taken.
        updates: of the newest checkpoint.
        on_cpu: whether no GPU is used.
        decoding: how the test sets are translated and scored.
    """

    kind: str
    run: Run
    data: Path
    binarised: Path
    average: str
    choice: str
    ema: bool
    updates: int
    on_cpu: bool
    decoding: Decoding


def make_plan(args: argparse.Namespace) -> Plan:
    """Decide how to average and decode a run.

    Raises:
        UserError: something is missing or contradictory; nothing has been written yet.
    """
    run = read_run(args.run)
    # Names are checked before torch and fairseq are imported, which takes seconds.
    check_names(args)
    from fairseq_plugins.checkpoints.files import num_updates, read_checkpoint
    from fairseq_plugins.pipeline import averaging

    fairseq_plugins.register()
    # fairseq logs everything it loads, on standard output.
    logging.getLogger().setLevel(logging.WARNING)
    _check_corpus(run, args.data)
    newest = read_checkpoint(averaging.newest(run.checkpoints))
    config = configuration_of(newest)
    task = config.get("task", {})
    kind = KINDS.get(str(task.get("_name")))
    if kind is None:
        raise UserError(f"{args.run}: task '{task.get('_name')}' is not supported; supported tasks: {', '.join(KINDS)}")
    choice = averaging.choose(run, args.average)
    return Plan(
        kind=kind,
        run=run,
        data=args.data,
        binarised=_binarised(args.data, kind),
        average=choice + (",ema" if args.ema else ""),
        choice=choice,
        ema=args.ema,
        updates=num_updates(newest) or run.updates,
        on_cpu=not _gpu(args.device),
        decoding=_DECODINGS[kind](args, config, run),
    )


def check_names(args: argparse.Namespace) -> None:
    """Check that the requested test sets and scores are known.

    Raises:
        UserError: one is not, or the data directory does not exist.
    """
    corpus.binarised(args.data)
    test_sets(args.data, args.test_sets)
    for name in filter(None, map(str.strip, args.metrics.split(","))):
        metric_named(name)


def test_sets(data: Path, wanted: Sequence[str]) -> list[TestSet]:
    """The test sets of a prepared directory: all of them, or the named ones. ``valid`` can be named, too.

    Raises:
        UserError: ``DATA/test_sets`` is damaged or lacks a named set.
    """
    table = data / TEST_SETS
    sets = [TestSet("test", "test")]
    if table.exists():
        rows = [line.split("\t") for line in table.read_text(encoding="utf-8").splitlines() if line.strip()]
        if not rows or any(len(row) != 2 or not all(row) for row in rows):
            raise UserError(f"{table}: each line must be the split in data-bin, a tab, and the name of the test set")
        sets = [TestSet(subset, name) for subset, name in rows]
    by_name = {each.name: each for each in [*sets, TestSet("valid", "valid")]}
    if unknown := [name for name in wanted if name not in by_name]:
        raise UserError([f"{data}: {unknown_name('test set', name, by_name)}" for name in unknown])
    return [by_name[name] for name in wanted] if wanted else sets


def _check_corpus(run: Run, data: Path) -> None:
    """Check that ``data`` has the run's dictionaries and training files, if ``run.json`` has their fingerprint.

    Another dictionary of the same size would silently give translations of other words.
    """
    from omegaconf import OmegaConf

    known, configuration = run.settings.get("data_fingerprint"), run.settings.get("configuration")
    if not known or not isinstance(configuration, dict):
        return
    if corpus.check_data(corpus.binarised(data), OmegaConf.create(configuration)).fingerprint != known:
        raise UserError(
            f"{data}: not the data of {run.directory}, which was trained on {run.data}: "
            "dictionaries or training files differ"
        )


def configuration_of(state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of a checkpoint by group, in either of fairseq's two styles; some tasks mix them."""
    if state.get("cfg"):
        groups = {
            name: vars(group) if isinstance(group, argparse.Namespace) else group
            for name, group in state["cfg"].items()
        }
        return {name: dict(group) for name, group in groups.items() if isinstance(group, Mapping)}
    flat = vars(state["args"]) if state.get("args") is not None else {}
    return {"task": {**flat, "_name": flat.get("task")}} if flat else {}


def _gpu(device: str) -> bool:
    if device == "cpu":
        return False
    import torch

    present = bool(torch.cuda.is_available())
    if device == "gpu" and not present:
        raise UserError("--device gpu: there is no GPU that torch can use; legal here: auto, cpu")
    return present


def _binarised(data: Path, kind: str) -> Path:
    """The directory that fairseq reads: ``data-bin``, or an output of ``fairseq-preprocess`` itself."""
    directory = corpus.binarised(data)
    if directory != data or kind == "speech" or any(directory.glob("dict*.txt")):
        return directory
    raise UserError(f"{data}: not prepared data: it contains neither data-bin/ nor a dictionary (dict.*.txt)")


def text_of(args: argparse.Namespace) -> Description:
    """Tokens, subwords and case of a directory's text: from its ``text.json``, else from the user's flags.

    Raises:
        UserError: neither describes it, or they contradict each other.
    """
    prepared = described(args.data)
    if prepared is None:
        required = {"--remove-bpe": args.remove_bpe, "--tokenised": args.tokenised}
        if missing := [name for name, value in required.items() if not value]:
            raise UserError(
                f"{args.data}: no {DESCRIPTION} describes its text; set "
                f"{' and '.join(missing)}: --remove-bpe {', '.join(SUBWORDS[:-1])} or {SUBWORDS[-1]}, "
                "--tokenised moses or none"
            )
        return Description(args.tokenised, args.remove_bpe, bool(args.lower_cased))
    both = {
        "--remove-bpe": (args.remove_bpe, prepared.subwords),
        "--tokenised": (args.tokenised, prepared.tokeniser),
        "--lower-cased": (args.lower_cased, prepared.lower_case),
    }
    for name, (requested, known) in both.items():
        if requested not in ("", None, known):
            raise UserError(
                f"{name} is {requested}, but {args.data} was prepared with {known} "
                f"(see {DESCRIPTION}, or settings without it)"
            )
    return prepared


def _published(args: argparse.Namespace, name: str, language: str) -> Path:
    """The file of a test set's published references."""
    path = (args.references or args.data / "raw") / f"{name}.{language}"
    if not path.is_file():
        raise UserError(f"{path}: no such file; --references DIR names the directory of the published references")
    return path


def _decode_translation(args: argparse.Namespace, config: Mapping[str, Any], run: Run) -> Decoding:
    binarised, text = _binarised(args.data, "translation"), text_of(args)
    source, target = languages_of(binarised, config)
    sets = []
    for test_set in test_sets(args.data, args.test_sets):
        raw = _published(args, test_set.name, target)
        prefix = binarised / f"{test_set.subset}.{source}-{target}.{target}"
        _same_count(raw, len(read_sentences(raw)), prefix, _size_of(prefix))
        sets.append(replace(test_set, published=raw))
    case = "lower-case" if text.lower_case else ""
    # Undone before scoring.
    plain = filter(None, (text.subwords, text.tokeniser, case, "truecased" if text.truecased else ""))
    search = _search(args, config, sets)
    settings = (*search.settings, ("text", "+".join(plain)))
    return replace(search, settings=settings, source=source, target=target, text=text, scored_as=_scored_as(run))


def _decode_language_model(args: argparse.Namespace, config: Mapping[str, Any], run: Run) -> Decoding:
    task = config["task"]
    window = args.context_window
    if window is None:
        window = config.get("eval_lm", {}).get("context_window") or 0
    flags = ["--sample-break-mode", str(task.get("sample_break_mode") or "none")]
    flags += ["--tokens-per-sample", str(task.get("tokens_per_sample") or 1024), "--context-window", str(window)]
    start = ("--add-bos-token",) if task.get("add_bos_token") else ()
    raw = args.references or args.data / "raw"
    sets = test_sets(args.data, args.test_sets)
    return Decoding(
        tuple(replace(test_set, published=raw / test_set.name) for test_set in sets), (*flags, *start), _settings(flags)
    )


def _decode_speech(args: argparse.Namespace, config: Mapping[str, Any], run: Run) -> Decoding:
    tables = _binarised(args.data, "speech")
    configuration = str(config["task"].get("config_yaml") or "config.yaml")
    directory = args.references or args.data / "raw"
    sets = []
    for test_set in test_sets(args.data, args.test_sets):
        table = tables / f"{test_set.subset}.tsv"
        raw = directory / f"{test_set.name}.{_language_of(directory, test_set.name)}"
        _same_count(raw, len(read_sentences(raw)), table, len(read_sentences(table)) - 1)
        sets.append(replace(test_set, published=raw))
    search = _search(args, config, sets)
    flags, target = (*search.flags, "--config-yaml", configuration), _language_of(directory, sets[0].name)
    return replace(search, flags=flags, configuration=configuration, target=target)


def _language_of(directory: Path, name: str) -> str:
    """The language in the file name of a test set's references."""
    languages = sorted(path.name.removeprefix(f"{name}.") for path in directory.glob(f"{name}.*"))
    if len(languages) != 1:
        raise UserError(
            f"{directory}: expected one file {name}.LANGUAGE with the text of {name}, found {len(languages)}"
        )
    return languages[0]


def _scored_as(run: Run) -> str:
    """Summaries are trained as translations; only the metric of the published row shows that they are summaries."""
    from fairseq_plugins.pipeline.published import published_rows

    return "summarisation" if any(row.metric.startswith("ROUGE") for row in published_rows(run)) else "translation"


_DECODINGS = {"translation": _decode_translation, "language_model": _decode_language_model, "speech": _decode_speech}


def _search(args: argparse.Namespace, config: Mapping[str, Any], sets: Sequence[TestSet]) -> Decoding:
    """Flags of the search: the user's beam and length penalty, else the configuration's; the rest from the latter."""
    generation = config.get("generation", {})
    form = str(generation.get("lenpen_form", "fairseq"))
    beam = str(args.beam or generation.get("beam", 5))
    penalty = f"{float(generation.get('lenpen', 1.0) if args.length_penalty is None else args.length_penalty):g}"
    flags = ["--beam", beam, "--lenpen", penalty]
    flags += [] if form == "fairseq" else ["--lenpen-form", form]
    for key in SEARCH:
        flags += [flag(key), str(generation[key])] if key in generation else []
    shown = penalty if form == "fairseq" else f"{penalty} ({form})"
    return Decoding(tuple(sets), tuple(flags), _settings(flags), beam, shown)


def _settings(flags: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Flags with one value each, as settings that later calls must repeat."""
    return tuple((option.removeprefix("--"), value) for option, value in zip(flags[::2], flags[1::2], strict=True))


def languages_of(binarised: Path, config: Mapping[str, Any]) -> tuple[str, str]:
    """Source and target, as the configuration or the names of the binarised files say.

    Raises:
        UserError: neither says.
    """
    from fairseq.data.data_utils import infer_language_pair

    task = config["task"]
    pair = (task.get("source_lang"), task.get("target_lang"))
    source, target = pair if all(pair) else infer_language_pair(str(binarised))
    if not source or not target:
        raise UserError(f"{binarised}: unknown languages: it contains no train.SOURCE-TARGET.* files")
    return source, target


def _size_of(prefix: Path) -> int:
    from fairseq.data.data_utils import load_indexed_dataset

    dataset = load_indexed_dataset(str(prefix), None)
    if dataset is None:
        raise UserError(f"{prefix}.bin: no such binarised test set")
    return len(dataset)


def _same_count(raw: Path, lines: int, binarised: Path, sentences: int) -> None:
    if lines != sentences:
        raise UserError(
            f"{raw}: {lines} lines, but {binarised.name} in {binarised.parent.name} has {sentences} sentences: "
            "not the references of this test set"
        )


# --- fairseq's commands ---------------------------------------------------------------------------------------------


def decoding_command(plan: Plan, test_set: TestSet, model: Path, max_tokens: int | None) -> list[str]:
    """``generate`` or ``eval-lm`` with the options that translate or score a test set."""
    decoding = plan.decoding
    words = ["eval-lm" if plan.kind == "language_model" else "generate", str(plan.binarised)]
    words += ["--path", str(model), "--gen-subset", test_set.subset]
    words += ["--max-tokens", str(max_tokens or MAX_TOKENS[plan.kind]), "--num-workers", "0", *decoding.flags]
    if plan.kind == "translation":
        words += ["--task", "translation", "--source-lang", decoding.source, "--target-lang", decoding.target]
    if plan.kind == "speech":
        words += ["--task", "speech_to_text"]
    # The speech task joins its units itself; joining them twice would merge words.
    if decoding.text is not None and decoding.text.subwords != "none":
        words.append(f"--remove-bpe={decoding.text.subwords}")
    return words + (["--cpu"] if plan.on_cpu else [])


def decode(command: Sequence[str], output: Path) -> None:
    """Run fairseq's ``generate`` or ``eval-lm`` in this process; what it prints and logs is written to ``output``.

    Raises:
        UserError: as the command.
    """
    from fairseq_cli import eval_lm, generate

    main = {"eval-lm": eval_lm.cli_main, "generate": generate.cli_main}[command[0]]
    # A progress bar for a terminal only.
    quiet = [] if sys.stderr.isatty() else ["--no-progress-bar", "--log-format", "none"]
    root, before = logging.getLogger(), sys.argv
    handlers, level = root.handlers[:], root.level
    lines = logging.Formatter("%(asctime)s | %(levelname)s | %(name)s | %(message)s", "%Y-%m-%d %H:%M:%S")
    with open(output, "w", encoding="utf-8") as stream, redirect_stdout(stream), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "'pin_memory' argument")  # on every CPU
        warnings.filterwarnings("ignore", module="hydra|fairseq_cli")  # Hydra, about fairseq's calls
        root.handlers[:] = [logging.StreamHandler(stream)]
        root.handlers[0].setFormatter(lines)
        root.setLevel(logging.INFO)
        sys.argv = [f"fairseq-deep {command[0]}", *command[1:], *quiet]
        try:
            main()
        finally:
            root.handlers[:], sys.argv = handlers, before
            root.setLevel(level)
