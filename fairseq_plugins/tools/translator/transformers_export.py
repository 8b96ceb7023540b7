"""``fairseq-deep export --to transformers``: a package as a directory of Hugging Face transformers, with its proof."""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import require_no_input, whole_directory
from fairseq_plugins.lines import read_lines
from fairseq_plugins.search import GNMT, STOCK
from fairseq_plugins.tools.pipeline.results import Run, read_run
from fairseq_plugins.tools.translator import equivalence
from fairseq_plugins.tools.translator.engines import SearchOptions
from fairseq_plugins.tools.translator.fairseq_engine import FairseqEngine
from fairseq_plugins.tools.translator.package import Package, require_replaceable

PROOF = "proof.txt"
SENTENCES, LINES, TRANSLATED = 100, 200, 16
"""Random sentences that are scored; raw lines that are read and translated, or random sentences without any."""


def export_to_transformers(package: Package, out: Path, args: argparse.Namespace) -> None:
    """Write a directory that transformers loads; it appears when the proof holds. A UserError says why not."""
    try:
        from transformers.utils.logging import disable_progress_bar

        from fairseq_plugins.tools.translator.transformers_model import (
            LEAST_TRANSFORMERS,
            TransformersEngine,
            converted,
            longest_translation,
            search_settings,
        )
    except (ImportError, OSError, RuntimeError) as error:  # of a torchaudio for another torch, for example
        raise UserError(f"transformers cannot be imported here: {error}".partition("\n")[0]) from None
    from fairseq_plugins.tools.translator.model_card import write_card
    from fairseq_plugins.tools.translator.transformers_text import compare_tokenisers, is_stock, write_tokeniser

    disable_progress_bar()
    require_replaceable(out, args.force, PROOF)
    require_no_input(out, [package.directory, *filter(None, [args.text, args.run])])
    run = read_run(args.run) if args.run else None
    if run:
        _require_its_training(package, run)
    search, text = package.content["search"], package.text
    if search["lenpen_form"] == GNMT:
        raise UserError(
            f"transformers does not support: lenpen_form {GNMT}; {STOCK} is the form that it has (translator.json)"
        )
    encode = text.encoder(package.directory)
    model, dictionaries = package.model(), package.dictionaries()
    source, target = dictionaries.source_dictionary, dictionaries.target_dictionary
    positions = model.max_positions()
    theirs = converted(model, package.content["model"])
    if hasattr(theirs.config, "langs"):
        theirs.config.langs = [text.source, text.target]
    theirs.generation_config = search_settings(search, target, longest_translation(search, *positions))
    texts = [
        equivalence.drawn_sentences(source, positions[0], seed=1, count=SENTENCES),
        equivalence.drawn_sentences(target, positions[1], seed=2, count=SENTENCES),
    ]
    raw, sentences = list(map(text.decoder(), texts[0])), texts[0][:TRANSLATED]
    if args.text:
        lines = [line for line in islice(read_lines(args.text), LINES) if 0 < len(encode(line)) < positions[0]]
        raw, sentences = raw + lines, [encode(line) for line in lines]
    options = SearchOptions(search, device="cpu")
    with whole_directory(out, overwrite=args.force) as partial:
        theirs.save_pretrained(partial)
        (partial / "model.safetensors").chmod(0o644)  # safetensors lets nobody else read it
        kind, trusted = theirs.config.model_type, not is_stock(text)
        write_tokeniser(package, dictionaries, positions[0], partial, LEAST_TRANSFORMERS[kind])
        ours = FairseqEngine(model, dictionaries, options)
        exported = TransformersEngine(partial, dictionaries, options, positions[1])
        proof = [
            equivalence.compare_scores(ours, exported, texts, "float32", equivalence.LARGEST_DIFFERENCE),
            equivalence.compare_searches(ours, exported, sentences),
            compare_tokenisers(text, encode, source, raw, partial),
        ]
        (partial / PROOF).write_text("".join(f"{line}\n" for line in proof), encoding="utf-8")
        write_card(partial, out.resolve().name, package, kind, trusted, run, args.license, proof)
    print(*proof, sep="\n")
    size = sum(path.stat().st_size for path in out.iterdir())
    print(f"{out}: {type(theirs).__name__}, {size / 1e6:.1f} MB")


def _require_its_training(package: Package, run: Run) -> None:
    """Refuse scores of a training that did not make the package, as far as the size and the length tell."""
    content = package.content
    pairs = {"updates": (run.updates, content["updates"])}
    pairs["architecture"] = (run.configured("model", "_name"), content["architecture"])
    for name in ("encoder_layers", "decoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim"):
        pairs[name] = (run.configured("model", name), content["model"][name])
    # A run.json of an earlier version has no configuration.
    if other := [f"{name} {its}, not {ours}" for name, (its, ours) in pairs.items() if its not in (None, ours)]:
        raise UserError(f"--run {run.directory}: {', '.join(other)} as in {package.directory}: another training")
