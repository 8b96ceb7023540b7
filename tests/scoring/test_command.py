"""``fairseq-deep score`` as it is typed: what it prints, what it writes, and what it refuses in one line."""

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairseq_plugins.tools import scoring
from fairseq_plugins.tools.cli.main import main
from fairseq_plugins.tools.scoring.metrics import METRICS, TASKS, value_of
from fairseq_plugins.tools.scoring.suspicions import suspicions
from tests.refusals import refused
from tests.scoring.made_up import dropped, swapped
from tests.texts import read, write

REFERENCE = [f"Sentence {number} says that the {number % 7} cats on mat {number % 11} slept." for number in range(30)]
OUTPUTS = {"a1": swapped(REFERENCE, 5), "a2": swapped(REFERENCE, 3)}
OUTPUTS |= {"b1": dropped(REFERENCE, 6), "b2": dropped(REFERENCE, 5)}

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command in a directory that holds the outputs and ``ref``: exit code, output, errors."""
    for name, sentences in {**OUTPUTS, "ref": REFERENCE}.items():
        write(tmp_path / name, sentences)
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> tuple[int, str, str]:
        code = main(["score", *arguments])
        output, errors = capfd.readouterr()
        return code, output, errors

    return command


def bleu(name: str) -> float:
    return value_of(METRICS["sacrebleu"], OUTPUTS[name], [REFERENCE]).value


def stored(path: str) -> dict[str, Any]:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def test_one_system(run: Run) -> None:
    code, output, errors = run("a1", "ref", "--language-pair", "en-de")
    assert (code, errors) == (0, "")
    rows = {name: rest.split()[0] for name, _, rest in (line.partition("  ") for line in output.splitlines()[4:11])}
    assert list(rows) == [METRICS[name].name for name in TASKS["translation"]]
    assert rows["sacreBLEU"] == f"{bleu('a1'):.2f}"
    assert "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in output
    assert "Vaswani et al. 2017" in output
    assert "|tokens:sacremoses " in output
    assert output.count("|compounds:split\n") == 2
    assert output.count("|punctuation:ASCII|compounds:split\n") == 1


def test_what_is_left_out_is_said(run: Run) -> None:
    _, output, _ = run("a1", "ref")
    assert "tokenised BLEU left out: it needs --language-pair (such as de-en)\n" in output
    _, output, _ = run("a1", "ref", "--language-pair", "en-fr")
    assert "tokenised BLEU  " in output
    assert "compound-split BLEU left out: " in output
    _, output, _ = run("--systems", "a=a1", "b=b1", "--references", "ref", "--metrics", "rouge-1", "--baseline", "b")
    assert "\nnot compared: sacreBLEU tests none of these scores\n" in output


def test_files_are_what_the_functions_return(run: Run) -> None:
    assert run("a1", "ref", "--language-pair", "en-de", "--output", "out.txt", "--output", "out.json") == (0, "", "")
    found = stored("out.json")
    scores = scoring.score({"a1": OUTPUTS["a1"]}, [REFERENCE], language_pair="en-de")
    assert found == json.loads(json.dumps(scores.as_dict()))
    assert found["metrics"] == found["systems"][0]["metrics"]
    assert found["metrics"][0]["value"] == bleu("a1")
    lengths = {metric["name"]: metric["reference_length"] for metric in found["metrics"]}
    assert lengths["tokenised BLEU"] == sum(len(text.split()) + 1 for text in REFERENCE)
    assert (found["sentences"], found["references"], found["schema"]) == (30, 1, 2)
    assert run("a1", "ref", "--language-pair", "en-de")[1] == Path("out.txt").read_text(encoding="utf-8")
    assert not list(Path().glob("*.partial"))


def test_several_runs(run: Run) -> None:
    flags = ["--references", "ref", "--metrics", "rouge-1", "--output", "out.json"]
    for systems in (["a=a1,a2", "b=b1,b2"], ["a=a1", "b=b1", "a=a2", "b=b2"]):
        assert run("--systems", *systems, *flags)[0] == 0
        found = stored("out.json")
        for system, names in zip(found["systems"], (("a1", "a2"), ("b1", "b2")), strict=True):
            values = [value_of(METRICS["rouge-1"], OUTPUTS[name], [REFERENCE]).value for name in names]
            (metric,) = system["metrics"]
            assert metric["values"] == values
            assert metric["value"] == pytest.approx(statistics.fmean(values))
            assert metric["deviation"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
        assert found["significance"] == []


def test_comparison(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    flags = ["--metrics", "sacrebleu"]
    code, output, errors = run("--systems", "a=a1,a2", "b=b1,b2", "--references", "ref", "--baseline", "b", *flags)
    assert (code, errors) == (0, "warning: 30 sentences are too few for paired tests\n")
    assert "sacreBLEU against b: p-values" in output
    assert "bs:1000|seed:7" in output
    assert "ar:10000|seed:7" in output
    difference = statistics.fmean([bleu("a1"), bleu("a2")]) - statistics.fmean([bleu("b1"), bleu("b2")])
    (row,) = [line for line in output.splitlines() if line.startswith("a ") and "+" in line]
    assert row.split()[1] == f"{difference:+.2f}"


def test_tokens_that_are_given(run: Run) -> None:
    def spaced(lines: list[str]) -> list[str]:
        return [text.replace(".", " .") for text in lines]

    systems = {name: OUTPUTS[name] for name in ("a1", "b1")}
    tokens = {"tokenised_systems": {name: spaced(systems[name]) for name in ("b1", "a1")}}
    tokens["tokenised_references"] = [spaced(REFERENCE)]
    given = scoring.score(systems, [REFERENCE], metrics=["tokenised"], **tokens)
    # Moses makes the same tokens of this text.
    made = scoring.score(systems, [REFERENCE], metrics=["tokenised"], language_pair="de-en")
    values = [[system.scores["tokenised BLEU"].mean for system in scores.systems] for scores in (given, made)]
    assert values[0] == values[1]
    assert given.systems[0].scores["tokenised BLEU"].values[0].signature.endswith("|tokens:files")
    tokens["tokenised_systems"]["a1"].pop()
    line = refused(scoring.score, systems, [REFERENCE], **tokens)
    assert "a1 has 29 lines, the tokenised references 30: sentence k must be" in line


DOUBTFUL = (
    (["A mat .", *REFERENCE[1:]], ""),
    ([text.replace(".", " .") for text in REFERENCE], "100% of the sentences look tokenised, but the references"),
    (["A m@@ at.", *REFERENCE[1:]], "1 sentence with subword marks ('@@ ' or '▁'): remove them first"),
    (["A <<unk>>.", "A <unk>.", *REFERENCE[2:]], "2 sentences with <unk> or <<unk>>"),
    (["", " ", *REFERENCE[2:]], "2 sentences empty"),
    ([""] * 30, "30 sentences empty"),
    ([text.lower() for text in REFERENCE], "no sentence has an upper-case letter, but the references do"),
)


def test_a_doubtful_number_is_given_with_one_warning(run: Run, tmp_path: Path) -> None:
    for sentences, warning in DOUBTFUL:
        write(tmp_path / "x", sentences)
        code, output, errors = run("x", "ref", "--metrics", "sacrebleu")
        assert (code, output.split("\n")[0]) == (0, "sentences: 30, references: 1")
        assert errors.count("\n") == bool(warning), warning
        assert errors.startswith(f"warning: x: {warning}" if warning else "")
    code, output, errors = run("x", "ref", "--metrics", "sacrebleu", "--lower-case")
    assert (code, errors) == (0, "")
    assert "sacreBLEU   100.00" in output
    write(tmp_path / "tok", [text.replace(".", " .") for text in REFERENCE])
    _, _, errors = run("tok", "tok", "--metrics", "sacrebleu", "--output", "out.json")
    assert run("ref", "ref", "tok", "--metrics", "sacrebleu")[2] == errors
    assert errors.startswith("warning: the references: 100% of the sentences look tokenised: sacreBLEU of them ")
    assert stored("out.json")["warnings"] == [errors.removeprefix("warning: ").strip()]
    chinese = write(tmp_path / "zh", ["我们今天下午去北京的图书馆看书。"] * 30)
    _, _, errors = run("zh", "zh", "--metrics", "sacrebleu")
    assert errors.startswith("warning: the references: 30 sentences have no spaces, ")
    write(chinese, ["我们 今天 下午 去 北京 的 图书馆 看书。"] * 30)
    assert run("zh", "zh", "--metrics", "sacrebleu")[2] == ""


def test_published_text_is_above_suspicion(real_corpus: Callable[[str], Path]) -> None:
    for corpus in ("multi30k/test_2016_flickr", "tatoeba_deu_eng/test", "wmt_news/newstest2014"):
        name, prefix = corpus.split("/")
        for language in ("de", "en"):
            sentences = read(real_corpus(name) / f"{prefix}.{language}")
            assert list(suspicions(corpus, sentences, sentences, lower_case=False)) == []
