"""``fairseq-deep translate MODEL``: raw text in, raw text out, and the same in Python: :class:`Translator`."""

import argparse
import json
import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_plugins import register
from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.files import require_no_input
from fairseq_plugins.lines import decoded, grouped, raw_lines, write_lines
from fairseq_plugins.options import OneLineParser, at_least, finite
from fairseq_plugins.process import at_once, exit_code, importing, log_as_fairseq_does
from fairseq_plugins.processor import DEVICES, device_name
from fairseq_plugins.tools.decoder import Hypothesis
from fairseq_plugins.tools.translator.engines import AUTO, FAIRSEQ, CTranslate2Engine, SearchOptions, choose
from fairseq_plugins.tools.translator.package import checked_search, open_package
from fairseq_plugins.tools.workers import map_lines

MOST_CHARACTERS = 1 << 20
"""Maximum number of characters of lines that are translated together."""
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
        text, score: see :class:`Translation`.
        tokens: the model's tokens, with the end of each sentence, ``</s>``.
        token_scores: log-probability (natural log) of each token; their sum, divided by their number to the power of
            the length penalty, is the score of a line that was not cut.
        alignment: pairs of places, counted from 0: of a source token, and of the token that attends to it most, except
            ends of sentences; empty unless it was asked for.
    """

    text: str
    score: float
    tokens: list[str]
    token_scores: list[float]
    alignment: list[tuple[int, int]]


class NBest(NamedTuple):
    """A line, the tokens that the model read, without the ends of sentences, and its translations, the best first."""

    source: str
    source_tokens: list[str]
    candidates: list[Candidate]


class Translator:
    """A package of ``fairseq-deep package``, ready to translate.

    Threads may share a translator, in turns. A translator can be pickled; the receiving process loads the model again.
    A line that is longer than the model takes is cut.

    Args:
        model: the directory.
        engine: ``auto`` (the fastest in the directory), ``fairseq``, ``ctranslate2`` or the name of an export.
        device: ``auto``, ``cpu`` or ``gpu``, which may be called ``cuda``.
        beam: hypotheses of the search; by default the package's.
        length_penalty: fairseq's or GNMT's, as the package says; by default the package's.
        batch: maximum number of tokens of a batch, pads included; the default is fast for the engine.
        processes: number of processes that share the work of :meth:`stream`; each loads the model.

    Raises:
        UserError: the directory is not a complete package, or an option is not legal.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        engine: str = AUTO,
        device: str = "auto",
        beam: int | None = None,
        length_penalty: float | None = None,
        batch: int | None = None,
        processes: int = 1,
    ) -> None:
        device = device_name(str(device))
        if device not in DEVICES:
            raise UserError(unknown_name("device", device, DEVICES))
        counts = {"beam": beam, "batch": batch, "processes": processes}
        for name, number in counts.items():
            if number is not None and number < 1:
                raise UserError(f"{name} {number}: at least 1")
        package = self.package = open_package(Path(model))
        self._given: dict[str, Any] = {**counts, "engine": engine, "device": device, "length_penalty": length_penalty}
        search = dict(package.content["search"])
        for name, value in (("beam", beam), ("lenpen", length_penalty)):
            if value is not None:
                search[name] = value
        search = checked_search(search)
        limits = [position - 1 for position in package.content["positions"]]
        # A search that stops at a fixed length would lose the rest of a translation, about as long as the source.
        if package.content["search"]["max_len_a"] == 0:
            limits.append(package.content["search"]["max_len_b"])
        self.longest = min(limits)
        self._options = SearchOptions(search, batch, device, processes)
        self.engine = choose(package, engine, self._options)
        self._text = text = package.text
        self._encode, self._decode = text.encoder(package.directory), text.decoder()
        if self.engine == FAIRSEQ:
            with at_once(), importing():
                register()  # before the processes part, which import nothing again
        # Each of several processes makes an engine.
        self._engine = self._make_engine() if processes == 1 else None

    def _make_engine(self) -> Any:
        package = self.package
        if self.engine == FAIRSEQ:
            from fairseq_plugins.tools.translator.fairseq_engine import FairseqEngine

            return FairseqEngine(package.model(), package.dictionaries(), self._options)
        return CTranslate2Engine(package.directory / self.engine, self._options, package.content["positions"][1])

    def __str__(self) -> str:
        search, text = self._options.search, self._text
        engine = self._engine.label if self._engine else f"{self.engine}, {self._options.processes} processes"
        penalty = f"length penalty {search['lenpen']:g}"
        return f"{text.source}-{text.target}: {engine}, beam {search['beam']}, {penalty}"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Translator, **self._given), (self.package.directory.resolve(),)

    def translate(self, texts: Iterable[str]) -> list[Translation]:
        """Translate each text of a list, in order."""
        best = (line.candidates[0] for line in self._lines(texts))
        return [Translation(candidate.text, candidate.score) for candidate in best]

    def nbest(self, texts: Iterable[str], count: int = 1, alignment: bool = False) -> list[NBest]:
        """Translate each text into its ``count`` best translations, with the log-probability of each token.

        ``count`` is at most the beam. ``alignment`` adds the source token to which each token attends most.

        Raises:
            UserError: ``count`` is not legal, the engine is not fairseq's, or the model has no alignment.
        """
        self.require_details(count)
        return self._lines(texts, count, alignment)

    def require_details(self, count: int) -> None:
        """Check that the search finds ``count`` translations and scores their tokens, or raise a UserError."""
        beam = self._options.search["beam"]
        if not 1 <= count <= beam:
            raise UserError(f"nbest {count}: a search of beam {beam} finds 1 to {beam} translations of a line")
        if self.engine != FAIRSEQ:
            raise UserError(f"n-best lists, scores of tokens and alignments: engine {FAIRSEQ}, not {self.engine}")

    def stream(self, groups: Iterable[list[str]], nbest: int = 1, alignment: bool = False) -> Iterator[list[NBest]]:
        """Translate groups of lines, in order; only two groups for each process are read ahead.

        Several processes are forked, so call this method before anything has been computed, as the command line does.
        """
        work = partial(self._lines, nbest=nbest, alignment=alignment)
        return map_lines(lambda: work, groups, self._options.processes, at_once=1)

    def _lines(self, texts: Iterable[str], nbest: int = 1, alignment: bool = False) -> list[NBest]:
        if isinstance(texts, str):
            raise UserError("give a list of texts, not a text")
        lines = list(texts)
        encoded = map(self._encode, lines)
        parts = [list(self._text.cut(tokens, self.longest)) if tokens else [] for tokens in encoded]
        self._engine = self._engine or self._make_engine()
        together = list(chain.from_iterable(parts))
        hypotheses = iter(self._engine.search(together, nbest, alignment) if together else [])
        return [
            self._nbest(line, of_line, [next(hypotheses) for _ in of_line])
            for line, of_line in zip(lines, parts, strict=True)
        ]

    def _nbest(self, line: str, parts: list[Sequence[str]], lists: list[list[Hypothesis]]) -> NBest:
        """Return the best translations of a line; the second joins the second translations of its parts, and so on."""
        candidates = []
        for hypotheses in list(zip(*lists, strict=False)) or [()]:
            text = self._decode([word for hypothesis in hypotheses for word in hypothesis.tokens])
            score = sum((hypothesis.score for hypothesis in hypotheses), 0.0)
            candidate = Candidate(text, score, tokens=[], token_scores=[], alignment=[])
            before = 0
            for part, hypothesis in zip(parts, hypotheses, strict=True):
                written = len(candidate.tokens)
                candidate.alignment.extend((before + read, written + wrote) for read, wrote in hypothesis.alignment)
                candidate.tokens.extend([*hypothesis.tokens, END])
                candidate.token_scores.extend(hypothesis.token_scores)
                before += len(part)
            candidates.append(candidate)
        return NBest(line, [token for part in parts for token in part], candidates)


def main(argv: Sequence[str] | None = None) -> int:
    """Translate; 0, 2 after one line for each problem, 130 after Ctrl-C."""
    flags = OneLineParser(
        prog="fairseq-deep translate",
        description="Translate raw text, a sentence a line, with a directory of fairseq-deep package. "
        "Line k of the output translates line k of the input; at a terminal, each line is translated at once.",
    )
    flags.add_argument("model", type=Path, metavar="MODEL", help="a directory of fairseq-deep package")
    text = "text, or text.gz (default: standard input)"
    flags.add_argument("input", nargs="?", type=Path, metavar="INPUT", help=text)
    engines = "fairseq, ctranslate2, or an export in MODEL (default: auto, the fastest)"
    flags.add_argument("--engine", default=AUTO, metavar="NAME", help=engines)
    flags.add_argument("--device", type=device_name, choices=DEVICES, default="auto", help="default: auto")
    flags.add_argument("--beam", type=at_least(1), metavar="N", help="default: as MODEL says")
    flags.add_argument("--length-penalty", type=finite, metavar="X", help="default: as MODEL says")
    flags.add_argument("--batch", type=at_least(1), metavar="TOKENS", help="default: what is fast for the engine")
    flags.add_argument("--processes", type=at_least(1), default=1, metavar="N", help="default: 1")
    flags.add_argument("--buffer", type=at_least(1), default=500, metavar="LINES", help="lines translated together")
    json_lines = "print a JSON object for each line: translations, tokens and the log-probability of each token"
    flags.add_argument("--json", action="store_true", help=json_lines)
    nbest, alignment = "the N best translations of each line", "for each token the source token with the most attention"
    flags.add_argument("--nbest", type=at_least(1), metavar="N", help=f"print {nbest}; implies --json")
    flags.add_argument("--alignment", action="store_true", help=f"print {alignment}; implies --json")
    output = "written when every line is translated (default: standard output)"
    flags.add_argument("--output", type=Path, metavar="FILE", help=output)
    return exit_code(lambda: translate(flags.read(argv)))


def translate(args: argparse.Namespace) -> None:
    """Translate standard input or a file, to standard output or to a file.

    Raises:
        UserError: as :class:`Translator`; a line is not UTF-8, a stream is closed, or the output is the input.
        OSError: the file cannot be read.
    """
    if sys.stdout is None or (args.input is None and sys.stdin is None):
        raise UserError("standard input or standard output is closed")
    if args.output and args.input:
        require_no_input(args.output, [args.input])
    log_as_fairseq_does()
    # Standard output is for translations only.
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stdout:
            handler.setStream(sys.stderr)
    logging.getLogger().setLevel(logging.WARNING)
    lines: Iterable[bytes] = raw_lines(args.input) if args.input else sys.stdin.buffer
    dialogue = args.input is None and sys.stdin.isatty()
    in_json = args.json or args.alignment or args.nbest is not None
    options = {name: getattr(args, name) for name in ("device", "beam", "length_penalty", "batch")}
    # With several processes, several lines would have to be read before one is translated.
    options["processes"] = 1 if dialogue else args.processes
    translator = Translator(args.model, engine=FAIRSEQ if in_json and args.engine == AUTO else args.engine, **options)
    if in_json:
        translator.require_details(args.nbest or 1)
    print(translator, file=sys.stderr)
    text = decoded(lines, args.input or "standard input")
    groups = grouped(text, 1 if dialogue else args.buffer, len, MOST_CHARACTERS)
    translated = (
        [_json(line, args.alignment) if in_json else line.candidates[0].text for line in group]
        for group in translator.stream(groups, args.nbest or 1, args.alignment)
    )
    _write(translated, args.output)


def _write(groups: Iterable[list[str]], output: Path | None) -> None:
    """Write a file when all is translated, or each group to standard output as soon as it is translated."""
    if output is not None:
        write_lines(output, chain.from_iterable(groups))
        return
    done = 0
    try:
        for texts in groups:
            sys.stdout.buffer.write("".join(f"{text}\n" for text in texts).encode())
            sys.stdout.buffer.flush()
            done += len(texts)
    except KeyboardInterrupt:
        print(f"interrupted; lines translated: {done:,}", file=sys.stderr)
        raise


def _json(line: NBest, alignment: bool) -> str:
    """Return a line of ``--json``, with log-probabilities of four digits, as fairseq prints them."""
    candidates = []
    for candidate in line.candidates:
        scores = [round(score, 4) for score in candidate.token_scores]
        shown = candidate._replace(score=round(candidate.score, 4), token_scores=scores)._asdict()
        if not alignment:
            del shown["alignment"]
        candidates.append(shown)
    return json.dumps({**line._asdict(), "candidates": candidates}, ensure_ascii=False)
