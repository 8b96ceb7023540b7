"""The tokeniser of a package as one of Hugging Face transformers, which gives the same numbers of the same raw text.

``MarianTokenizer`` is the one for SentencePiece with fairseq's end of a sentence and a dictionary beside the model: it
calls SentencePiece itself, and looks pieces up in ``vocab.json``. For Moses' tokens there is none. ``FSMTTokenizer``
always replaces punctuation and splits at hyphens, leaves the last full stop on an abbreviation and has no vocabulary
threshold. In ``tokenizers`` each merge of BPE needs a number, which a dictionary of fairseq has only for what a text is
made of in the end; and no decoder counts quotation marks, as Moses' detokeniser does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, MarianTokenizer

from fairseq_plugins.errors import UserError
from fairseq_plugins.translator.form import CODES, Form
from fairseq_plugins.translator.package import Package


def obstacles_to_text(form: Form) -> list[str]:
    """Return what was done to the text and no tokeniser of transformers does, as options of ``prepare``."""
    settings = {
        "--tokeniser moses": form.tokeniser != "none",
        f"--subwords {'bpe' if form.subwords == 'subword_nmt' else form.subwords}": form.subwords != "sentencepiece",
        "--normalise": form.normalise,
        "--lower-case": form.lower_case,
        "a truecaser": form.truecased,
        "’ replaced by '": form.apostrophes,
    }
    return [setting for setting, used in settings.items() if used]


def write_tokeniser(package: Package, dictionaries: Any, positions: int, directory: Path) -> None:
    """Write the tokeniser of a package without :func:`obstacles_to_text`.

    Args:
        package: with a model of SentencePiece.
        dictionaries: of the source and the target.
        positions: source tokens that the model takes, the end of the sentence among them.
        directory: of the model.
    """
    source, target = dictionaries.source_dictionary, dictionaries.target_dictionary
    for words, name in ((source, "vocab.json"), (target, "target_vocab.json")):
        numbers = {word: number for number, word in enumerate(words.symbols)}
        (directory / name).write_text(json.dumps(numbers, ensure_ascii=False, indent=1), encoding="utf-8")
    form, pieces = package.form, str(package.directory / CODES)
    MarianTokenizer(
        source_spm=pieces,
        target_spm=pieces,
        vocab=str(directory / "vocab.json"),
        target_vocab_file=str(directory / "target_vocab.json"),
        separate_vocabs=True,
        source_lang=form.source,
        target_lang=form.target,
        unk_token=source.unk_word,
        eos_token=source.eos_word,
        pad_token=source.pad_word,
        model_max_length=positions,
        # A raw </s> is text.
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(directory)


def compare_tokenisers(package: Package, words: Any, texts: Sequence[str], directory: Path) -> str:
    """Compare the numbers of raw sentences, and return that they are equal, in a line; else a UserError names one."""
    encode = package.form.encoder(package.directory)
    theirs = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    for text in texts:
        numbers = [*map(words.index, encode(text)), words.eos()]
        if theirs(text).input_ids != numbers:
            raise UserError(f"transformers reads other tokens in {text[:80]!r}; nothing written")
    return f"tokeniser: the numbers of {len(texts):,} of {len(texts):,} sentences are equal"
