"""``fairseq-deep export --to transformers``: a stock class does the same, or the reason is said."""

import dataclasses
import json
from argparse import Namespace
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary

try:  # first, because it keeps a torchaudio for another torch away from transformers
    from fairseq_plugins.tools.translator import transformers_model
except (ImportError, OSError, RuntimeError) as error:
    reason = f"transformers cannot be imported: {error}".partition("\n")[0]
    pytest.skip(reason, allow_module_level=True)

import transformers
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from fairseq_plugins.core.config import plain_namespace
from fairseq_plugins.core.method import Axis
from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.text import steps, subwords
from fairseq_plugins.tools.text.tokenization_prepared_text import PreparedTextTokenizer
from fairseq_plugins.tools.translator.engines import SearchOptions
from fairseq_plugins.tools.translator.equivalence import LARGEST_DIFFERENCE, compare_scores, drawn_texts
from fairseq_plugins.tools.translator.fairseq_engine import FairseqEngine
from fairseq_plugins.tools.translator.model import write_weights
from fairseq_plugins.tools.translator.package import FORMAT, WEIGHTS, checksums, write_manifest
from fairseq_plugins.tools.translator.preprocessor import CODES, TRUECASER, VOCABULARY, Preprocessor
from fairseq_plugins.tools.translator.transformers_model import TransformersEngine, converted, search_settings
from fairseq_plugins.tools.translator.translate import Translator
from tests import processes, toy
from tests.models import CASES, configuration, dictionary, task, trained
from tests.processes import Command
from tests.representatives import for_each

FSMT, M2M_100 = "FSMTForConditionalGeneration", "M2M100ForConditionalGeneration"
EXPORTED = {"post_ln": FSMT, "admin": FSMT, "deepnet": FSMT, "pre_ln": M2M_100}
"""Cases that must never be refused; the others are refused with a reason, or are the same."""
REFUSED = {
    "hybrid_ln": "LayerNorms before the branches in one stack",
    "rezero": "--norm-position none cannot be folded",
    "b2t": "--residual b2t cannot be folded",
    "dlcl": "--layer-aggregation dlcl cannot be folded",
}
SEARCH = {"beam": 5, "lenpen": 1.0, "lenpen_form": "fairseq", "max_len_a": 0.0, "max_len_b": 60, "min_len": 1}
SEARCH |= {"no_repeat_ngram_size": 0}
FREQUENT = 24
"""A word that the model of the package often writes."""
HOW = SearchOptions(SEARCH, device="cpu")


def options_of(model: Any, case: str, *flags: str) -> dict[str, Any]:
    return vars(plain_namespace(Namespace(**vars(configuration(*CASES[case], *flags))), type(model).config_class))


def require_equal(case: str, flags: list[str], kind: str, place: Path) -> None:
    """Rounding of float32 in five layers of width 16 stays below 1e-5."""
    model = trained(case, *flags)
    theirs = converted(model, options_of(model, case, *flags))
    assert type(theirs).__name__ == kind
    theirs.generation_config = search_settings(SEARCH, dictionary(), 60)
    theirs.save_pretrained(place)
    longest = min(model.max_positions())
    texts = drawn_texts(task(), (longest, longest), count=12)
    engine = TransformersEngine(place, task(), HOW, longest)
    assert compare_scores(FairseqEngine(model, task(), HOW), engine, texts, case, 0.1 * LARGEST_DIFFERENCE)


@for_each("case", sorted(CASES), Axis.RESIDUAL, Axis.NORM_POSITION)
def test_a_case_is_the_same_in_a_stock_class_or_refused(case: str, tmp_path: Path) -> None:
    model = trained(case)
    refusal = kind = ""
    try:
        kind = type(converted(model, options_of(model, case))).__name__
    except UserError as error:
        refusal = str(error)
    if refusal:
        assert case not in EXPORTED, refusal
        assert f"transformers does not support: {REFUSED.get(case, '')}" in refusal
    else:
        require_equal(case, [], EXPORTED.get(case, kind), tmp_path)


SETTINGS = [
    ("post_ln", "--share-all-embeddings", FSMT),
    ("pre_ln", "--share-all-embeddings", M2M_100),
    ("admin", "--share-decoder-input-output-embed --encoder-learned-pos --max-target-positions 30", FSMT),
    ("admin", "--share-all-embeddings --activation-fn gelu --no-scale-embedding", FSMT),
    ("pre_ln", "--share-decoder-input-output-embed --activation-fn gelu_accurate --encoder-attention-heads 4", M2M_100),
]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "flags", "kind"), SETTINGS)
def test_settings_around_the_layers(case: str, flags: str, kind: str, tmp_path: Path) -> None:
    require_equal(case, flags.split(), kind, tmp_path)


def test_settings_that_no_class_has_are_named() -> None:
    for case, flags, reason in (
        ("post_ln", "--layernorm-embedding", "--layernorm-embedding"),
        ("pre_ln", "--decoder-learned-pos", "--decoder-learned-pos in Pre-LN"),
        ("pre_ln", "--no-decoder-final-norm", "--no-decoder-final-norm"),
        ("post_ln", "--no-token-positional-embeddings", "--no-token-positional-embeddings"),
    ):
        model = trained(case, *flags.split())
        with pytest.raises(UserError, match=f"^transformers does not support: {reason}$"):
            converted(model, options_of(model, case, *flags.split()))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of SentencePiece, as large as the tests' dictionary, with a model that has seen nothing."""
    toy.write_sentences(tmp_path / "raw")
    place = tmp_path / "package"
    place.mkdir()
    pieces, size = place / CODES, len(dictionary()) - dictionary().nspecial
    subwords.learn_pieces([tmp_path / "raw" / "train.de"], pieces, size=size + 3)
    processor = subwords.sentencepiece.SentencePieceProcessor(model_file=str(pieces))
    return packaged(place, [processor.id_to_piece(number) for number in range(3, size + 3)], subwords="sentencepiece")


def packaged(place: Path, types: list[str], case: str = "admin", target: list[str] | None = None, **form: Any) -> Path:
    """Write all but the subwords of a package; translations end, as the end is as probable as a frequent word."""
    model = trained(case)
    with torch.no_grad():
        table = model.decoder.output_projection.weight
        table[dictionary().eos()] = 1.1 * table[FREQUENT]
    for language, order in (("de", types), ("en", target or types)):
        words = Dictionary()
        for word in order:
            words.add_symbol(word)
        words.save(str(place / f"dict.{language}.txt"))
    write_weights(model.state_dict(), place / WEIGHTS)
    content = {
        "format": FORMAT,
        "text": dataclasses.asdict(Preprocessor("de", "en", **form)),
        "search": SEARCH,
        "positions": list(model.max_positions()),
        "updates": 1200,
        "architecture": f"{case}_transformer",
        "model": json.loads(json.dumps(options_of(model, case))),
        "engines": {},
    }
    write_manifest(place, {**content, "files": checksums(place)})
    return place


@pytest.fixture
def run(deep: Command) -> Command:
    return partial(deep, "export", "--to", "transformers")


def test_the_directory_translates_raw_text_and_has_a_card(package: Path, tmp_path: Path, run: Command) -> None:
    from huggingface_hub import ModelCard

    out = tmp_path / "hub"
    code, errors, printed = run(package, out, "--text", tmp_path / "raw" / "test.de")
    assert code == 0, errors
    assert "float32: 2,102 log-probabilities of 100 sentences" in printed
    lines = (tmp_path / "raw" / "test.de").read_text(encoding="utf-8").splitlines()
    tokeniser = AutoTokenizer.from_pretrained(out, local_files_only=True)
    model = AutoModelForSeq2SeqLM.from_pretrained(out, local_files_only=True)
    found = model.generate(**tokeniser(lines, padding=True, return_tensors="pt"), num_beams=1)
    theirs = tokeniser.batch_decode(found, skip_special_tokens=True)
    ours = [text for text, _ in Translator(package, beam=1).translate(lines)]
    assert ours == theirs
    assert len({*ours}) > 1
    assert "beam search: 24 of 24 translations are equal" in printed
    card = ModelCard.load(out / "README.md")
    assert "trust_remote_code" not in card.text
    assert (card.data.language, card.data.pipeline_tag) == (["de", "en"], "translation")
    assert [line for line in printed.splitlines() if f"- {line}" in card.text] == printed.splitlines()[:3]


def test_a_raw_text_gives_the_same_numbers_but_for_six_control_characters_and_a_code(package, tmp_path, run):
    assert run(package, tmp_path / "hub")[0] == 0
    tokeniser = AutoTokenizer.from_pretrained(tmp_path / "hub", local_files_only=True)
    encode, words = (
        Preprocessor("de", "en", subwords="sentencepiece").encoder(package),
        Dictionary.load(f"{package}/dict.de.txt"),
    )

    def differs(text: str) -> bool:
        return bool(tokeniser(text).input_ids != [*map(words.index, encode(text)), words.eos()])

    characters = [chr(code) for code in range(0x3100) if differs(f"ja{chr(code)}nein {chr(code)}")]
    assert characters == ["\x0b", "\x1c", "\x1d", "\x1e", "\x1f", "\x85"]
    assert not any(map(differs, ("", " ", "</s> ja", "<unk>", "ja <pad>", "▁ja", "  ja  nein ")))
    assert differs(">>de<< ja")


FORMS = {
    "subwords": {"subwords": "subword_nmt", "escape": False},
    "rare": {"subwords": "subword_nmt", "threshold": 30, "aggressive": True, "normalise": True},
    "truecased": {"subwords": "subword_nmt", "truecased": True, "apostrophes": True},
    "pieces": {"subwords": "sentencepiece", "lower_case": True},
    "words": {"lower_case": True},
}
"""Settings of Moses' tokens with and without subwords."""
LINES = [
    "Ja, eins zwei!",
    "Er sagt: „drei“ – z.B. vier-fünf, nicht sechs.",
    "</s> <unk> & @-@ eins@@ [sieben] 'acht' O’Neill",
    "Nein\u00a0neun\x85null\u2028dr.",
    "",
]


@pytest.mark.parametrize("name", FORMS)
def test_moses_tokens_have_a_tokeniser_beside_the_model(name: str, tmp_path: Path, run: Command) -> None:
    form = {"tokeniser": "moses", **FORMS[name]}
    raw, place, out = tmp_path / "raw", tmp_path / "package", tmp_path / "hub"
    toy.write_sentences(raw)
    place.mkdir()
    lines = [*(raw / "test.de").read_text(encoding="utf-8").splitlines(), *LINES]
    files = [raw / "train.de", raw / "train.en"]
    if form.get("subwords") == "sentencepiece":
        subwords.learn_pieces(files, place / CODES, size=60)
    elif "subwords" in form:
        subwords.learn_merges(files, place / CODES, merges=60)
    if "threshold" in form:
        (place / VOCABULARY).write_text("ei@@ 100\nns 100\nz@@ 29\n", encoding="utf-8")
    if "truecased" in form:
        steps.learn_truecaser(files[0], place / TRUECASER)
    full = Preprocessor("de", "en", **form)
    encode = full.encoder(place)
    size = len(dictionary()) - dictionary().nspecial
    counts = Counter(token for line in lines for token in encode(line))
    types = [token for token, _ in counts.most_common(size)]
    types += [f"type{number}" for number in range(size - len(types))]
    # Without the tokeniser next to it, M2M-100's own must not read the text either.
    package = packaged(place, types, "pre_ln" if name == "words" else "admin", types[::-1], **form)
    assert run(package, out, "--text", raw / "test.de")[0] == 0
    ended = processes.python("-W", "ignore", "-c", ALONE, str(out), json.dumps(lines), HF_HOME=str(tmp_path / "cache"))
    assert ended.code == 0, ended.errors
    theirs = json.loads(ended.output)
    source, target = (Dictionary.load(f"{package}/dict.{language}.txt") for language in ("de", "en"))
    read = [[*map(source.index, encode(line)), source.eos()] for line in lines]
    assert theirs["read"] == read
    tokens = dataclasses.replace(full, source="en").encoder(place)(LINES[1])
    assert theirs["as target"] == [*map(target.index, tokens), target.eos()]
    known = [[target[number] for number in numbers if number >= target.nspecial] for numbers in read]
    assert theirs["written"] == list(map(full.decoder(), known))
    assert theirs["short"] == [[*read[1][:3], source.eos()], [source.eos(), *3 * [source.pad()]]]
    assert theirs["read"] == theirs["read again"]
    assert "trust_remote_code=True)" in (out / "README.md").read_text(encoding="utf-8")


def test_a_tokeniser_says_what_is_missing(tmp_path: Path, run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.write_sentences(tmp_path / "raw")
    place, out = tmp_path / "package", tmp_path / "hub"
    place.mkdir()
    steps.learn_truecaser(tmp_path / "raw" / "train.de", place / TRUECASER)
    types = [f"type{number}" for number in range(len(dictionary()) - dictionary().nspecial)]
    assert run(packaged(place, types, tokeniser="moses", truecased=True), out)[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr(transformers, "__version__", "4.57.6")
        with pytest.raises(RuntimeError, match="^this model needs transformers 5, not 4.57.6$"):
            PreparedTextTokenizer.from_pretrained(out)
    (out / TRUECASER).unlink()
    with pytest.raises(RuntimeError, match="^the file truecaser of the tokeniser is missing$"):
        PreparedTextTokenizer.from_pretrained(out)


ALONE = """
import json, pickle, sys
from pathlib import Path
sys.modules["fairseq_plugins"] = sys.modules["fairseq"] = None
from transformers import AutoTokenizer
where, lines = sys.argv[1], json.loads(sys.argv[2])
try:
    AutoTokenizer.from_pretrained(where, local_files_only=True, trust_remote_code=False)
    sys.exit("read by another class")
except (OSError, TypeError, ValueError):
    pass
tokeniser = AutoTokenizer.from_pretrained(where, local_files_only=True, trust_remote_code=True)
read = [tokeniser(line).input_ids for line in lines]
again = pickle.loads(pickle.dumps(tokeniser))
again.save_pretrained(f"{where}/again")
settings = Path(where, "again", "tokenizer_config.json")
# transformers 4 saves it so.
settings.write_text(json.dumps({**json.loads(settings.read_text("utf-8")), "special_tokens_pattern": "eos"}), "utf-8")
print(json.dumps({
    "read": read,
    "as target": tokeniser(text_target=lines[-4]).input_ids,
    "short": tokeniser([lines[1], ""], truncation=True, max_length=4, padding=True).input_ids,
    "written": tokeniser.batch_decode(read, skip_special_tokens=True),
    "read again": AutoTokenizer.from_pretrained(f"{where}/again", trust_remote_code=True)(lines).input_ids,
}))
"""
"""Reads lines where this package cannot be imported."""


def test_what_is_not_the_same_leaves_nothing(package, tmp_path, run, monkeypatch):
    out = tmp_path / "hub"
    with monkeypatch.context() as patch:
        patch.setitem(transformers_model.ACTIVATIONS, "relu", "gelu")
        code, errors, _ = run(package, out)
    assert (code, "float32: transformers computes something else" in errors) == (2, True)
    content = json.loads((package / "translator.json").read_text(encoding="utf-8"))
    write_manifest(package, {**content, "search": {**content["search"], "lenpen_form": "gnmt"}})
    code, errors, _ = run(package, out)
    assert (code, "transformers does not support: lenpen_form gnmt" in errors) == (2, True)
    assert not list(tmp_path.glob("hub*"))
