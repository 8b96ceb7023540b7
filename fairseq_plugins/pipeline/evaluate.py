"""``fairseq-deep evaluate RUN DATA [TEST_SET ...]``: average the checkpoints of a run, translate the test sets, score.

Every sentence of a test set is translated exactly once, or the evaluation stops: the translations are counted against
the published and the binarised references. Each stage writes one file, whole or absent, and the next call keeps it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fairseq_plugins
from fairseq_plugins.errors import UserError, flag, unknown_name
from fairseq_plugins.files import checksum, write_whole
from fairseq_plugins.options import ScriptParser, at_least
from fairseq_plugins.pipeline import corpus, self_check
from fairseq_plugins.pipeline.checkout import CONFIGS, commit
from fairseq_plugins.pipeline.commands import Commands, interruptible
from fairseq_plugins.pipeline.generated import write_perplexity, write_texts
from fairseq_plugins.pipeline.run import AVERAGED, EVALUATION, HYPOTHESES, REFERENCES, SCORES, Run, read_run
from fairseq_plugins.pipeline.workspace import SETTINGS, Workspace, remove, require_apart, say
from fairseq_plugins.process import exit_code
from fairseq_plugins.processor import check_threads
from fairseq_plugins.scoring.metrics import metric_named
from fairseq_plugins.scoring.text import read_sentences
from fairseq_plugins.text import moses
from fairseq_plugins.text.description import FILE as DESCRIPTION
from fairseq_plugins.text.description import SUBWORDS, Description, described

TEST_SETS = "test_sets"
MAX_TOKENS = {"translation": 4000, "language_model": 4000, "speech": 50000}
"""Default batch size: tokens, or frames for speech."""
QUIET = {"PYTHONWARNINGS": "ignore:'pin_memory' argument"}
"""Hides a warning of torch on every CPU."""
KINDS: Mapping[str, str] = {
    "translation": "translation",
    "language_modeling": "language_model",
    "speech_to_text": "speech",
}
"""How a model of each fairseq task is evaluated."""

SEARCH = ("max_len_a", "max_len_b", "min_len", "no_repeat_ngram_size")
"""Settings of ``generation`` that the decoder gets besides the beam and the length penalty."""


# --- options --------------------------------------------------------------------------------------------------------


def add_options(flags: argparse.ArgumentParser) -> list[argparse.Action]:
    """Add the options that a comparison passes on to each evaluation."""
    group = flags.add_argument_group("evaluation")
    yes_or_no = argparse.BooleanOptionalAction
    return [
        group.add_argument(
            "--average",
            default="",
            metavar="WHAT",
            help="last-epochs=N, last-updates=N, best=N, none (the last checkpoint), or the path of a checkpoint; "
            "default: as in the published row of the configuration; without a row, the last 5 checkpoints "
            "saved by update or 10 saved by epoch, or fewer if there are fewer",
        ),
        group.add_argument(
            "--ema",
            action=yes_or_no,
            default=False,
            help="average the moving averages of the weights; needs a training with ema.store_ema",
        ),
        group.add_argument(
            "--beam", type=at_least(1), metavar="N", help="default: generation.beam of the configuration"
        ),
        group.add_argument(
            "--length-penalty", type=_number, metavar="X", help="default: generation.lenpen of the configuration"
        ),
        group.add_argument(
            "--context-window",
            type=at_least(0),
            metavar="N",
            help="language models: tokens of context that are not scored; default: the configuration's",
        ),
        group.add_argument(
            "--metrics", default="", metavar="A,B,...", help="names for fairseq-deep score; default: those of the task"
        ),
        group.add_argument(
            "--max-tokens",
            type=at_least(1),
            metavar="N",
            help="per batch; default: 4000, for speech 50000 (frames)",
        ),
        group.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto", help="default: auto"),
        group.add_argument(
            "--accept-references",
            default="",
            metavar="REASON",
            help="continue although the prepared references differ from the published ones; REASON is in the signature",
        ),
        group.add_argument(
            "--remove-bpe",
            type=_subwords,
            choices=SUBWORDS,
            default="",
            help="the subwords; needed if DATA has no text.json",
        ),
        group.add_argument(
            "--tokenised", choices=("moses", "none"), default="", help="the tokens; needed if DATA has no text.json"
        ),
        group.add_argument("--lower-cased", action=yes_or_no, help="the text is lower-cased"),
        group.add_argument(
            "--references",
            type=Path,
            metavar="DIR",
            help="the published references, TEST_SET.LANGUAGE; default: DATA/raw",
        ),
    ]


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError("not a number")
    return number


def _subwords(name: str) -> str:
    """Accept the mark itself, as fairseq does, as the name of these subwords."""
    return "subword_nmt" if name == "@@ " else name


def parser() -> ScriptParser:
    """Flags of ``fairseq-deep evaluate``."""
    flags = ScriptParser(
        prog="fairseq-deep evaluate",
        description="Average the checkpoints of a run, translate the test sets, and score the translations.",
    )
    flags.add_argument("run", type=Path, metavar="RUN", help="a directory of fairseq-deep run")
    flags.add_argument("data", type=Path, metavar="DATA", help="the prepared directory that it was trained on")
    flags.add_argument(
        "test_sets",
        nargs="*",
        default=[],
        metavar="TEST_SET",
        help="names in DATA/test_sets, or valid; default: all in that file",
    )
    add_options(flags)
    flags.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="default: RUN/evaluation. Another directory also gets the averaged checkpoint",
    )
    flags.add_argument(
        "--dry-run", action=argparse.BooleanOptionalAction, default=False, help="only print the commands"
    )
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate; 0, or 2 after one line for each problem."""
    return exit_code(lambda: evaluate(parser().read(argv)))


# --- the plan -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TestSet:
    """A test set: its split in ``data-bin``, its name, and the file of its published references."""

    __test__ = False  # no class of tests

    subset: str
    name: str
    published: Path = Path()


@dataclass(frozen=True)
class Plan:
    """How a run is averaged and decoded.

    Args:
        kind: ``translation``, ``language_model`` or ``speech``.
        run: the training.
        data: the prepared directory.
        binarised: the directory that fairseq reads.
        average: the checkpoints to average, as in the settings and the signature.
        average_flags: flags of ``fairseq-deep average``.
        updates: of the newest checkpoint.
        on_cpu: whether no GPU is used.
        test_sets: the test sets to translate.
        decode_flags: flags of ``fairseq-deep generate`` or ``eval-lm``.
        settings: by name; later calls must have the same.
        beam, length_penalty: for the signature; empty for a language model.
        source, target: languages; empty if there are none.
        text: tokens, subwords and case of the text; None if the task undoes them.
        scored_as: the task of ``fairseq-deep score``.
        configuration: for speech, the name of the file that describes its units.
    """

    kind: str
    run: Run
    data: Path
    binarised: Path
    average: str
    average_flags: tuple[str, ...]
    updates: int
    on_cpu: bool
    test_sets: tuple[TestSet, ...]
    decode_flags: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    beam: str = ""
    length_penalty: str = ""
    source: str = ""
    target: str = ""
    text: Description | None = None
    scored_as: str = "speech"
    configuration: str = "config.yaml"


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
        average_flags=(*averaging.flags(choice, run.checkpoints), *(["--ema"] if args.ema else [])),
        updates=num_updates(newest) or run.updates,
        on_cpu=not _gpu(args.device),
        **_PLANS[kind](args, config, run),
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


def _plan_translation(args: argparse.Namespace, config: Mapping[str, Any], run: Run) -> dict[str, Any]:
    binarised, text = _binarised(args.data, "translation"), text_of(args)
    source, target = languages_of(binarised, config)
    if text.tokeniser == "moses":
        moses.scripts()  # A bad MOSES would otherwise be found after the decoding.
    sets = []
    for each in test_sets(args.data, args.test_sets):
        raw = _published(args, each.name, target)
        prefix = binarised / f"{each.subset}.{source}-{target}.{target}"
        _same_count(raw, len(read_sentences(raw)), prefix, _size_of(prefix))
        sets.append(TestSet(each.subset, each.name, raw))
    case = "lower-case" if text.lower_case else ""
    # Undone before scoring.
    plain = filter(None, (text.subwords, text.tokeniser, case, "truecased" if text.truecased else ""))
    plan = _search(args, config)
    plan["settings"] = (*plan["settings"], ("text", "+".join(plain)))
    scored_as = _scored_as(run)
    return {**plan, "source": source, "target": target, "text": text, "test_sets": tuple(sets), "scored_as": scored_as}


def _plan_language_model(args: argparse.Namespace, config: Mapping[str, Any], run: Run) -> dict[str, Any]:
    task = config["task"]
    window = args.context_window
    if window is None:
        window = config.get("eval_lm", {}).get("context_window") or 0
    flags = ["--sample-break-mode", str(task.get("sample_break_mode") or "none")]
    flags += ["--tokens-per-sample", str(task.get("tokens_per_sample") or 1024), "--context-window", str(window)]
    start = ("--add-bos-token",) if task.get("add_bos_token") else ()
    raw = args.references or args.data / "raw"
    sets = [TestSet(each.subset, each.name, raw / each.name) for each in test_sets(args.data, args.test_sets)]
    return {"decode_flags": (*flags, *start), "settings": _settings(flags), "test_sets": tuple(sets)}


def _plan_speech(args: argparse.Namespace, config: Mapping[str, Any], run: Run) -> dict[str, Any]:
    tables = _binarised(args.data, "speech")
    configuration = str(config["task"].get("config_yaml") or "config.yaml")
    directory = args.references or args.data / "raw"
    sets = []
    for each in test_sets(args.data, args.test_sets):
        table = tables / f"{each.subset}.tsv"
        raw = directory / f"{each.name}.{_language_of(directory, each.name)}"
        _same_count(raw, len(read_sentences(raw)), table, len(read_sentences(table)) - 1)
        sets.append(TestSet(each.subset, each.name, raw))
    plan = _search(args, config)
    plan["decode_flags"] = (*plan["decode_flags"], "--config-yaml", configuration)
    target = _language_of(directory, sets[0].name)
    return {**plan, "configuration": configuration, "target": target, "test_sets": tuple(sets)}


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


_PLANS = {"translation": _plan_translation, "language_model": _plan_language_model, "speech": _plan_speech}


def _search(args: argparse.Namespace, config: Mapping[str, Any]) -> dict[str, Any]:
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
    return {"decode_flags": tuple(flags), "settings": _settings(flags), "beam": beam, "length_penalty": shown}


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


# --- the stages -----------------------------------------------------------------------------------------------------


def evaluate(args: argparse.Namespace) -> None:
    """Average the checkpoints, then translate and score one test set after the other.

    Raises:
        UserError: as :func:`make_plan`; the prepared references are not the published ones; the directory was made with
            other settings; not every sentence was translated, once.
        SystemExit: a command failed and has printed its error.
    """
    require_apart(args.run, args.data, "RUN")
    if args.output is not None:
        require_apart(args.output, args.data, "--output")
    check_threads()
    if args.dry_run and not args.run.is_dir():
        print(f"# {args.run} does not exist yet, so its decoding settings are unknown")
        return
    plan = make_plan(args)
    directory: Path = args.output or args.run / EVALUATION
    stages = Stages(plan, args, model=(args.output or args.run) / AVERAGED)
    workspace = Workspace(directory, dry_run=args.dry_run)
    with interruptible(), workspace.claimed():
        if plan.run.finished is None:
            say(f"{args.run}: the training has not finished; evaluating it after {plan.updates} updates")
        made_with = (("average", plan.average), ("updates", str(plan.updates)))
        _remember(workspace, made_with, stages.model)
        search = f", beam {plan.beam}, length penalty {plan.length_penalty}" if plan.beam else ""
        say(f"{args.run}: {plan.average}{search}")
        # Check all test sets before the first is translated, which may take hours.
        for each in plan.test_sets:
            stages.check(each, directory / each.name)
        stages.average()
        for each in plan.test_sets:
            workspace = Workspace(directory / each.name, dry_run=args.dry_run)
            settings = (*made_with, ("subset", each.subset), *plan.settings, ("metrics", args.metrics))
            _remember(workspace, settings, directory / each.name / stages.log)
            stages.evaluate(each, directory / each.name)


def _remember(workspace: Workspace, settings: Sequence[tuple[str, str]], result: Path) -> None:
    """Record the settings of ``result``. Settings without result, or a result without settings, are removed first."""
    if workspace.dry_run:
        return
    written = workspace.directory / SETTINGS
    if not (written.exists() and result.exists()):
        remove(written)
        remove(result)
    workspace.directory.mkdir(parents=True, exist_ok=True)
    workspace.remember(settings)


class Stages:
    """The stages of an evaluation; each writes its file whole or not at all.

    Args:
        plan: how to average and decode.
        args: the user's options.
        model: file of the averaged checkpoint.
    """

    def __init__(self, plan: Plan, args: argparse.Namespace, model: Path) -> None:
        self.plan, self.args, self.model = plan, args, model
        self.commands = Commands(dry_run=args.dry_run)
        self.make = Workspace(model.parent, dry_run=args.dry_run).make
        self.log = "eval-lm.log" if plan.kind == "language_model" else "generate.log"

    def check(self, each: TestSet, place: Path) -> None:
        """Check that a perfect translation would get a perfect score."""
        plan = self.plan
        references = self_check.References(
            plan.data,
            corpus.binarised(plan.data),
            each.subset,
            each.name,
            each.published,
            plan.source,
            plan.target,
            plan.text or described(plan.data),
            plan.configuration,
        )
        accepted = self.args.accept_references
        self._make_here(
            place / self_check.FILE,
            lambda target: self_check.write_check(plan.kind, references, target, accepted),
        )

    def average(self) -> None:
        """Average the checkpoints; the command itself writes a whole file or none."""
        if self.model.exists():
            say(f"{self.model}: exists already, kept")
        else:
            self.commands.deep("average", *self.plan.average_flags, "--output", self.model)

    def evaluate(self, each: TestSet, place: Path) -> None:
        """Translate and score one test set, or score it with a language model; write the signature."""
        self.make(place / self.log, lambda target: self._decode(each, target))
        if self.plan.kind == "language_model":
            self._make_here(place / SCORES, lambda target: write_perplexity(place / self.log, each.published, target))
        else:
            tokenised = self.plan.data / "text" / f"{each.name}.tok.{self.plan.target}"
            sources = place / self.log, each.published, tokenised
            self._make_here(place / "hypotheses.tok", lambda target: write_texts(*sources, target))
            self.make(place / HYPOTHESES, lambda target: self._detokenise(place / "hypotheses.tok", target))
            self.make(place / SCORES, lambda target: self._score(place, target))
        self._make_here(place / "signature", lambda target: sign(self.plan, self.model, place, target))
        if not self.commands.dry_run:
            for name in ("score.txt", "signature"):
                print((place / name).read_text(encoding="utf-8"), end="", flush=True)

    def _make_here(self, target: Path, make: Callable[[Path], None]) -> None:
        """Run a stage that is not a command; a dry run prints nothing for it."""
        self.make(target, (lambda _: None) if self.commands.dry_run else make)

    def _decode(self, each: TestSet, target: Path) -> None:
        plan = self.plan
        words: list[object] = ["eval-lm" if plan.kind == "language_model" else "generate", plan.binarised]
        words += ["--path", self.model, "--gen-subset", each.subset]
        words += ["--max-tokens", self.args.max_tokens or MAX_TOKENS[plan.kind], "--num-workers", 0, *plan.decode_flags]
        if plan.kind == "translation":
            words += ["--task", "translation", "--source-lang", plan.source, "--target-lang", plan.target]
        if plan.kind == "speech":
            words += ["--task", "speech_to_text"]
        # The speech task joins its units itself; joining them twice would merge words.
        if plan.text is not None and plan.text.subwords != "none":
            words.append(f"--remove-bpe={plan.text.subwords}")
        words += ["--cpu"] if plan.on_cpu else []
        # A progress bar for a terminal only.
        words += [] if sys.stderr.isatty() else ["--no-progress-bar", "--log-format", "none"]
        inherited = os.environ.get("PYTHONWARNINGS")
        quiet = {name: f"{inherited},{value}" if inherited else value for name, value in QUIET.items()}
        self.commands.deep(*words, output=target, environment=quiet)

    def _detokenise(self, source: Path, target: Path) -> None:
        text = self.plan.text
        if text is None or text.tokeniser != "moses":
            self.commands.run("cp", "--", source, target)
            return
        recase = ["--recase"] if text.truecased else []
        self.commands.text("detokenise", "--language", self.plan.target, *recase, source, target)

    def _score(self, place: Path, target: Path) -> None:
        # The suffix selects the format.
        new = place / "score.new.json"
        flags: list[object] = ["--task", self.plan.scored_as, "--output", place / "score.txt", "--output", new]
        flags += ["--metrics", self.args.metrics] if self.args.metrics else []
        text = self.plan.text
        if text is not None:
            flags += ["--lower-case"] if text.lower_case else []
            flags += ["--language-pair", f"{self.plan.source}-{self.plan.target}"]
            if text.tokeniser == "moses":
                flags += ["--tokenised-hypotheses", place / "hypotheses.tok"]
                flags += ["--tokenised-references", place / "references.tok"]
        self.commands.deep("score", place / HYPOTHESES, place / REFERENCES, *flags)
        self.commands.run("mv", "-T", "--", new, target)


def sign(plan: Plan, model: Path, place: Path, target: Path) -> None:
    """Write the signature, one line with everything that a score depends on."""
    scores = json.loads((place / SCORES).read_text(encoding="utf-8"))
    metrics = [metric for metric in scores.get("metrics", []) if metric.get("signature")]
    revision = commit()
    parts = {
        "commit": f"{revision[:12]}{revision[40:]}" if revision else "-",
        "config": _config_hash(plan.run),
        "seed": plan.run.seed,
        "checkpoint": checksum(model)[:12],
        "average": plan.average,
        "updates": plan.updates,
        "beam": plan.beam,
        "length-penalty": plan.length_penalty,
        "sentences": scores.get("sentences"),
        "accepted": _accepted(place / self_check.FILE),
        "score": metrics[0]["signature"] if metrics else None,
    }
    write_whole(target, " ".join(f"{name}:{value}" for name, value in parts.items() if value not in (None, "")) + "\n")


def _accepted(path: Path) -> str | None:
    """The user's reason for accepting a failed self-check, as one word; None if it passed."""
    check = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return "_".join(str(check.get("accepted") or "").split()) or None


def _config_hash(run: Run) -> str:
    """Fingerprint of the configuration file and its changes without the seed; ``-`` if the file is missing."""
    path = CONFIGS / f"{run.config}.yaml"
    if run.config is None or not path.is_file():
        return "-"
    content = path.read_bytes() + "\n".join(run.changes).encode()
    return hashlib.sha256(content).hexdigest()[:12]
