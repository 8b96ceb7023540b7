"""The main job, stage by stage: text, binary corpus, training and translation of each method, report."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path

from fairseq_plugins.demo import text
from fairseq_plugins.demo.children import Children, CommandFailed
from fairseq_plugins.demo.decoding import Search, sacrebleu_score, translate
from fairseq_plugins.demo.progress import Board, duration, training_status
from fairseq_plugins.demo.report import Report, Result, last_lines, notes, samples, text_table, write_report
from fairseq_plugins.demo.stage import Settings, claimed, make_once
from fairseq_plugins.demo.training import Recipe, Training
from fairseq_plugins.errors import UserError
from fairseq_plugins.pipeline.training_log import LogReader, TrainingLog, judge, read_log, tail, unigram_entropy


@dataclass(frozen=True)
class EmbeddedCorpus:
    """Size of the corpus that this package writes itself, in sentence pairs."""

    train: int
    valid: int
    test: int
    seed: int = 1


@dataclass(frozen=True)
class UserCorpus:
    """The user's own files: ``<prefix>.<language>[.gz]`` in a directory."""

    directory: Path
    prefixes: dict[str, str | None]
    """File name of each split without the language; None for the usual one that is there."""


@dataclass(frozen=True)
class Job:
    """Everything that the flags decide."""

    corpus: EmbeddedCorpus | UserCorpus
    languages: tuple[str, str]
    out: Path
    methods: tuple[str, ...]
    text: text.TextSettings
    recipe: Recipe
    search: Search
    parallel: int
    threads: int
    gpu: bool


def run(job: Job, board: Board) -> Report:
    """Run every stage that is not done yet, and write the report.

    Raises:
        UserError: bad input; nothing was written.
        CommandFailed: the corpus could not be made binary. A method that fails is a row of the report instead.
        KeyboardInterrupt: after every child has ended; running the job again continues it.
    """
    began = time.monotonic()
    corpus = _read(job)
    data_settings: Settings = {"text": corpus.digest(), "languages": list(job.languages), **asdict(job.text)}
    data = job.out / "data-bin"
    trainings = [
        Training(method, job.recipe, data, job.out / method, data_settings=data_settings) for method in job.methods
    ]
    if conflicts := [conflict for training in trainings if (conflict := training.conflict())]:
        raise UserError(conflicts)
    with claimed(job.out), Children(job.threads) as children:
        _prepare(job, corpus, data_settings, children, board)
        results = _train_all(job, corpus, trainings, children, board)
        report = _report(job, corpus, results, data_settings, time.monotonic() - began)
        _present(job, report, board)
    return report


def _read(job: Job) -> text.Corpus:
    source, target = job.languages
    if isinstance(job.corpus, UserCorpus):
        directory = job.corpus.directory
        prefixes = {
            split: job.corpus.prefixes.get(split) or text.find_prefix(directory, split, source) for split in text.SPLITS
        }
        return text.read_corpus(directory, source, target, prefixes)
    from fairseq_plugins.demo.corpus import write_corpus

    with tempfile.TemporaryDirectory(prefix="embedded-corpus-") as directory_name:
        directory = Path(directory_name)
        write_corpus(directory, job.corpus.train, job.corpus.valid, job.corpus.test, job.corpus.seed)
        return text.read_corpus(directory, source, target, {split: split for split in text.SPLITS})


def _prepare(job: Job, corpus: text.Corpus, settings: Settings, children: Children, board: Board) -> None:
    """The two stages of text; on disk afterwards: ``text/`` in subwords and ``data-bin/`` for fairseq."""
    subwords = job.out / "text"
    counts = ", ".join(f"{split} {len(corpus.sentences[split][job.languages[0]]):,}" for split in text.SPLITS)
    board.say(f"corpus {'-'.join(job.languages)}: {counts} sentence pairs")
    if not make_once(subwords, settings, lambda place: text.write_subwords(corpus, job.text, place, board.say)):
        board.say(f"{subwords}: there already, kept")
    if make_once(job.out / "data-bin", settings, lambda place: _binarise(subwords, place, job.languages, children)):
        board.say(f"{job.out / 'data-bin'}: numbered for fairseq")
    else:
        board.say(f"{job.out / 'data-bin'}: there already, kept")


def _binarise(subwords: Path, place: Path, languages: tuple[str, str], children: Children) -> None:
    prefixes = [
        part
        for split, flag in zip(text.SPLITS, ("--trainpref", "--validpref", "--testpref"), strict=True)
        for part in (flag, str(subwords / split))
    ]
    command = [
        sys.executable,
        "-m",
        "fairseq_cli.preprocess",
        "--source-lang",
        languages[0],
        "--target-lang",
        languages[1],
        *prefixes,
        "--destdir",
        str(place),
        "--joined-dictionary",
        "--workers",
        "1",
    ]
    log = subwords.parent / "preprocess.out"
    children.run("fairseq-preprocess", command, log)


def _train_all(
    job: Job, corpus: text.Corpus, trainings: list[Training], children: Children, board: Board
) -> list[Result]:
    entropy = _target_entropy(job)
    readers = {training.method: LogReader(training.log_file) for training in trainings}
    with ThreadPoolExecutor(max_workers=job.parallel) as pool:
        futures: list[Future[Result]] = [
            pool.submit(_one_method, job, corpus, training, entropy, children, board) for training in trainings
        ]
        try:
            pending = set(futures)
            while pending:
                _, pending = wait(pending, timeout=1.0)
                for training in trainings:
                    _show_progress(training, readers[training.method], board)
                board.show()
        except BaseException:
            children.stop()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [future.result() for future in futures]


def _show_progress(training: Training, reader: LogReader, board: Board) -> None:
    if board.status(training.method) is not None and not training.finished:
        board.set(training.method, training_status(reader.poll(), training.recipe.max_update))


def _target_entropy(job: Job) -> float:
    with open(job.out / "text" / f"train.{job.languages[1]}", encoding="utf-8", newline="\n") as lines:
        return unigram_entropy(lines)


def _one_method(
    job: Job, corpus: text.Corpus, training: Training, entropy: float, children: Children, board: Board
) -> Result:
    """Train, translate and score one method; what goes wrong becomes a row that says so."""
    method = training.method
    try:
        if training.finished:
            board.say(f"{method}: trained already, kept")
        else:
            board.set(method, "starting")
            training.run(children, gpu=job.gpu)
        board.set(method, "averaging and translating")
        result = _translated(job, corpus, training, entropy, children)
    except (CommandFailed, UserError) as error:
        result = _failure(training, error, board, quiet=children.stopped)
    finally:
        board.set(method, None)
    if not result.failed:
        board.say(_summary(result))
    return result


def _failure(training: Training, error: CommandFailed | UserError, board: Board, *, quiet: bool) -> Result:
    log = read_log(training.log_file)
    if not quiet:
        board.say(f"{training.method}: failed: {error}")
        for line in tail(error.log) if isinstance(error, CommandFailed) else []:
            board.say(f"    {line}")
    return Result(
        training.method,
        failed=str(error),
        parameters=log.parameters,
        valid_loss=log.final_valid_loss,
        train_curve=log.train_loss,
        valid_curve=log.valid_loss,
    )


def _summary(result: Result) -> str:
    bleu = "no translation" if result.bleu is None else f"BLEU {result.bleu:.1f}"
    loss = "no valid loss" if result.valid_loss is None else f"valid loss {result.valid_loss:.2f} bits/token"
    return f"{result.method}: {loss}, {bleu}" + (f"; diverged: {result.verdict}" if result.diverged else "")


def _translated(job: Job, corpus: text.Corpus, training: Training, entropy: float, children: Children) -> Result:
    log = read_log(training.log_file)
    checkpoints = training.to_average()
    if not checkpoints:
        return _result(training, log, entropy)
    source, target = job.languages
    references = corpus.sentences["test"][target]
    place = training.directory / "translation"
    settings = {"training": training.settings, "checkpoints": [path.name for path in checkpoints], **asdict(job.search)}

    def make(partial: Path) -> None:
        translate(
            checkpoints,
            job.out / "data-bin",
            partial,
            job.search,
            job.languages,
            children,
            expected=len(references),
            gpu=job.gpu,
        )

    make_once(place, settings, make)
    hypotheses = (place / f"hypotheses.{target}").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    return _result(training, log, entropy, hypotheses, references)


def _result(
    training: Training,
    log: TrainingLog,
    entropy: float,
    hypotheses: list[str] | None = None,
    references: list[str] | None = None,
) -> Result:
    verdict = judge(log, entropy)
    score = sacrebleu_score(hypotheses, references) if hypotheses is not None and references is not None else None
    return Result(
        method=training.method,
        parameters=log.parameters,
        diverged=verdict.diverged,
        verdict=verdict.reason,
        valid_loss=log.final_valid_loss,
        bleu=score.bleu if score else None,
        signature=score.signature if score else None,
        tokens_per_second=log.median_speed,
        train_curve=log.train_loss,
        valid_curve=log.valid_loss,
        hypotheses=tuple(hypotheses or ()),
        command=training.shown_command(),
    )


def _report(job: Job, corpus: text.Corpus, results: list[Result], data: Settings, seconds: float) -> Report:
    source, target = job.languages
    layers = f"{job.recipe.encoder_layers} encoder and {job.recipe.decoder_layers} decoder layers"
    return Report(
        title=f"{source}-{target}, {layers}, {job.recipe.max_update:,} updates",
        results=tuple(results),
        sources=tuple(corpus.sentences["test"][source]),
        references=tuple(corpus.sentences["test"][target]),
        unigram_entropy=_target_entropy(job),
        settings={
            **asdict(job.recipe),
            **data,
            **asdict(job.search),
            "parallel": job.parallel,
            "threads": job.threads,
            "gpu": job.gpu,
        },
        seconds=seconds,
    )


def _present(job: Job, report: Report, board: Board) -> None:
    drawn = write_report(report, job.out)
    board.say("")
    for block in samples(report):
        for name, sentence in block:
            board.say(f"  {name:<12} {sentence}")
        board.say("")
    board.say(text_table(report.results))
    board.say("")
    for line in notes(report):
        board.say(line)
    out = Path(os.path.relpath(job.out)) if job.out.is_relative_to(Path.cwd()) else job.out
    picture = f", {out / 'curves.png'}" if drawn else " (no picture: matplotlib is not installed)"
    board.say("")
    files = f"{out / 'report.md'}, {out / 'results.json'}{picture}; {duration(report.seconds)}"
    for line in last_lines(report, files, own_text=isinstance(job.corpus, UserCorpus)):
        board.say(line)
