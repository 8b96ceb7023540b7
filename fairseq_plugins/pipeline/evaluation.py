"""What ``scripts/evaluate.sh`` cannot ask a shell: ``python -m fairseq_plugins.pipeline.evaluation STEP``.

``plan`` prints, as lines of NAME, tab, VALUE, how a run is to be averaged and decoded; ``check`` sees that a perfect
translation would get a perfect score; ``texts`` turns the output of ``fairseq-generate`` into hypotheses and references
in the order of the test set; ``signature`` says in one line what a score was made with.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fairseq_plugins
from fairseq_plugins.errors import UserError, flag, unknown_name
from fairseq_plugins.files import write_whole
from fairseq_plugins.outcome import exit_code
from fairseq_plugins.pipeline import fits, self_check
from fairseq_plugins.pipeline.generated import hypotheses_in_order, references_in_order
from fairseq_plugins.pipeline.run import SCORES, Run, read_run
from fairseq_plugins.scoring.metrics import metric_named
from fairseq_plugins.scoring.text import read_sentences
from fairseq_plugins.text import moses
from fairseq_plugins.text.description import FILE as DESCRIPTION
from fairseq_plugins.text.description import SUBWORDS, Description, described

ROOT = Path(__file__).resolve().parents[2]
TEST_SETS = "test_sets"
KINDS: Mapping[str, str] = {
    "translation": "translation",
    "language_modeling": "language_model",
    "speech_to_text": "speech",
}
"""How a model of each fairseq task is evaluated."""

SEARCH = ("max_len_a", "max_len_b", "min_len", "no_repeat_ngram_size")
"""Settings of ``generation`` that are handed on, besides the beam and the length penalty."""


@dataclass(frozen=True)
class NamedSplit:
    """A test set: the split of ``data-bin`` that holds it, and its name."""

    subset: str
    name: str


def test_sets(data: Path, wanted: Sequence[str]) -> list[NamedSplit]:
    """The test sets of a prepared directory, all of them or those that are named; ``valid`` can be named too.

    Raises:
        UserError: ``DATA/test_sets`` is damaged, or has no set of such a name.
    """
    table = data / TEST_SETS
    sets = [NamedSplit("test", "test")]
    if table.exists():
        rows = [line.split("\t") for line in table.read_text(encoding="utf-8").splitlines() if line.strip()]
        if not rows or any(len(row) != 2 or not all(row) for row in rows):
            raise UserError(f"{table}: each line must be the split in data-bin, a tab, and the name of the test set")
        sets = [NamedSplit(subset, name) for subset, name in rows]
    by_name = {each.name: each for each in [*sets, NamedSplit("valid", "valid")]}
    if unknown := [name for name in wanted if name not in by_name]:
        raise UserError([f"{data}: {unknown_name('test set', name, by_name)}" for name in unknown])
    return [by_name[name] for name in wanted] if wanted else sets


# --- plan -----------------------------------------------------------------------------------------------------------


def plan(args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """What is to be done with a run, as pairs of a name and a value; a name may come several times.

    Raises:
        UserError: whatever is missing or does not fit, before anything is done.
    """
    run = read_run(args.run)
    # What needs neither torch nor fairseq is answered before they are imported, which takes seconds.
    check_request(args, run)
    from fairseq_plugins.checkpoints.files import num_updates, read_checkpoint
    from fairseq_plugins.pipeline import averaging

    fairseq_plugins.register()
    # fairseq remarks on everything it loads, on standard output.
    logging.getLogger().setLevel(logging.WARNING)
    newest = read_checkpoint(averaging.newest(run.checkpoints))
    config = _configuration(newest)
    task = config.get("task", {})
    kind = KINDS.get(str(task.get("_name")))
    if kind is None:
        raise UserError(f"{args.run}: task '{task.get('_name')}' is not evaluated here; tasks: {', '.join(KINDS)}")
    choice = averaging.choose(run, args.average)
    yield "kind", kind
    yield "average", choice + (",ema" if args.ema else "")
    flags = [*averaging.flags(choice, run.checkpoints), *(["--ema"] if args.ema else [])]
    yield from (("average_flag", flag) for flag in flags)
    yield "updates", str(num_updates(newest) or run.updates)
    yield "finished", "1" if run.finished else "0"
    yield "cpu", "0" if _gpu(args.device) else "1"
    yield "data", str(_binarised(args.data, kind))
    yield from _PLANS[kind](args, config, run)


def check_request(args: argparse.Namespace, run: Run) -> None:
    """See that all that the user wrote is legal, and that the data are those of the run.

    Raises:
        UserError: a wrong setting, an unknown test set or score, or the directory of another corpus.
    """
    binarised = fits.binarised(args.data)
    test_sets(args.data, args.test_sets)
    for name in filter(None, map(str.strip, args.metrics.split(","))):
        metric_named(name)
    if args.beam:
        _require_whole_number("BEAM", args.beam, 1)
    if args.context_window:
        _require_whole_number("CONTEXT_WINDOW", args.context_window, 0)
    if args.length_penalty:
        _finite("LENGTH_PENALTY", args.length_penalty)
    _check_corpus(run, args.data, binarised)


def _require_whole_number(name: str, value: str, least: int) -> None:
    if not value.isdecimal() or int(value) < least:
        raise UserError(f"{name} must be a whole number of at least {least}, not '{value}'")


def _finite(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"{name} must be a number, not '{value}'")
    return number


def _check_corpus(run: Run, data: Path, binarised: Path) -> None:
    """See that ``data`` has the dictionaries and the training files of the run, where ``run.json`` says which.

    Another dictionary of the same size would give translations of other words, and nobody would be told.
    """
    from omegaconf import OmegaConf

    known, configuration = run.settings.get("data_fingerprint"), run.settings.get("configuration")
    if not known or not isinstance(configuration, dict):
        return
    if fits.check_data(binarised, OmegaConf.create(configuration)).fingerprint != known:
        raise UserError(
            f"{data}: not what {run.directory} was trained on, which was {run.data}: "
            "its dictionaries or training files are others"
        )


def _configuration(state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of a checkpoint by group, of either of fairseq's two styles; some tasks mix them."""
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
        raise UserError("DEVICE=gpu: there is no GPU that torch can use; legal here: auto, cpu")
    return present


def _binarised(data: Path, kind: str) -> Path:
    """What fairseq reads: ``data-bin``, or the directory itself, as ``fairseq-preprocess`` alone leaves it."""
    found = fits.binarised(data)
    if found != data or kind == "speech" or any(found.glob("dict*.txt")):
        return found
    raise UserError(f"{data}: neither data-bin/ nor a dictionary (dict.*.txt) in it: not a directory of prepared data")


def text_of(args: argparse.Namespace) -> Description:
    """What the text of a directory is in: as its preparation says, or else as the user does.

    Raises:
        UserError: neither says so, or they contradict each other.
    """
    found = described(args.data)
    given = {"REMOVE_BPE": args.remove_bpe, "TOKENISED": args.tokenised, "LOWER_CASED": args.lower_cased}
    if found is None:
        if missing := [name for name in ("REMOVE_BPE", "TOKENISED") if not given[name]]:
            raise UserError(
                f"{args.data}: no {DESCRIPTION} of a preparation says what its text is in; give "
                f"{' and '.join(missing)}: REMOVE_BPE={', '.join(SUBWORDS[:-1])} or {SUBWORDS[-1]}, TOKENISED=moses or "
                "none"
            )
        return Description(args.tokenised, args.remove_bpe, args.lower_cased == "1")
    said = {"REMOVE_BPE": found.subwords, "TOKENISED": found.tokeniser, "LOWER_CASED": str(int(found.lower_case))}
    if wrong := [name for name, value in given.items() if value not in ("", said[name])]:
        raise UserError(
            f"{wrong[0]}={given[wrong[0]]} is given, but the preparation of {args.data} says {said[wrong[0]]} "
            f"({DESCRIPTION}, or settings where there is none)"
        )
    return found


def _published(args: argparse.Namespace, name: str, language: str) -> Path:
    """The file of the references of a test set as published."""
    path = (args.references or args.data / "raw") / f"{name}.{language}"
    if not path.is_file():
        raise UserError(f"{path}: no such file; REFERENCES=DIR names the directory of the published references")
    return path


def _plan_translation(args: argparse.Namespace, config: Mapping[str, Any], run: Run) -> Iterator[tuple[str, str]]:
    binarised, text = _binarised(args.data, "translation"), text_of(args)
    source, target = _languages(binarised, config)
    yield "source", source
    yield "target", target
    yield "scored_as", _scored_as(run)
    yield from _search(args, config)
    if text.tokeniser == "moses":
        moses.scripts()  # A MOSES that is none would be noticed after the decoding.
    yield "subwords", text.subwords
    yield "tokenised", "1" if text.tokeniser == "moses" else "0"
    yield "lower_case", "1" if text.lower_case else "0"
    yield "truecased", "1" if text.truecased else "0"
    yield from (("setting", f"text={'+'.join(filter(None, _made_plain(text)))}"),)
    for each in test_sets(args.data, args.test_sets):
        raw = _published(args, each.name, target)
        prefix = binarised / f"{each.subset}.{source}-{target}.{target}"
        _same_count(raw, len(read_sentences(raw)), prefix, _size_of(prefix))
        yield "test_set", f"{each.subset}\t{each.name}\t{raw}"


def _made_plain(text: Description) -> tuple[str, str, str, str]:
    """What is undone before a score."""
    case = "lower-case" if text.lower_case else ""
    return text.subwords, text.tokeniser, case, "truecased" if text.truecased else ""


def _plan_language_model(args: argparse.Namespace, config: Mapping[str, Any], run: Run) -> Iterator[tuple[str, str]]:
    task = config["task"]
    window = args.context_window or str(config.get("eval_lm", {}).get("context_window") or 0)
    flags = ["--sample-break-mode", str(task.get("sample_break_mode") or "none")]
    flags += ["--tokens-per-sample", str(task.get("tokens_per_sample") or 1024), "--context-window", window]
    yield from _decoding(flags)
    yield from [("decode_flag", "--add-bos-token")] if task.get("add_bos_token") else []
    yield "context_window", window
    for each in test_sets(args.data, args.test_sets):
        yield "test_set", f"{each.subset}\t{each.name}\t{(args.references or args.data / 'raw') / each.name}"


def _plan_speech(args: argparse.Namespace, config: Mapping[str, Any], run: Run) -> Iterator[tuple[str, str]]:
    tables = _binarised(args.data, "speech")
    yield from _search(args, config)
    configuration = str(config["task"].get("config_yaml") or "config.yaml")
    yield from (("decode_flag", flag) for flag in ("--config-yaml", configuration))
    yield "configuration", configuration
    # The task itself joins the units, as config.yaml says; joined twice, words would run together.
    yield "subwords", "none"
    wanted = test_sets(args.data, args.test_sets)
    place = args.references or args.data / "raw"
    yield "target", _language_of(place, wanted[0].name)
    for each in wanted:
        table = tables / f"{each.subset}.tsv"
        raw = place / f"{each.name}.{_language_of(place, each.name)}"
        _same_count(raw, len(read_sentences(raw)), table, len(read_sentences(table)) - 1)
        yield "test_set", f"{each.subset}\t{each.name}\t{raw}"


def _language_of(directory: Path, name: str) -> str:
    """The ending of the one file of references of a test set."""
    found = sorted(path.name.removeprefix(f"{name}.") for path in directory.glob(f"{name}.*"))
    if len(found) != 1:
        raise UserError(f"{directory}: one file {name}.LANGUAGE with the text of {name} is wanted, found {len(found)}")
    return found[0]


def _scored_as(run: Run) -> str:
    """Summaries are trained as translations; that they are summaries, the published row says."""
    from fairseq_plugins.pipeline.recipes import published_rows

    return "summarisation" if any(row.metric.startswith("ROUGE") for row in published_rows(run)) else "translation"


_PLANS = {"translation": _plan_translation, "language_model": _plan_language_model, "speech": _plan_speech}


def _search(args: argparse.Namespace, config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Beam and length penalty as the configuration or the user says, and whatever else the configuration says."""
    generation = config.get("generation", {})
    form = str(generation.get("lenpen_form", "fairseq"))
    beam = args.beam or str(generation.get("beam", 5))
    penalty = f"{float(args.length_penalty or generation.get('lenpen', 1.0)):g}"
    yield "beam", beam
    yield "length_penalty", penalty if form == "fairseq" else f"{penalty} ({form})"
    flags = ["--beam", beam, "--lenpen", penalty]
    flags += [] if form == "fairseq" else ["--lenpen-form", form]
    for key in SEARCH:
        flags += [flag(key), str(generation[key])] if key in generation else []
    yield from _decoding(flags)


def _decoding(flags: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Flags with one value each, and once more as settings that later calls are compared with."""
    yield from (("decode_flag", option) for option in flags)
    for option, value in zip(flags[::2], flags[1::2], strict=True):
        yield "setting", f"{option.removeprefix('--')}={value}"


def _languages(binarised: Path, config: Mapping[str, Any]) -> tuple[str, str]:
    from fairseq.data.data_utils import infer_language_pair

    task = config["task"]
    pair = (task.get("source_lang"), task.get("target_lang"))
    source, target = pair if all(pair) else infer_language_pair(str(binarised))
    if not source or not target:
        raise UserError(f"{binarised}: its languages are not known; it holds no train.SOURCE-TARGET.* files")
    return source, target


def _size_of(prefix: Path) -> int:
    from fairseq.data.data_utils import load_indexed_dataset

    found = load_indexed_dataset(str(prefix), None)
    if found is None:
        raise UserError(f"{prefix}.bin: no such binarised test set")
    return len(found)


def _same_count(raw: Path, lines: int, binarised: Path, sentences: int) -> None:
    if lines != sentences:
        raise UserError(
            f"{raw}: {lines} lines, but {binarised.name} in {binarised.parent.name} has {sentences} sentences: "
            "not the references of this test set"
        )


# --- check ----------------------------------------------------------------------------------------------------------


def check(args: argparse.Namespace) -> None:
    """Write ``self-check.json`` and say in one line what came out.

    Raises:
        UserError: the references that were binarised are not the published ones.
    """
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    translation = args.kind == "translation"
    references = self_check.References(
        args.data,
        fits.binarised(args.data),
        args.subset,
        args.name,
        args.raw,
        args.source,
        args.language,
        text_of(args) if translation else described(args.data),
        args.configuration or "config.yaml",
    )
    result = self_check.checked(args.kind, references, args.accept)
    write_whole(args.target, json.dumps(result.as_dict(), indent=1, ensure_ascii=False) + "\n")
    print(f"{args.name}: the prepared references against the published ones: {result}")
    if result.accepted:
        print(f"warning: {args.name}: {result.problem}; accepted: {result.accepted}", file=sys.stderr)


# --- texts ----------------------------------------------------------------------------------------------------------


def texts(args: argparse.Namespace) -> None:
    """Write ``hypotheses.tok``, ``references.tok`` and ``references.txt`` into the place of a test set.

    The tokenised references are those from before the subwords, so that no unknown word is replaced in them; where a
    corpus has none, what ``fairseq-generate`` printed.

    Raises:
        UserError: not every sentence was translated, once.
    """
    raw = read_sentences(args.raw)
    with open(args.log, encoding="utf-8", newline="\n") as lines:
        content = list(lines)
    try:
        hypotheses = hypotheses_in_order(content, len(raw))
        printed = references_in_order(content, len(raw))
    except UserError as error:
        raise UserError(f"{args.log}: {error}") from None
    references = read_sentences(args.tokenised) if args.tokenised.is_file() else printed
    if len(references) != len(raw):
        raise UserError(f"{args.tokenised}: {len(references)} lines, but {args.raw} has {len(raw)}")
    write_lines(args.out / "references.tok", references)
    write_lines(args.out / "references.txt", raw)
    write_lines(args.target, hypotheses)


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write lines, each ended by a line feed."""
    write_whole(path, "".join(line + "\n" for line in lines))


# --- perplexity -----------------------------------------------------------------------------------------------------

_LOSS = re.compile(r"Loss \(base 2\): ([\d.]+|nan|inf), Perplexity: ([\d.]+|nan|inf)")
_TOKENS = re.compile(r"Evaluated ([\d,]+) tokens")


def perplexity(args: argparse.Namespace) -> None:
    """Write the scores of a language model, from what ``eval-lm`` printed.

    Bits per byte are the bits of the whole text over its bytes, so that they can be compared whatever the tokens are.

    Raises:
        UserError: the log holds no result.
    """
    log = args.log.read_text(encoding="utf-8", errors="replace")
    loss, tokens = _LOSS.search(log), _TOKENS.search(log)
    if loss is None or tokens is None:
        raise UserError(f"{args.log}: fairseq-deep eval-lm printed no loss")
    bits, count = float(loss[1]), int(tokens[1].replace(",", ""))
    how = f"eval-lm|tokens:{count}"
    metrics = [_metric("perplexity", 2**bits, how), _metric("bits per token", bits, how)]
    if args.raw.is_file():
        size = args.raw.stat().st_size
        metrics.append(_metric("bits per byte", bits * count / size, f"{how}|bytes:{size}"))
    content = {"tokens": count, "metrics": metrics}
    shown = [f"{metric['name']:<16}{metric['value']:.4f}  {metric['signature']}\n" for metric in metrics]
    write_whole(args.target.parent / "score.txt", "".join(shown))
    write_whole(args.target, json.dumps(content, indent=1) + "\n")


def _metric(name: str, value: float, signature: str) -> dict[str, Any]:
    return {"name": name, "value": value, "signature": signature, "higher_is_better": False}


# --- signature ------------------------------------------------------------------------------------------------------


def signature(args: argparse.Namespace) -> str:
    """One line: everything that a score depends on."""
    run = read_run(args.run)
    scores = json.loads((args.place / SCORES).read_text(encoding="utf-8"))
    metrics = [metric for metric in scores.get("metrics", []) if metric.get("signature")]
    parts = {
        "commit": _commit(),
        "config": _config_hash(run),
        "seed": run.seed,
        "checkpoint": _hash_of_file(args.model),
        "average": args.average,
        "updates": args.updates,
        "beam": args.beam,
        "length-penalty": args.length_penalty,
        "sentences": scores.get("sentences"),
        "accepted": _accepted(args.place / self_check.FILE),
        "score": metrics[0]["signature"] if metrics else None,
    }
    return " ".join(f"{name}:{value}" for name, value in parts.items() if value not in (None, ""))


def _accepted(path: Path) -> str | None:
    """Why a user has gone on although the self-check had failed, as one word; None where it had not."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return "_".join(str(found.get("accepted") or "").split()) or None


def _commit() -> str:
    """The commit of this package, with a plus where files were changed since; ``-`` outside a repository."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout

    try:
        changed = git("status", "--porcelain", "--untracked-files=no").strip()
        return git("rev-parse", "--short=12", "HEAD").strip() + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "-"


def _config_hash(run: Run) -> str:
    """A fingerprint of the configuration file and its changes but for the seed; ``-`` where that file is not here."""
    path = ROOT / "configs" / f"{run.config}.yaml"
    if run.config is None or not path.is_file():
        return "-"
    content = path.read_bytes() + "\n".join(run.changes).encode()
    return hashlib.sha256(content).hexdigest()[:12]


def _hash_of_file(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()[:12]


# --- the command ----------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """Flags of the steps; empty values mean: not given."""
    flags = argparse.ArgumentParser(prog="python -m fairseq_plugins.pipeline.evaluation", description=__doc__)
    steps = flags.add_subparsers(dest="step", required=True)
    step = _add_step(steps, "plan", options=("average", "beam", "length-penalty", "context-window", "metrics"))
    step.add_argument("run", type=Path)
    step.add_argument("data", type=Path)
    step.add_argument("test_sets", nargs="*")
    step.add_argument("--ema", action="store_true")
    step.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto")
    _add_text(step)
    step = _add_step(steps, "check", ("data", "raw"), ("source", "language", "configuration", "accept"))
    step.add_argument("--kind", choices=tuple(KINDS.values()), required=True)
    step.add_argument("--subset", required=True)
    step.add_argument("--name", required=True)
    _add_text(step)
    step.add_argument("target", type=Path)
    for name, paths in (("texts", ("log", "raw", "tokenised", "out")), ("perplexity", ("log", "raw"))):
        _add_step(steps, name, paths).add_argument("target", type=Path)
    _add_step(steps, "signature", ("run", "place", "model"), ("average", "updates", "beam", "length-penalty"))
    return flags


def _add_step(steps: Any, name: str, paths: Sequence[str] = (), options: Sequence[str] = ()) -> argparse.ArgumentParser:
    step: argparse.ArgumentParser = steps.add_parser(name)
    for path in paths:
        step.add_argument(f"--{path}", type=Path, required=True)
    for option in options:
        step.add_argument(f"--{option}", default="")
    return step


def _add_text(step: argparse.ArgumentParser) -> None:
    """What a user says of text that no preparation has described."""
    step.add_argument("--remove-bpe", choices=("", *SUBWORDS), default="")
    step.add_argument("--tokenised", choices=("", "moses", "none"), default="")
    step.add_argument("--lower-cased", choices=("", "0", "1"), default="")
    step.add_argument("--references", type=_path_or_none, default=None)


def _path_or_none(value: str) -> Path | None:
    return Path(value) if value else None


def print_plan(args: argparse.Namespace) -> None:
    """Print :func:`plan`, a pair a line."""
    print("".join(f"{name}\t{value}\n" for name, value in plan(args)), end="")


def print_signature(args: argparse.Namespace) -> None:
    """Print :func:`signature`."""
    print(signature(args))


STEPS: Mapping[str, Callable[[argparse.Namespace], None]] = {
    "plan": print_plan,
    "check": check,
    "texts": texts,
    "perplexity": perplexity,
    "signature": print_signature,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one step; 0, or 2 after one line for each problem."""
    args = parser().parse_args(argv)
    return exit_code(lambda: STEPS[args.step](args))


if __name__ == "__main__":
    sys.exit(main())
