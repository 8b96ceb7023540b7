"""The tokeniser of a package as one of Hugging Face transformers, which gives the same numbers of the same raw text.

``MarianTokenizer`` is the one for SentencePiece alone with fairseq's end of a sentence and a dictionary next to the
model: it calls SentencePiece itself, and looks pieces up in ``vocab.json``. For Moses' tokens there is none.
``FSMTTokenizer`` always replaces punctuation and splits at hyphens, leaves the last full stop on an abbreviation and
has no vocabulary threshold. In ``tokenizers`` each merge of BPE needs a number, which a dictionary of fairseq has only
for subwords that remain in a text; and no decoder counts quotation marks, as Moses' detokeniser does. So such a text
has a tokeniser of its own, whose code lies next to the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import MarianTokenizer

from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.text import moses
from fairseq_plugins.tools.text.tokenization_prepared_text import PreparedTextTokenizer
from fairseq_plugins.tools.translator.package import Package
from fairseq_plugins.tools.translator.preprocessor import CODES, Preprocessor

PreparedTextTokenizer.register_for_auto_class("AutoTokenizer")


def is_stock(text: Preprocessor) -> bool:
    """Return whether a class of transformers reads the text; else code next to the model does, and must be trusted."""
    return text == Preprocessor(text.source, text.target, subwords="sentencepiece", escape=text.escape)


def write_tokeniser(
    package: Package, dictionaries: Any, positions: int, directory: Path, least_transformers: int
) -> None:
    """Write the tokeniser of a package into the ``directory`` of the model.

    ``positions`` is the number of source tokens that the model takes, the end of the sentence included. Code beside the
    model refuses a release of transformers below ``least_transformers``; a class of transformers cannot.
    """
    source, target = dictionaries.source_dictionary, dictionaries.target_dictionary
    for words, name in ((source, "vocab.json"), (target, "target_vocab.json")):
        numbers = {word: number for number, word in enumerate(words.symbols)}
        (directory / name).write_text(json.dumps(numbers, ensure_ascii=False, indent=1), encoding="utf-8")
    text, vocab, target_vocab = package.text, str(directory / "vocab.json"), str(directory / "target_vocab.json")
    common = {
        "unk_token": source.unk_word,
        "eos_token": source.eos_word,
        "pad_token": source.pad_word,
        "model_max_length": positions,
        # A raw </s> is text.
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
    }
    if is_stock(text):
        pieces = str(package.directory / CODES)
        languages = {"source_lang": text.source, "target_lang": text.target}
        tables = {"vocab": vocab, "target_vocab_file": target_vocab, "separate_vocabs": True}
        MarianTokenizer(pieces, pieces, **tables, **languages, **common).save_pretrained(directory)
    else:
        files: dict[str, Any] = {name: str(package.directory / name) for name in moses.files_of(text)}
        needs = {**files, **common, "least_transformers": least_transformers}
        PreparedTextTokenizer(vocab, target_vocab, asdict(text), **needs).save_pretrained(directory)


def compare_tokenisers(
    text: Preprocessor, encode: Callable[[str], list[str]], words: Any, texts: Sequence[str], directory: Path
) -> str:
    """Compare the numbers of raw sentences; returns a line that says they are equal, else a UserError names a sentence.

    ``encode`` is the encoder of ``text``, and ``words`` the dictionary of the source.
    """
    # AutoTokenizer would run a copy of the copy, in a cache of the user.
    kind = MarianTokenizer if is_stock(text) else PreparedTextTokenizer
    theirs = kind.from_pretrained(directory, local_files_only=True)
    for line in texts:
        numbers = [*map(words.index, encode(line)), words.eos()]
        if theirs(line).input_ids != numbers:
            raise UserError(f"transformers reads other tokens in {line[:80]!r}; nothing written")
    return f"tokeniser: the numbers of {len(texts):,} of {len(texts):,} sentences are equal"
