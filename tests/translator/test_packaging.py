"""A package has the text as the preparation made it, the weights as they were, the scores of these very weights."""

import json
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from fairseq_plugins.checkpoints.fold import build
from fairseq_plugins.errors import UserError
from fairseq_plugins.sums import checksum
from fairseq_plugins.tools.cli import main as cli
from fairseq_plugins.tools.pipeline import commands
from fairseq_plugins.tools.pipeline.workspace import settings_in
from fairseq_plugins.tools.text import moses
from fairseq_plugins.tools.text.description import described
from fairseq_plugins.tools.translator import packaging
from fairseq_plugins.tools.translator.model import options_of, read_weights, write_weights
from fairseq_plugins.tools.translator.package import open_package
from fairseq_plugins.tools.translator.preprocessor import preprocessor_of
from fairseq_plugins.tools.translator.translate import Translator
from tests import models, toy
from tests.pipeline.making import write_run
from tests.refusals import refused
from tests.texts import read, write
from tests.translator.conftest import Made


@pytest.mark.parametrize(
    "settings",
    [
        "--normalise all --aggressive 1 --escape 0 --size 40",
        "--subwords sentencepiece --size 36 --joint-codes 0 --joined 0",
        "--size 40 --vocabulary-threshold 5",
        "--tokeniser none --subwords none --lower-case 1",
    ],
)
def test_a_raw_line_becomes_what_was_prepared(settings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The preparation's own text of the test set is what every line has to become."""
    toy.write_sentences(tmp_path / "raw")
    monkeypatch.setattr(commands, "run", lambda *words, **_: Path(words[words.index("--destdir") + 1]).mkdir())
    sets = [f"--{name}={tmp_path}/raw/{name}" for name in ("train", "valid")]
    words = ["prepare", f"{tmp_path}/data", *sets, f"--test=test={tmp_path}/raw/test", "--workers", "1"]
    assert cli.main([*words, *settings.split()]) == 0
    data = tmp_path / "data"
    kept = settings_in(data)
    form = preprocessor_of(("de", "en"), described(data), kept)
    args = Namespace(data=data, codes=None, truecaser=None)
    (tmp_path / "package").mkdir()
    for name, path in packaging.files_of(args, form, kept).items():
        shutil.copyfile(path, tmp_path / "package" / name)
    encode = form.encoder(tmp_path / "package")
    raw = (data / "raw" / "test.de").read_text(encoding="utf-8").splitlines()
    prepared = (data / "text" / "test.de").read_text(encoding="utf-8").splitlines()
    assert [encode(line) for line in raw] == [line.split() for line in prepared]


def test_the_truecaser_and_apostrophes_are_steps(tmp_path: Path) -> None:
    (tmp_path / "truecaser").write_text("haus (3/4) Haus (1)\nes (5/5)\n")
    text = {"tokeniser": "moses", "truecased": True, "changed": {"valid": ["punctuation"], "test": ["apostrophes"]}}
    (tmp_path / "text.json").write_text(json.dumps(text))
    form = preprocessor_of(("de", "en"), described(tmp_path), {"ESCAPE": "0"})
    assert moses.files_of(form) == ["truecaser"]
    assert form.encoder(tmp_path)("Es geht’s „so“.") == ["es", "geht", "'", "s", "„", "so", "“", "."]
    assert form.decoder()(["it", "is", "."]) == "It is."
    # Only a change of a test set is one of a raw text.
    text["changed"] = {"test": ["punctuation"]}
    (tmp_path / "text.json").write_text(json.dumps(text))
    form = preprocessor_of(("de", "en"), described(tmp_path), {"ESCAPE": "0"})
    assert form.encoder(tmp_path)("„So“.") == ['"', "So", '"', "."]


def test_a_raw_line_of_other_tokens_is_told(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The text was given in tokens of other rules: here, with subwords of other merges."""
    data = Path(shutil.copytree(made.data, tmp_path / "data"))
    packaged(made.checkpoint, tmp_path / "same", "--data", data)
    assert not capsys.readouterr().err
    (data / "data-bin" / "sha256sums").unlink()
    first, *merges = read(data / "codes")
    write(data / "codes", [first, *merges[:5]])
    packaged(made.checkpoint, tmp_path / "other", "--data", data)
    told = f" lines of {data}/raw/test.de against {data}/text/test.de\n"
    assert capsys.readouterr().err.endswith(told)
    (data / "test_sets").write_text("")  # prepared without a test set
    packaged(made.checkpoint, tmp_path / "untested", "--data", data)
    assert not capsys.readouterr().err


def test_weights_come_back_as_they_were(tmp_path: Path) -> None:
    """Types, shapes, and which names share one tensor."""
    shared = torch.randn(3, 2)
    weights = {"a": shared, "b": shared, "half": torch.randn(4).half(), "empty": torch.zeros(0), "view": shared[:2]}
    write_weights(weights, tmp_path / "weights.safetensors")
    found = read_weights(tmp_path / "weights.safetensors")
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[name], value) and found[name].dtype == value.dtype for name, value in weights.items())
    assert found["a"] is found["b"]
    with pytest.raises(UserError, match="cannot be written"):
        write_weights(weights, tmp_path / "none" / "weights.safetensors")


@pytest.mark.parametrize("flags", ["", "--encoder-normalize-before --activation-fn gelu"])
def test_a_stock_transformer_becomes_one_of_ours_that_computes_the_same(flags: str, tmp_path: Path) -> None:
    args = models._parse(("--arch", "transformer", *flags.split()))
    stock = models.build_model(args, models.task()).eval()
    for state in ({"args": None, "cfg": {"model": args}}, {"args": args, "cfg": None}):
        options = options_of(state, tmp_path)
        assert not {"save_dir", "data", "lr"} & options.keys()
        json.dumps(options)
        dictionaries = models.task()
        ours = build(options, stock.state_dict(), dictionaries, tmp_path)
        inputs = models.batch().inputs
        assert torch.equal(ours(*inputs)[0], stock(*inputs)[0])


@pytest.fixture
def run(made: Made, tmp_path: Path) -> Path:
    """A training that has been averaged."""
    directory = write_run(tmp_path / "run", data=made.data)
    (directory / "checkpoints").mkdir()
    state = torch.load(made.checkpoint, weights_only=False)
    torch.save({**state, "model": {k: v + 1 for k, v in state["model"].items()}}, directory / "averaged.pt")
    shutil.copyfile(made.checkpoint, directory / "checkpoints" / "checkpoint_last.pt")
    return directory


def packaged(*words: str | Path) -> dict[str, Any]:
    assert packaging.main([str(word) for word in words]) == 0
    return dict(open_package(Path(words[1])).content)


def test_a_run_is_packaged_with_its_average_else_its_newest_checkpoint(made: Made, run: Path, tmp_path: Path) -> None:
    for source, name in ((run / "averaged.pt", "average"), (made.checkpoint, "last")):
        packaged(run, tmp_path / name)
        weights = read_weights(tmp_path / name / "weights.safetensors")
        expected = torch.load(source, weights_only=False)["model"]
        assert all(torch.equal(weights[weight], value) for weight, value in expected.items())
        (run / "averaged.pt").unlink(missing_ok=True)


def test_an_average_from_before_the_run_went_on(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(run / "evaluation" / "settings", ["updates=20"])
    line = f"error: {run}/evaluation was made with other settings (updates=40; was updates=20); use another directory"
    assert refusal(capsys, run, tmp_path / "package").startswith(line)


def test_the_end_of_a_run_is_what_it_recorded(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A training that stopped early is finished; an interrupted or diverged training is not."""
    diverged = '{"num_updates": 40, "epochs": 2, "outcome": "diverged", "reason": "loss 9.1"}'
    for written, doubt in (
        ((run / "finished").read_text(), ""),
        (diverged, "its training diverged after 40 updates, 2 epochs (loss 9.1)"),
        (None, "its training has not finished"),
    ):
        if written is None:
            (run / "finished").unlink()
        else:
            (run / "finished").write_text(written)
        packaged(run, tmp_path / "package", "--force")
        assert capsys.readouterr().err == (f"warning: {run}/averaged.pt: {doubt}\n" if doubt else "")


def test_the_search_is_the_configuration_s_and_else_fairseq_s(run: Path, tmp_path: Path, capsys) -> None:
    state = torch.load(run / "averaged.pt", weights_only=False)
    defaults = {
        **{"beam": 5, "lenpen": 1.0, "lenpen_form": "fairseq", "max_len_a": 0.0, "max_len_b": 200},
        **{"min_len": 1, "no_repeat_ngram_size": 0},
    }
    said = {"beam": 4, "lenpen": 0.6, "lenpen_form": "gnmt"}
    for name, search in (("none", {}), ("some", {**said, "sampling": False, "unkpen": 2})):
        torch.save({**state, "cfg": {**state["cfg"], "generation": search}}, run / "averaged.pt")
        expected = {**defaults, **said} if search else defaults
        assert packaged(run, tmp_path / name)["search"] == expected
        lost = "warning: a package does not keep generation.unkpen\n"
        assert capsys.readouterr().err == (lost if search else "")


def refusal(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    capsys.readouterr()
    assert packaging.main([str(word) for word in words]) == 2
    [line] = capsys.readouterr().err.splitlines()
    return line


def test_force_overwrites_a_package_only(made, package, tmp_path, capsys, monkeypatch):
    shutil.copyfile(made.checkpoint, tmp_path / "model.pt")
    (package / "ctranslate2-int8").mkdir()
    before = sorted(tmp_path.rglob("*"))
    words: list[str | Path] = [tmp_path / "model.pt", "--data", made.data, "--force"]
    expected = f"error: {tmp_path}: not made by this command, and --force overwrites nothing else; choose another name"
    assert refusal(capsys, words[0], tmp_path, *words[1:]) == expected
    shutil.copyfile(made.checkpoint, package / "model.pt")
    message = refusal(capsys, package / "model.pt", package, *words[1:])
    assert message == f"error: {package}: the output contains the input {package}/model.pt; choose another name"
    (package / "model.pt").unlink()
    assert sorted(tmp_path.rglob("*")) == before
    monkeypatch.chdir(package)
    assert packaging.main([str(words[0]), ".", *map(str, words[1:])]) == 0
    assert not (package / "ctranslate2-int8").exists()
    (tmp_path / "link").symlink_to(package)
    assert "link: not made by this command" in refusal(capsys, words[0], tmp_path / "link", *words[1:])
    assert open_package(package).content


DEEP = "[" * 10**5 + "]" * 10**5
INT4 = {"ctranslate2-int4": {"quantization": "int4", "files": {}}}
MANIFESTS: tuple[tuple[str, Any, str], ...] = (
    ("positions", [1024], "not two positions, or no weights"),
    ("positions", [1024, 1], "positions[1] is 1, not 2 to "),
    ("files", ["codes"], "files is ['codes'], not an object"),
    ("files", {}, "not two positions, or no weights.safetensors in files"),
    ("engines", INT4, "unknown engines.ctranslate2-int4.quantization 'int4' (did you mean 'int8'?); legal values: "),
    ("text.tokeniser", "rm -rf", "unknown text.tokeniser 'rm -rf'; legal values: bytes, moses, n"),
    ("text.subwords", "x", "unknown text.subwords 'x'; legal values: none, sentencepiece, "),
    ("text.threshold", "many", "text.threshold is 'many', not a whole number"),
    ("text.tokenizer", "moses", "Preprocessor.__init__() got an unexpected keyword argument 'tokenizer'"),
    ("model.encoder_layers", 10**8, "model.encoder_layers is 100000000, not 1 to 9999"),
    ("search.beam", "four", "search.beam is 'four', not a whole number"),
    ("search.baem", 4, "search: unknown setting 'baem' (did you mean 'beam'?); legal values: beam, lenpen, "),
    ("search.lenpen", float("nan"), "search.lenpen is nan, not a finite number"),
    ("search.lenpen", 1e308, "search: lenpen 1e+308: from -100 to 100"),
    ("search.min_len", 500, "search: 0 <= min_len <= 2 max_len_a + max_len_b; the sum and beam >= 1, "),
    ("search.max_len_b", 0, "search: 0 <= min_len <= "),
    ("search.lenpen_form", "gmnt", "unknown search.lenpen_form 'gmnt' (did you mean 'gnmt'?)"),
)
"""An entry of translator.json with another value, and why it is refused."""


def test_every_entry_of_a_package_is_checked_when_it_is_opened(package: Path, subtests: pytest.Subtests) -> None:
    manifest = package / "translator.json"
    written = manifest.read_text()
    for entry, value, problem in MANIFESTS:
        with subtests.test(f"{entry} {value}"):
            content = json.loads(written)
            *groups, key = entry.split(".")
            (content[groups[0]] if groups else content)[key] = value
            manifest.write_text(json.dumps(content))
            assert refused(open_package, package).startswith(f"{manifest}: {problem}")
    # --max-len-a 1.2 --max-len-b 0 means this: the least length is that of a source of one token.
    content = json.loads(written)
    content["search"].update(beam=4, max_len_a=1.2, max_len_b=0)
    manifest.write_text(json.dumps(content))
    assert open_package(package).content["search"] == content["search"]


def test_a_hostile_package_takes_neither_time_nor_a_trace(package: Path, made: Made) -> None:
    manifest, weights = package / "translator.json", package / "weights.safetensors"
    content = json.loads(manifest.read_text())

    def with_file(path: Path, written: bytes) -> None:
        path.write_bytes(written)
        manifest.write_text(json.dumps({**content, "files": {**content["files"], path.name: checksum(path)}}))

    for tied in ("null", "[1]", '{"a": "b"}', DEEP):
        save_file({"w": torch.ones(1)}, weights, metadata={"tied": tied})
        with_file(weights, weights.read_bytes())
        assert refused(open_package(package).model).startswith(f"{weights}: not weights of a package: ")
    codes = (package / "codes").read_bytes()
    with_file(package / "codes", b"#version: 99" + codes[codes.index(b"\n") :])
    assert refused(Translator, package) == f"{package}/codes: BPE codes of version 99; legal: 0.1, 0.2"
    manifest.write_text(f'{{"format": 1, "text": {DEEP}}}')
    assert refused(open_package, package).startswith(f"{manifest}: not JSON: maximum recursion depth exceeded")
    with pytest.raises(UserError, match="^search: lenpen 1e\\+308: from -100 to 100$"):
        Translator(made.package, length_penalty=1e308)


def test_what_is_missing_is_said_and_nothing_is_left(made, tmp_path, capsys):
    out = tmp_path / "out"
    data = Path(shutil.copytree(made.data, tmp_path / "data"))
    assert "the training data are unknown; give --data DIR" in refusal(capsys, made.checkpoint, out)
    assert "not a run: it contains none of run.json" in refusal(capsys, tmp_path, out)
    torch.save({"model": {}}, tmp_path / "bare.pt")
    assert "bare.pt: task 'None' does not translate text" in refusal(capsys, tmp_path / "bare.pt", out)
    needless = "says that the text needs none"
    assert needless in refusal(capsys, made.checkpoint, out, "--data", data, "--truecaser", data / "codes")
    (data / "codes").unlink()
    expected = f"error: {data}/codes: no such file; --codes FILE names the merges or the model"
    assert refusal(capsys, made.checkpoint, out, "--data", data) == expected
    assert packaging.main([str(made.checkpoint), str(out), "--data", str(data), "--codes", f"{made.data}/codes"]) == 0
    assert "exists; --force overwrites it" in refusal(capsys, made.checkpoint, out, "--data", data)
    shutil.rmtree(out)
    with open(data / "data-bin" / "dict.en.txt", "a") as dictionary:
        dictionary.write("more 1\n")
    message = refusal(capsys, made.checkpoint, out, "--data", data, "--codes", made.data / "codes")
    assert "dict.en.txt: damaged or changed since it was prepared, says " in message
    (data / "data-bin" / "sha256sums").unlink()
    message = refusal(capsys, made.checkpoint, out, "--data", data, "--codes", made.data / "codes")
    assert "was not trained with the target dictionary of" in message
    assert not list(tmp_path.glob("out*"))
