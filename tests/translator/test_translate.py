"""Raw text in, raw text out: the translations of fairseq-generate, every line once and in order."""

import io
import json
import math
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from fairseq.data.data_utils import post_process
from hypothesis import given
from hypothesis import strategies as st

import fairseq_plugins
from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import decoded, grouped
from fairseq_plugins.tools.cli import main as cli
from fairseq_plugins.tools.decoder import Hypothesis
from fairseq_plugins.tools.text.moses import detokeniser
from fairseq_plugins.tools.translator import translate as module
from fairseq_plugins.tools.translator.engines import batches
from fairseq_plugins.tools.translator.package import open_package, write_manifest
from fairseq_plugins.tools.translator.preprocessor import Preprocessor
from fairseq_plugins.tools.translator.translate import Candidate, NBest, Translation, Translator
from tests import toy
from tests.processes import full_disk_after
from tests.translator.conftest import MOST, Made

Run = Callable[..., tuple[int, bytes, str]]


@pytest.fixture
def translate(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """``fairseq-deep translate`` in this process: exit code, standard output, standard error."""

    def run(*words: str | Path, given: bytes = b"") -> tuple[int, bytes, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        capfdbinary.readouterr()
        code = cli.main(["translate", *map(str, words)])
        printed = capfdbinary.readouterr()
        return code, printed.out, printed.err.decode()

    return run


def generated(made: Made, tmp_path: Path) -> list[str]:
    """Translations of the test set by ``fairseq-generate`` and the detokeniser."""
    flags = ["--beam", "5", "--max-len-b", str(MOST), "--remove-bpe"]
    found = toy.translate_toy(made.data / "data-bin", made.checkpoint, tmp_path, *flags)
    detokenise = detokeniser("en")
    return [detokenise(found[number]) for number in range(len(found))]


def test_it_translates_as_fairseq_generate_does(made: Made, translate: Run, tmp_path: Path) -> None:
    code, out, errors = translate(made.package, given=(made.data / "raw" / "test.de").read_bytes())
    assert (code, out.decode().splitlines()) == (0, generated(made, tmp_path))
    assert errors == "de-en: fairseq, float32, cpu, beam 5, length penalty 1\n"
    # The model knows enough for this to be a test of more than one output.
    assert len(set(out.splitlines())) > 4


def test_every_line_once_in_order_from_two_processes(made: Made, translate: Run) -> None:
    lines = (made.data / "raw" / "test.de").read_text(encoding="utf-8").splitlines()[:7]
    text = "\n".join([*lines[:3], "", *lines[3:], "   "]).encode()
    one = translate(made.package, "--buffer", "2", given=text)
    two = translate(made.package, "--buffer", "2", "--processes", "2", given=text)
    assert one[:2] == two[:2]
    out = one[1].decode().split("\n")
    assert len(out) == 10
    assert (out[3], out[8], out[9]) == ("", "", "")
    assert all(out[:3] + out[4:8])


def test_in_python_with_scores_and_from_several_threads(made: Made, translate: Run, tmp_path: Path) -> None:
    translator = fairseq_plugins.Translator(made.package, beam=1, length_penalty=0.6)
    text = ["Ja, eins zwei!", " ", "Nein: drei."]
    first, empty, second = translator.translate(iter(text))
    assert empty == Translation("", 0.0)
    assert [first, second] == translator.translate([text[0], text[2]])
    assert first.text
    assert -10 < first.score < 0
    assert translator.translate([]) == []
    # Alone, a sentence may be rounded otherwise than in a batch.
    [alone] = translator.translate([text[0]])
    assert alone == (first.text, pytest.approx(first.score, abs=1e-5))
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: translator.translate([text[0]]), range(20))) == [[alone]] * 20
    (tmp_path / "text").write_text("\n".join(text))
    code, out, errors = translate(made.package, "--beam", "1", tmp_path / "text", "--length-penalty", "0.6")
    assert (code, out.decode().split("\n")) == (0, [first.text, "", second.text, ""])
    assert "beam 1, length penalty 0.6" in errors


def test_the_n_best_translations_with_scores_and_alignments(made: Made, translate: Run) -> None:
    text = ["Ja, eins zwei!", "", "Nein: drei."]
    translator = fairseq_plugins.Translator(made.package)
    found = translator.nbest(text, 3, alignment=True)
    assert [(line.source, len(line.candidates)) for line in found] == [(text[0], 3), ("", 1), (text[2], 3)]
    assert found[1] == NBest("", [], [Candidate("", 0.0, [], [], [])])
    for line, best in zip(found, translator.translate(text), strict=True):
        assert line.candidates[0][:2] == (best.text, pytest.approx(best.score, abs=1e-5))
    for line in found:
        for candidate in line.candidates:
            # fairseq's formula, with a length penalty of 1.
            mean = sum(candidate.token_scores) / max(1, len(candidate.tokens))
            assert candidate.score == pytest.approx(mean, abs=1e-5)
            assert {place for place, _ in candidate.alignment} <= set(range(len(line.source_tokens)))
            assert [place for _, place in candidate.alignment] == list(range(len(candidate.tokens) - 1))
    code, out, _ = translate(made.package, "--nbest", "3", "--alignment", given="\n".join(text).encode())
    printed = [json.loads(line) for line in out.decode().splitlines()]
    assert (code, [line["source"] for line in printed]) == (0, text)
    assert printed == [json.loads(module._json(line, True)) for line in found]
    assert printed[0]["candidates"][0]["alignment"] == [list(pair) for pair in found[0].candidates[0].alignment]
    [line] = map(json.loads, translate(made.package, "--json", given=text[0].encode())[1].splitlines())
    assert line["candidates"][0].keys() == {"text", "score", "tokens", "token_scores"}
    line = refusal(translate, made.package, "--nbest", "6")
    assert "error: nbest 6: a search of beam 5 finds 1 to 5 translations of a line" in line
    translator.engine = "ctranslate2-int8"
    with pytest.raises(UserError, match="^n-best lists, scores of tokens and alignments: engine fairseq, not "):
        translator.nbest(text)


def test_alignments_are_those_of_print_alignment(made: Made, tmp_path: Path) -> None:
    """The numbers that ``fairseq-generate --print-alignment`` prints in its lines A and P, there to the base of 2."""
    flags = ["--beam", "5", "--max-len-b", str(MOST), "--print-alignment", "hard"]
    toy.translate_toy(made.data / "data-bin", made.checkpoint, tmp_path, *flags)
    printed = (tmp_path / "generate-test.txt").read_text(encoding="utf-8").splitlines()
    lines = (made.data / "raw" / "test.de").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(Translator(made.package).nbest(lines, alignment=True)):
        [alignment] = [row.split("\t")[1] for row in printed if row.startswith(f"A-{number}\t")]
        [scores] = [row.split("\t")[1] for row in printed if row.startswith(f"P-{number}\t")]
        [best] = line.candidates
        assert " ".join(f"{source}-{target}" for source, target in best.alignment) == alignment
        assert best.token_scores == pytest.approx([float(score) * math.log(2) for score in scores.split()], abs=1e-3)


def test_a_package_knows_nothing_of_where_it_was_made(made: Made, package: Path) -> None:
    content = b"".join(path.read_bytes() for path in package.iterdir())
    assert str(made.data.parent).encode() not in content
    assert sorted(path.name for path in package.iterdir()) == [
        *("codes", "dict.de.txt", "dict.en.txt", "translator.json", "weights.safetensors")
    ]
    assert Translator(package).translate(["Ja, eins!"]) == Translator(made.package).translate(["Ja, eins!"])


@given(
    st.lists(st.sampled_from(["a@@", "b", "▁c", "▁", "@@", "d@@ ", "\u3000"]), max_size=9),
    st.sampled_from(["subword_nmt", "sentencepiece", "none"]),
)
def test_subwords_are_joined_as_fairseq_does(tokens: list[str], subwords: str) -> None:
    line = " ".join(tokens)
    assert Preprocessor("de", "en", subwords=subwords).decoder()(tokens) == post_process(line, subwords).strip()


# --- long lines ------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from(["a@@", "b", ".", ",", "c@@", "d!"]), max_size=60),
    st.integers(min_value=1, max_value=20),
    st.sampled_from(["subword_nmt", "none"]),
)
def test_a_cut_loses_nothing(tokens: list[str], longest: int, subwords: str) -> None:
    parts = list(Preprocessor("de", "en", subwords=subwords).cut(tokens, longest))
    assert [token for part in parts for token in part] == tokens
    assert all(1 <= len(part) <= longest for part in parts if tokens)
    if subwords == "subword_nmt":
        # A word is cut only where all of a part is one word.
        assert all(not part[-1].endswith("@@") or all(t.endswith("@@") for t in part) for part in parts[:-1])


def test_a_cut_is_at_the_end_of_a_sentence_then_of_a_clause_then_of_a_word() -> None:
    form = Preprocessor("de", "en", subwords="subword_nmt")
    assert list(form.cut("a b . c , d e".split(), 5)) == [["a", "b", "."], ["c", ",", "d", "e"]]
    assert list(form.cut("a b c , d e".split(), 5)) == [["a", "b", "c", ","], ["d", "e"]]
    assert list(form.cut("a b c &quot; d e".split(), 5)) == [["a", "b", "c", "&quot;", "d"], ["e"]]
    assert list(form.cut("a b c d@@ e@@ f".split(), 5)) == [["a", "b", "c"], ["d@@", "e@@", "f"]]
    pieces = Preprocessor("de", "en", subwords="sentencepiece")
    assert list(pieces.cut("▁a b ▁c d e".split(), 4)) == [["▁a", "b"], ["▁c", "d", "e"]]


def test_a_line_is_translated_part_by_part_only_where_it_is_longer_than_the_model_takes(made: Made) -> None:
    translator = Translator(made.package)
    line = "Ja, eins zwei! Nein: drei vier! eins (oder vier)?"
    [whole] = translator.nbest([line])
    assert whole.candidates[0].tokens.count(module.END) == 1
    translator.longest = 8
    encoded = [len(part) for part in translator._text.cut(translator._encode(line), 8)]
    assert max(encoded) <= 8
    [cut] = translator.nbest([line])
    assert cut.candidates[0].tokens.count(module.END) == len(encoded) > 1


def test_what_a_model_takes_is_its_positions_and_what_the_search_returns(package: Path) -> None:
    assert Translator(package).longest == MOST
    content = open_package(package).content
    write_manifest(package, {**content, "search": {**content["search"], "max_len_a": 1.2}})
    assert Translator(package).longest == min(content["positions"]) - 1


# --- lines -----------------------------------------------------------------------------------------------------------

LINE = st.text(st.characters(exclude_characters="\n", exclude_categories=("Cs",)), max_size=8)


@given(st.lists(LINE, max_size=12), st.integers(min_value=1, max_value=5), st.booleans())
def test_groups_are_the_lines(lines: list[str], size: int, ends: bool) -> None:
    """Only a line feed ends a line; a byte order mark at the start is no part of the text."""
    content = "\n".join(lines).encode() + (b"\n" if ends and lines else b"")
    expected = content.decode("utf-8-sig").split("\n")
    expected = expected[:-1] if expected[-1] == "" else expected
    groups = list(grouped(decoded(io.BytesIO(content), "text"), size, len, 10))
    assert [line for group in groups for line in group] == expected
    # Long lines make small groups.
    assert all(len(group) <= size and sum(map(len, group[:-1])) < 10 for group in groups)


@given(st.lists(st.integers(min_value=1, max_value=30), max_size=30), st.integers(min_value=1, max_value=100))
def test_batches_hold_every_sentence_once_and_are_no_larger_than_asked(lengths: list[int], most: int) -> None:
    sizes = list(batches(lengths, most))
    assert sorted(place for batch in sizes for place in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or len(batch) * max(lengths[place] for place in batch) <= most for batch in sizes)


@given(st.lists(st.lists(st.sampled_from(["x", "y."]), max_size=9), max_size=6), st.integers(1, 4))
def test_every_line_gets_the_translations_of_its_parts(lines: list[list[str]], longest: int) -> None:
    """With an engine that repeats its input, lines come out as they went in."""
    translator = object.__new__(Translator)
    translator.longest, translator._text = longest, Preprocessor("de", "en")
    translator._encode, translator._decode = str.split, " ".join
    translator._engine = SimpleNamespace(search=lambda parts, *_: [[repeated(part)] for part in parts])
    translated = translator._lines([" ".join(line) for line in lines])
    for line, (source, tokens, [candidate]) in zip(lines, translated, strict=True):
        assert source == candidate.text == " ".join(line)
        assert tokens == line
        assert (candidate.score == 0) == (not line)
        # Each token is that of the source at the place which its alignment names, for every part.
        assert [(line[a], candidate.tokens[b]) for a, b in candidate.alignment] == [(word, word) for word in line]
        assert len(candidate.tokens) == len(candidate.token_scores)


def repeated(part: list[str]) -> Hypothesis:
    places = range(len(part))
    return Hypothesis(part, -1.0, [-0.5] * (len(part) + 1), list(zip(places, places, strict=True)))


def test_the_best_translations_of_a_line_are_made_of_those_of_its_parts() -> None:
    by_part = {"a": [(-1.0, "A"), (-1.5, "B")], "b": [(-2.0, "C"), (-2.1, "D")]}
    translator = object.__new__(Translator)
    translator._decode = " ".join
    parts = [[Hypothesis([text], score) for score, text in by_part[part]] for part in "ab"]
    nbest = translator._nbest("a b", [["a"], ["b"]], parts)
    assert [(best.text, best.score) for best in nbest.candidates] == [("A C", -3.0), ("B D", -3.6)]
    assert nbest.candidates[0].tokens == ["A", "</s>", "C", "</s>"]


# --- what goes wrong -------------------------------------------------------------------------------------------------


def refusal(translate: Run, *words: str | Path) -> str:
    code, out, errors = translate(*words)
    assert (code, out) == (2, b"")
    [line] = [line for line in errors.splitlines() if line.startswith("error: ")]
    return line


def test_bad_input_gets_one_line(made: Made, package: Path, translate: Run, tmp_path: Path) -> None:
    for words, message in (
        ((package, tmp_path / "none"), f"error: {tmp_path / 'none'}: no such file"),
        ((package, tmp_path), f"error: {tmp_path}: is a directory"),
        ((made.data,), f"error: {made.data}: not a package: it has no translator.json"),
        ((package, "--engine", "fairsek"), f"error: {package}: unknown engine 'fairsek' (did you mean 'fairseq'?)"),
        ((package, "--device", "cuda"), "error: --device gpu: this engine finds no GPU; legal here: auto, cpu"),
    ):
        assert refusal(translate, *words).startswith(message)
    with pytest.raises(UserError, match="^beam 0: at least 1$"):
        Translator(package, beam=0)
    with pytest.raises(UserError, match="unknown device 'gpus'.*did you mean 'gpu'"):
        Translator(package, device="gpus")
    with pytest.raises(UserError, match="^give a list of texts, not a text$"):
        Translator(package).translate("eins")


def test_a_damaged_package_is_not_used(package: Path, translate: Run) -> None:
    weights = package / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert "weights.safetensors: damaged: its SHA-256" in refusal(translate, package)
    (package / "codes").unlink()
    assert "codes: no such file; the package is incomplete" in refusal(translate, package)
    manifest = package / "translator.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 2}))
    assert "a package of format 2; this version of fairseq-deep reads 1" in refusal(translate, package)
    manifest.write_text("{")
    assert "translator.json: not JSON: " in refusal(translate, package)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_lines_before_one_that_is_refused_are_translated(made: Made, translate: Run, processes: str) -> None:
    lines = (made.data / "raw" / "test.de").read_bytes().splitlines(keepends=True)[:9]
    words = ["--processes", processes, "--buffer", "2"]
    code, out, errors = translate(made.package, *words, given=b"".join([*lines, b"Ja, \xff!\n", *lines]))
    assert (code, out.count(b"\n")) == (2, 9)
    assert errors.splitlines()[-1] == "error: standard input: line 10: not UTF-8 (byte 0xff)"


def test_a_file_that_takes_some_bytes_is_an_error(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills; ``PYTHONUNBUFFERED=1`` gives standard output no buffer that would notice."""
    text = made.data / "raw" / "test.de"
    unbuffered = io.TextIOWrapper(io.FileIO(tmp_path / "out", "w"), write_through=True)
    for name in ("stdout", "__stdout__"):
        monkeypatch.setattr(sys, name, unbuffered)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with full_disk_after(100):
        assert module.main([str(made.package), str(text), "--beam", "1"]) == 2
    assert (tmp_path / "out").stat().st_size == 100


COMMAND = [sys.executable, "-W", "ignore", "-m", "fairseq_plugins.tools.cli", "translate"]


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", "2"])
def test_ctrl_c_ends_it_with_one_line(made: Made, processes: str) -> None:
    words = [*COMMAND, str(made.package), "--buffer", "1", "--processes", processes]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdin.write(b"Ja, eins zwei!\n" * 8)
    child.stdin.flush()
    assert child.stdout.readline()
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130
    assert errors.decode().splitlines()[1:] in [[f"interrupted; lines translated: {number}"] for number in range(9)]


@pytest.mark.slow
def test_at_a_terminal_each_line_is_translated_when_it_is_entered(made: Made) -> None:
    ours, theirs = pty.openpty()
    words, pipe = [*COMMAND, str(made.package)], subprocess.PIPE
    child = subprocess.Popen(words, stdin=theirs, stdout=pipe, stderr=pipe)
    os.write(ours, b"Ja, eins zwei!\n")
    assert child.stdout.readline().strip()
    os.write(ours, b"\x04")
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 0
    assert errors.decode().splitlines()[1:] == []
