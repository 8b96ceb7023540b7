"""``fairseq-deep translate MODEL``: raw text in, raw text out, and the same in Python: :class:`Translator`."""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from heapq import nlargest
from itertools import product
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

from fairseq_plugins.errors import UserError, report, unknown_name
from fairseq_plugins.lines import decoded, open_bytes, raw_lines
from fairseq_plugins.options import IntermixedParser, at_least, finite
from fairseq_plugins.process import exit_code
from fairseq_plugins.translator.engines import AUTO, BEST, DEVICES, Engine, How, Hypothesis, Wanted, choose, make_engine
from fairseq_plugins.translator.package import Package, open_package
from fairseq_plugins.workers import SPAWN, Workers, grouped, map_lines

SPLIT, REFUSE = "split", "refuse"
MOST_CHARACTERS = 1 << 20
"""So many characters are read before they are translated, whatever the number of lines."""
STANDARD_INPUT = "standard input"
END = "</s>"
"""fairseq's name for the end of a sentence."""


class Translation(NamedTuple):
    """The translation of a line.

    Attributes:
        text: raw text; empty for a line of white space.
        score: log-probability (natural log) with the length penalty, the sum over the parts of a line that was cut.
    """

    text: str
    score: float


class Candidate(NamedTuple):
    """One of the translations of a line.

    Attributes:
        text, score: as of :class:`Translation`.
        tokens: what the model wrote, with the end of each sentence, ``</s>``.
        token_scores: log-probability (natural log) of each of the tokens; their sum, divided by their number to the
            power of the length penalty, is the score of a line that was not cut.
        alignment: pairs of places, counted from 0: of a source token, and of the token that attends to it most. Ends of
            sentences have none; empty unless it was asked for.
    """

    text: str
    score: float
    tokens: list[str]
    token_scores: list[float]
    alignment: list[tuple[int, int]]


class NBest(NamedTuple):
    """The translations of a line, and what they are made of.

    Attributes:
        source: the line.
        source_tokens: what the model read, without the ends of sentences.
        candidates: the translations, the best first.
    """

    source: str
    source_tokens: list[str]
    candidates: list[Candidate]


class Chunk(NamedTuple):
    """Lines that are translated together.

    Attributes:
        before: number of lines before them.
        lines: without their line ends.
        name: of the text, for messages.
        wanted: of each line.
    """

    before: int
    lines: list[str]
    name: str = "text"
    wanted: Wanted = BEST


class Translated(NamedTuple):
    """The translations of a chunk.

    Attributes:
        lines: the translations, in order.
        problem: why the next line is not translated; None if all are.
    """

    lines: list[NBest]
    problem: UserError | None


class Translator:
    """A package of ``fairseq-deep package``, ready to translate; several threads may use it, one after the other.

    Args:
        model: the directory.
        engine: ``auto`` (the fastest that it holds), ``fairseq``, ``ctranslate2`` or the name of one of its exports.
        device: ``auto``, ``cpu`` or ``gpu``.
        beam, length_penalty: of the search; by default the package's.
        batch: most tokens of a batch, pads among them; by default what is fast for the engine.
        too_long: what is done with a line that is longer than those of the training: ``split`` translates it in parts,
            ``refuse`` raises an error.
        longest: tokens that are translated at once; at most what the model and the search take. By default a line that
            is longer than every sentence of the training is translated sentence by sentence.
        processes: how many processes share the work of :meth:`translate`. They are started by its first call, each with
            imports and a model of its own, and ended by :meth:`close`.

    Raises:
        UserError: the directory is no whole package, or an option is not legal.
    """

    def __init__(
        self,
        model: str | Path | Package,
        *,
        engine: str = AUTO,
        device: str = "auto",
        beam: int | None = None,
        length_penalty: float | None = None,
        batch: int | None = None,
        too_long: str = SPLIT,
        longest: int | None = None,
        processes: int = 1,
    ) -> None:
        numbers = {"beam": beam, "batch": batch, "longest": longest, "processes": processes}
        _check_options({"device": device, "too_long": too_long}, numbers, length_penalty)
        package = self.package = model if isinstance(model, Package) else open_package(Path(model))
        options = {"beam": beam, "lenpen": length_penalty}
        search = {**package.content["search"], **{name: value for name, value in options.items() if value is not None}}
        self.processes, self.too_long = processes, too_long
        limit = longest_of(package)
        self.longest = min(longest or limit, limit)
        self.usual = None if longest else package.content.get("longest_trained")
        self._how = How(search, batch, device, processes)
        self.engine, self.remark = choose(package, engine, self._how)
        form = package.form
        self._form, self._encode, self._decode = form, form.encoder(package.directory), form.decoder()
        self._engine: Engine | None = None
        self._workers: Workers[Chunk, Translated] | None = None
        self._lock = RLock()
        self._options = {
            **numbers,
            **{"engine": self.engine, "device": device, "too_long": too_long, "length_penalty": length_penalty},
        }
        if processes == 1:
            self._start()

    def _start(self) -> Engine:
        """Make the engine; with several processes, each makes its own."""
        if self._engine is None:
            self._engine = make_engine(self.package, self.engine, self._how)
        return self._engine

    def close(self) -> None:
        """End the processes; the next call of :meth:`translate` would start others."""
        with self._lock:
            workers, self._workers = self._workers, None
            if workers is not None:
                workers.end()

    def __enter__(self) -> Translator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __str__(self) -> str:
        search, form = self._how.search, self._form
        engine = self._engine.label if self._engine else f"{self.engine}, {self.processes} processes"
        remark = f" ({self.remark})" if self.remark else ""
        penalty = f"length penalty {search['lenpen']:g}"
        return f"{form.source}-{form.target}: {engine}, beam {search['beam']}, {penalty}{remark}"

    def translate(self, texts: Iterable[str]) -> list[Translation]:
        """Translate each text, in order.

        Raises:
            UserError: a text is too long and ``too_long`` is ``refuse``, or is no legal Unicode.
            TypeError: what is given is no list of texts.
        """
        best = (line.candidates[0] for line in self._lines(texts, BEST))
        return [Translation(candidate.text, candidate.score) for candidate in best]

    def nbest(self, texts: Iterable[str], count: int = 1, alignment: bool = False) -> list[NBest]:
        """Translate each text into its ``count`` best translations, with the log-probability of each token.

        Args:
            texts: in any order.
            count: at most the beam.
            alignment: whether each token also gets the source token that it attends to most.

        Raises:
            UserError, TypeError: as :meth:`translate`; ``count`` is not legal, or the model has no alignment.
        """
        return self._lines(texts, self.wanted(count, alignment))

    def wanted(self, nbest: int = 1, alignment: bool = False) -> Wanted:
        """Return the argument by which :meth:`nbest` and :meth:`stream` know what to return.

        Raises:
            UserError: the search does not find so many.
        """
        beam = self._how.search["beam"]
        if not isinstance(nbest, int) or not 1 <= nbest <= beam:
            raise UserError(f"nbest {nbest!r}: a search of beam {beam} finds 1 to {beam} translations of a line")
        return Wanted(nbest, True, alignment)

    def _lines(self, texts: Iterable[str], wanted: Wanted) -> list[NBest]:
        if isinstance(texts, str | bytes):
            raise TypeError("translate takes a list of texts, not one text")
        lines = [_checked(text, number) for number, text in enumerate(texts, start=1)]
        size = max(1, -(-len(lines) // (4 * self.processes))) if self.processes > 1 else max(1, len(lines))
        chunks = (Chunk(at, lines[at : at + size], wanted=wanted) for at in range(0, len(lines), size))
        if self.processes == 1:
            return [line for lines in _checked_parts(map(self._translate, chunks)) for line in lines]
        with self._lock:
            if self._workers is None:
                make = partial(_in_process, self.package, self._options)
                self._workers = Workers(make, self.processes, SPAWN)
            try:
                translated = list(self._workers.map(chunks))
            except BaseException:
                # They have been ended, too.
                self._workers = None
                raise
        return [line for lines in _checked_parts(translated) for line in lines]

    def stream(self, chunks: Iterable[Chunk]) -> Iterator[list[NBest]]:
        """Translate chunks of lines, in order; no more are read than the processes work on, and two for each.

        With several processes it forks, so call it before anything has been computed, as the command line does.

        Raises:
            UserError: as :meth:`translate`, behind the lines before the one that is refused.
        """
        return _checked_parts(map_lines(lambda: self._translate, chunks, self.processes, at_once=1))

    def _too_long(self, tokens: int) -> str:
        limit = f"more than the {self.longest:,} that can be translated at once"
        if tokens <= self.longest:
            limit = f"and the longest sentence of the training has {self.usual:,}"
        return f"{tokens:,} tokens, {limit}; --too-long {SPLIT} translates it in parts"

    def _translate(self, chunk: Chunk) -> Translated:
        parts: list[Sequence[str]] = []
        ends = []
        problem = None
        for number, line in enumerate(chunk.lines, start=chunk.before + 1):
            tokens = self._encode(line)
            cut = list(self._form.cut(tokens, self.longest, self.usual)) if tokens else []
            if len(cut) > 1 and self.too_long == REFUSE:
                problem = UserError(f"{chunk.name}: line {number}: {self._too_long(len(tokens))}")
                break
            parts += cut
            ends.append(len(parts))
        hypotheses = self._start().search(parts, chunk.wanted) if parts else []
        lines = [
            self._nbest(line, parts[start:end], hypotheses[start:end], chunk.wanted)
            for line, start, end in zip(chunk.lines, [0, *ends], ends, strict=False)
        ]
        return Translated(lines, problem)

    def _nbest(self, line: str, parts: list[Sequence[str]], lists: list[list[Hypothesis]], wanted: Wanted) -> NBest:
        """Return the best translations of a line, each made of one translation of each of its parts."""
        best: list[tuple[Hypothesis, ...]] = [()]
        for alternatives in lists:
            longer = ((*before, hypothesis) for before, hypothesis in product(best, alternatives))
            best = nlargest(wanted.nbest, longer, key=_score)
        candidates = []
        for hypotheses in best:
            text = self._decode([word for hypothesis in hypotheses for word in hypothesis.tokens])
            candidates.append(Candidate(text, _score(hypotheses), *_tokens(parts, hypotheses)))
        return NBest(line, [token for part in parts for token in part], candidates)


def _score(hypotheses: Sequence[Hypothesis]) -> float:
    return sum((hypothesis.score for hypothesis in hypotheses), 0.0)


def _tokens(
    parts: Sequence[Sequence[str]], hypotheses: Sequence[Hypothesis]
) -> tuple[list[str], list[float], list[tuple[int, int]]]:
    """Tokens with the ends of sentences, their log-probabilities, and the alignment of the translation of a line."""
    tokens: list[str] = []
    scores: list[float] = []
    alignment: list[tuple[int, int]] = []
    before = 0
    for part, hypothesis in zip(parts, hypotheses, strict=True):
        alignment += [(before + source, len(tokens) + target) for source, target in hypothesis.alignment]
        tokens += [*hypothesis.tokens, END]
        scores += hypothesis.token_scores
        before += len(part)
    return tokens, scores, alignment


def _check_options(names: dict[str, str], numbers: dict[str, int | None], penalty: float | None) -> None:
    for what, legal in (("device", DEVICES), ("too_long", (SPLIT, REFUSE))):
        if names[what] not in legal:
            raise UserError(unknown_name(what, str(names[what]), legal))
    for what, number in numbers.items():
        if number is not None and (not isinstance(number, int) or number < 1):
            raise UserError(f"{what} {number!r}: not a whole number of at least 1")
    if penalty is not None and not (isinstance(penalty, int | float) and math.isfinite(penalty)):
        raise UserError(f"length_penalty {penalty!r}: not a finite number")


def _in_process(package: Package, options: dict[str, Any]) -> Callable[[Chunk], Translated]:
    """Return the work of a process of :class:`Translator`; the files of the package are checked already."""
    return Translator(package, **options)._translate


def _checked_parts(translated: Iterable[Translated]) -> Iterator[list[NBest]]:
    for lines, problem in translated:
        yield lines
        if problem is not None:
            raise problem


def _checked(text: Any, number: int) -> str:
    if not isinstance(text, str):
        raise TypeError(f"text {number}: {type(text).__name__}, not str")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"text {number}: no legal Unicode: {text[error.start]!r} is half a character") from None
    return text


def longest_of(package: Package) -> int:
    """Return how many source tokens, without the end of the sentence, a model and its search take at most.

    A search that stops at a fixed length would lose the rest of a translation, which is about as long as its source.
    """
    search, positions = package.content["search"], package.content["positions"]
    limits = [position - 1 for position in positions]
    return int(min([*limits, search["max_len_b"]] if search["max_len_a"] == 0 else limits))


def chunks_of(stream: Iterable[bytes], name: str, size: int, wanted: Wanted = BEST) -> Iterator[Chunk]:
    """Lines of UTF-8 in chunks of ``size`` lines, or of fewer where they are long; lines end at the line feed alone.

    Raises:
        UserError: a line is not UTF-8.
    """
    before = 0
    for lines in grouped(decoded(stream, name), size, len, MOST_CHARACTERS):
        yield Chunk(before, lines, name, wanted)
        before += len(lines)


def parser() -> IntermixedParser:
    """Flags of ``fairseq-deep translate``."""
    flags = IntermixedParser(
        prog="fairseq-deep translate",
        description="Translate raw text, a sentence or a paragraph a line, with a directory of fairseq-deep package. "
        "Every line of the input is a line of the output; at a terminal each line is translated when it is entered.",
    )
    flags.add_argument("model", type=Path, metavar="MODEL", help="a directory of fairseq-deep package")
    flags.add_argument(
        "input", nargs="?", type=Path, metavar="INPUT", help="text, or text.gz (default: standard input)"
    )
    flags.add_argument(
        "--engine",
        default=AUTO,
        metavar="NAME",
        help="fairseq, ctranslate2, or one of the exports in MODEL (default: auto, the fastest of them)",
    )
    flags.add_argument("--device", choices=DEVICES, default="auto", help="default: auto")
    flags.add_argument("--beam", type=at_least(1), metavar="N", help="default: as MODEL says")
    flags.add_argument("--length-penalty", type=finite, metavar="X", help="default: as MODEL says")
    flags.add_argument("--batch", type=at_least(1), metavar="TOKENS", help="default: what is fast for the engine")
    flags.add_argument("--processes", type=at_least(1), default=1, metavar="N", help="default: 1")
    flags.add_argument(
        "--too-long",
        choices=(SPLIT, REFUSE),
        default=SPLIT,
        help="translate a line that is longer than those of the training in parts, or refuse it (default: split)",
    )
    flags.add_argument(
        "--longest",
        type=at_least(1),
        metavar="TOKENS",
        help="translate up to TOKENS at once (default: a line that is longer than every sentence of the training is "
        "cut into sentences, and a sentence only where it exceeds the model's limit)",
    )
    flags.add_argument(
        "--buffer", type=at_least(1), default=500, metavar="LINES", help="lines translated together (default: 500)"
    )
    flags.add_argument(
        "--json",
        action="store_true",
        help="print a JSON object for each line: its translations, their tokens and the log-probability of each token",
    )
    flags.add_argument(
        "--nbest", type=at_least(1), metavar="N", help="print the N best translations of each line; means --json"
    )
    flags.add_argument(
        "--alignment",
        action="store_true",
        help="print for each token the source token that it attends to most; means --json",
    )
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Translate; 0, 2 after one line for each problem, 130 after Ctrl-C."""
    return exit_code(lambda: translate(parser().read(argv)))


def translate(args: argparse.Namespace) -> None:
    """Translate standard input or a file to standard output.

    Raises:
        UserError: as :class:`Translator`; a line is not UTF-8 or refused.
        OSError: the file cannot be read.
    """
    _log_to_errors()
    for name, stream in ((STANDARD_INPUT, sys.stdin), ("standard output", sys.stdout)):
        if stream is None and not (args.input and name == STANDARD_INPUT):
            raise UserError(f"{name} is closed")
    if args.input and not args.input.is_fifo():
        # A mistake is reported before the model is loaded.
        open_bytes(args.input).close()
    dialogue = args.input is None and sys.stdin.isatty()
    options = ("engine", "device", "beam", "length_penalty", "batch", "too_long", "longest")
    # Several processes would wait for several lines.
    processes = 1 if dialogue else args.processes
    translator = Translator(args.model, processes=processes, **{name: getattr(args, name) for name in options})
    in_json = args.json or args.alignment or args.nbest is not None
    wanted = translator.wanted(args.nbest or 1, args.alignment) if in_json else BEST
    print(translator, file=sys.stderr)
    lines: Iterable[bytes] = raw_lines(args.input) if args.input else sys.stdin.buffer
    if dialogue:
        lines = _prompted(sys.stdin.buffer, f"{translator.package.form.source}> ")
    chunks = chunks_of(lines, str(args.input or STANDARD_INPUT), 1 if dialogue else args.buffer, wanted)
    done, began = 0, time.monotonic()
    try:
        for translated in translator.stream(chunks):
            texts = (_json(line, args.alignment) if in_json else line.candidates[0].text for line in translated)
            _show_status()
            sys.stdout.buffer.write("".join(f"{text}\n" for text in texts).encode())
            sys.stdout.buffer.flush()
            done += len(translated)
            speed = done / max(time.monotonic() - began, 1e-9)
            _show_status("" if dialogue else f"{done:,} lines, {speed:.1f} a second")
    except KeyboardInterrupt:
        _show_status(f"interrupted; lines translated: {done:,}\n", everywhere=True)
        raise
    finally:
        _show_status()


def _show_status(text: str = "", everywhere: bool = False) -> None:
    """Replace the line about the work so far at a terminal; ``everywhere`` prints it elsewhere, too."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif everywhere:
        print(text, end="", file=sys.stderr, flush=True)


def _json(line: NBest, alignment: bool) -> str:
    """A line of ``--json``, with log-probabilities of four digits, as fairseq prints them."""
    candidates = []
    for candidate in line.candidates:
        scores = {
            "score": round(candidate.score, 4),
            "token_scores": [round(score, 4) for score in candidate.token_scores],
        }
        content = {**candidate._asdict(), **scores}
        candidates.append(content if alignment else {name: content[name] for name in content if name != "alignment"})
    return json.dumps({**line._asdict(), "candidates": candidates}, ensure_ascii=False)


def _prompted(stream: BinaryIO, prompt: str) -> Iterator[bytes]:
    while True:
        print(prompt, end="", file=sys.stderr, flush=True)
        line = stream.readline()
        if not line:
            print(file=sys.stderr)
            return
        try:
            line.decode()
        except UnicodeDecodeError as error:
            report(UserError(f"not UTF-8 (byte 0x{line[error.start]:02x})"))
        else:
            yield line


def _log_to_errors() -> None:
    """Standard output is for translations only."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stdout:
            handler.setStream(sys.stderr)
    logging.getLogger().setLevel(logging.WARNING)
