"""``fairseq-deep export MODEL``: the model of a package for another engine, and a comparison of both.

Before anything appears, both engines score random sentences in float32, and both searches translate some of them. A
model of CTranslate2 becomes a part of the package, a model of Hugging Face a separate directory.
"""

import argparse
import logging
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import require_no_input, whole_directory
from fairseq_plugins.lines import read_lines
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.process import exit_code
from fairseq_plugins.search import GNMT, STOCK
from fairseq_plugins.tools.translator import equivalence
from fairseq_plugins.tools.translator.engines import CTRANSLATE2, CTranslate2Engine, SearchOptions
from fairseq_plugins.tools.translator.fairseq_engine import FairseqEngine
from fairseq_plugins.tools.translator.package import FASTEST, Package, add_engine, open_package, require_replaceable

TRANSFORMERS = "transformers"
SENTENCES = {CTRANSLATE2: 64, TRANSFORMERS: 100}
"""Number of random sentences that are scored."""
LINES = 200
"""Lines of --text that are read and translated."""
CARD = """\
---
language: ["{source}", "{target}"]
library_name: transformers
pipeline_tag: translation
tags: [translation, fairseq, {architecture}]
---

# {name}

A Transformer that translates from {source} to {target}, trained with fairseq-deep.

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}"{trust})
model = AutoModelForSeq2SeqLM.from_pretrained("{name}")
read = tokenizer(["..."], padding=True, return_tensors="pt")
print(tokenizer.batch_decode(model.generate(**read), skip_special_tokens=True))
```

`generation_config.json` has the search: beam {beam}, length penalty {lenpen:g}.{limit}{note}
`skip_special_tokens` drops unknown words, and an empty line gets a translation.

## Comparison

This model against the one that was trained, on a CPU in float32:

{comparison}
"""
LIMIT = """
The trained model's limit grows with the source: pass `max_new_tokens=int({max_len_a:g} * read["input_ids"].shape[1] + \
{max_len_b}) + 1` to `generate`."""
"""For searches whose limit depends on the length of the source."""
NOTES = {
    "fsmt": " A forward pass with `decoder_input_ids` needs\n`use_cache=False`: else FSMT sees later words. "
    "transformers 4 translates wrongly without a warning:\nits FSMT ties two tables that differ here. Use release 5."
}
"""Advice about a class of transformers, by its ``model_type``."""
TRUSTED = """

The tokeniser is code of this directory, since no class of transformers makes these tokens. The code needs
`pip install "sacremoses>=0.1.0" sentencepiece "subword-nmt>=0.3.7"`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Export; 0, or 2 after one line for each problem."""
    flags = OneLineParser(
        prog="fairseq-deep export",
        description="Convert the model of a package for CTranslate2, a faster engine (pip install "
        "'fairseq-deep[export]'), or for Hugging Face transformers (pip install 'fairseq-deep[transformers]'). The "
        "first is a directory in the package, and fairseq-deep translate then uses it; the second is DIR, which needs "
        "nothing of this package. Nothing is written unless both engines give the same log-probabilities in float32; "
        "int8 may differ more.",
    )
    flags.add_argument("model", type=Path, metavar="MODEL", help="a directory of fairseq-deep package")
    flags.add_argument("out", type=Path, nargs="?", metavar="DIR", help="of transformers: the directory to make")
    flags.add_argument("--to", choices=(CTRANSLATE2, TRANSFORMERS), default=CTRANSLATE2, help="default: ctranslate2")
    flags.add_argument("--force", action="store_true", help="overwrite an export")
    of_ctranslate2 = flags.add_argument_group(CTRANSLATE2)
    of_ctranslate2.add_argument("--quantization", choices=FASTEST, help="how the weights are stored (default: float32)")
    help = "raw sentences; the first 200 are part of the check"
    flags.add_argument_group(TRANSFORMERS).add_argument("--text", type=Path, metavar="FILE", help=help)
    return exit_code(lambda: export(flags.read(argv)))


def export(args: argparse.Namespace) -> None:
    """Convert and check; the result appears only if both engines agree, else a UserError says why not."""
    others = ["quantization"] if args.to == TRANSFORMERS else ["out", "text"]
    if given := [name for name in others if getattr(args, name) is not None]:
        name = "DIR" if given[0] == "out" else f"--{given[0]}"
        raise UserError(f"--to {args.to} takes no {name}")
    if args.to == TRANSFORMERS and args.out is None:
        raise UserError("--to transformers needs DIR, the directory to make")
    extra = {CTRANSLATE2: "export", TRANSFORMERS: "transformers"}[args.to]
    if find_spec(args.to) is None:
        raise UserError(f"{args.to} is not installed: pip install 'fairseq-deep[{extra}]'")
    logging.getLogger().setLevel(logging.WARNING)
    if args.to == TRANSFORMERS:
        export_to_transformers(open_package(args.model), args.out, args.force, args.text)
    else:
        export_to_ctranslate2(open_package(args.model), args.quantization or "float32", args.force)


def export_to_ctranslate2(package: Package, quantization: str, force: bool) -> None:
    """Add an engine to a package, or raise a UserError that says why not."""
    from fairseq_plugins.tools.translator import ctranslate2_model as model_of

    path = package.directory
    out = path / f"ctranslate2-{quantization}"
    require_replaceable(out, force, "config.json")
    model, dictionaries = package.model(), package.dictionaries()
    if problems := model_of.obstacles_to_export(model):
        raise UserError(f"CTranslate2 does not support: {', '.join(problems)}; fairseq-deep translate needs no export")
    converter = model_of.ModelConverter(model_of.without_scaled_streams(model, dict(package.content["model"]), path))
    options = SearchOptions({**package.content["search"], "lenpen_form": STOCK}, device="cpu")
    _, target = model.max_positions()
    texts = equivalence.drawn_texts(dictionaries, model.max_positions(), SENTENCES[CTRANSLATE2])
    ours = FairseqEngine(model, dictionaries, options)
    with TemporaryDirectory() as place:
        exact = Path(place, "float32")
        converter.convert(str(exact))
        theirs = CTranslate2Engine(exact, options, target)
        print(equivalence.compare_scores(ours, theirs, texts, f"{path}, float32", equivalence.LARGEST_DIFFERENCE))
    with whole_directory(out, overwrite=force) as partial:
        converter.convert(str(partial), quantization=quantization, force=True)
        theirs = CTranslate2Engine(partial, options, target)
        if quantization != "float32":
            print(equivalence.compare_scores(ours, theirs, texts, quantization))
        print(equivalence.compare_searches(ours, theirs, texts[0][: equivalence.TRANSLATED]))
    add_engine(path, out, quantization)
    print(f"{out}: {_megabytes(out)}")


def export_to_transformers(package: Package, out: Path, force: bool, text_file: Path | None) -> None:
    """Write a directory that transformers loads, or raise a UserError that says why not."""
    try:
        # First: it guards transformers' imports against a torchaudio for another torch.
        from fairseq_plugins.tools.translator import transformers_model as model_of
    except (ImportError, OSError, RuntimeError) as error:
        raise UserError(f"transformers cannot be imported here: {error}".partition("\n")[0]) from None
    from transformers.utils.logging import disable_progress_bar

    from fairseq_plugins.tools.translator.transformers_text import compare_tokenisers, is_stock, write_tokeniser

    disable_progress_bar()
    require_replaceable(out, force, "generation_config.json")
    require_no_input(out, [package.directory, *([text_file] if text_file else [])])
    search, text = package.content["search"], package.text
    if search["lenpen_form"] == GNMT:
        raise UserError(f"transformers does not support: lenpen_form {GNMT}; it has {STOCK} (translator.json)")
    encode = text.encoder(package.directory)
    model, dictionaries = package.model(), package.dictionaries()
    positions = model.max_positions()
    theirs = model_of.converted(model, package.content["model"])
    if hasattr(theirs.config, "langs"):
        theirs.config.langs = [text.source, text.target]
    longest = model_of.longest_translation(search, *positions)
    theirs.generation_config = model_of.search_settings(search, dictionaries.target_dictionary, longest)
    texts = equivalence.drawn_texts(dictionaries, positions, SENTENCES[TRANSFORMERS])
    raw, sentences = list(map(text.decoder(), texts[0])), texts[0][: equivalence.TRANSLATED]
    if text_file:
        lines = [line for line in islice(read_lines(text_file), LINES) if 0 < len(encode(line)) < positions[0]]
        raw, sentences = raw + lines, [encode(line) for line in lines]
    options = SearchOptions(search, device="cpu")
    with whole_directory(out, overwrite=force) as partial:
        theirs.save_pretrained(partial)
        (partial / "model.safetensors").chmod(0o644)  # safetensors writes mode 0600
        kind, trusted = theirs.config.model_type, not is_stock(text)
        write_tokeniser(package, dictionaries, positions[0], partial, model_of.LEAST_TRANSFORMERS[kind])
        ours = FairseqEngine(model, dictionaries, options)
        exported = model_of.TransformersEngine(partial, dictionaries, options, positions[1])
        comparison = [
            equivalence.compare_scores(ours, exported, texts, "float32", equivalence.LARGEST_DIFFERENCE),
            equivalence.compare_searches(ours, exported, sentences),
            compare_tokenisers(text, encode, dictionaries.source_dictionary, raw, partial),
        ]
        card = CARD.format(
            architecture=package.content["architecture"],
            name=out.resolve().name,
            source=text.source,
            target=text.target,
            **search,
            trust=", trust_remote_code=True" if trusted else "",
            limit=LIMIT.format(**search) if search["max_len_a"] else "",
            note=NOTES.get(kind, "") + TRUSTED * trusted,
            comparison="\n".join(f"- {line}" for line in comparison),
        )
        (partial / "README.md").write_text(card, encoding="utf-8")
    print(*comparison, sep="\n")
    print(f"{out}: {type(theirs).__name__}, {_megabytes(out)}")


def _megabytes(directory: Path) -> str:
    return f"{sum(path.stat().st_size for path in directory.iterdir()) / 1e6:.1f} MB"
