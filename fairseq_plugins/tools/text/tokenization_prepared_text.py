"""A tokeniser for Hugging Face transformers: Moses' tokens, case and subwords as ``prepare`` makes them.

:mod:`fairseq_plugins.tools.translator.transformers_text` writes a copy of this file, and of its relative imports,
next to a model; ``from_pretrained(..., trust_remote_code=True)`` runs that copy, which needs nothing of this package.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import transformers
from sentencepiece import SentencePieceProcessor
from subword_nmt.apply_bpe import BPE, read_vocabulary
from transformers import PreTrainedTokenizer

# Imports of those files are repeated here: transformers 4 copies only a tokeniser's own imports.
from .moses import Transform, decoder, encoder, files_of, truecaser
from .words import joined


class PreparedTextTokenizer(PreTrainedTokenizer):
    """Reads with the source dictionary, or with the target's for ``text_target``; writes with the target's.

    Args:
        vocab, target_vocab: JSON, the number of each token.
        form: how a text is prepared, by the attributes of ``tools.translator.preprocessor.Preprocessor``.
        codes: merges of subword-nmt or a model of SentencePiece, if the text is in subwords.
        vocabulary: counts of subwords, if those that are rarer than ``form["threshold"]`` are split.
        truecaser: model of Moses' truecaser, if the text is truecased.
        least_transformers: the first major release that computes the model next to it.

    Raises:
        RuntimeError: a file is missing, or this transformers is older than ``least_transformers``. The files have to
            stay where they are as long as the tokeniser is saved or pickled.
    """

    vocab_files_names = {
        "vocab": "vocab.json",
        "target_vocab": "target_vocab.json",
        "codes": "codes",
        "vocabulary": "vocabulary",
        "truecaser": "truecaser",
    }
    model_input_names = ["input_ids", "attention_mask"]

    def __init__(
        self,
        vocab: str,
        target_vocab: str,
        form: Mapping[str, Any],
        codes: str | None = None,
        vocabulary: str | None = None,
        truecaser: str | None = None,
        least_transformers: int = 4,
        **kwargs: Any,
    ) -> None:
        if int(transformers.__version__.partition(".")[0]) < least_transformers:
            raise RuntimeError(f"this model needs transformers {least_transformers}, not {transformers.__version__}")
        files = {"vocab": vocab, "target_vocab": target_vocab, "codes": codes, "vocabulary": vocabulary}
        self.files = {name: str(file) for name, file in {**files, "truecaser": truecaser}.items() if file}
        self.form = dict(form)
        self._load()
        # transformers 4 has saved it with the other settings.
        kwargs["special_tokens_pattern"] = "eos"
        super().__init__(form=self.form, least_transformers=least_transformers, **kwargs)

    def _load(self) -> None:
        form = SimpleNamespace(**self.form)
        for name in ("vocab", "target_vocab", *files_of(form)):
            if name not in self.files:
                # transformers has words of its own for an OSError.
                raise RuntimeError(f"the file {self.vocab_files_names[name]} of the tokeniser is missing")
        self.numbers = [json.loads(Path(self.files[name]).read_text("utf-8")) for name in ("vocab", "target_vocab")]
        self.words = {number: word for word, number in self.numbers[1].items()}
        truecase = truecaser(self.files["truecaser"]) if form.truecased else None
        split = self._split(form)
        self.encoders = [encoder(form, language, truecase, split) for language in (form.source, form.target)]
        self.decode_words = decoder(form, form.target)
        self._switch_to_input_mode()

    def _split(self, form: SimpleNamespace) -> Transform | None:
        if form.subwords == "sentencepiece":
            pieces = SentencePieceProcessor(model_file=self.files["codes"])
            return lambda line: " ".join(pieces.encode(line, out_type=str))
        if form.subwords == "none":
            return None
        frequent = None
        if form.threshold:
            with open(self.files["vocabulary"], encoding="utf-8") as lines:
                frequent = read_vocabulary(lines, form.threshold)
        with open(self.files["codes"], encoding="utf-8", newline="\n") as merges:
            split: Transform = BPE(merges, vocab=frequent).process_line
        return split

    def __getstate__(self) -> dict[str, Any]:
        """Functions are not pickled, but made anew of the files."""
        made = ("encoders", "decode_words", "encode_tokens")
        return {name: value for name, value in self.__dict__.items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._load()

    def _switch_to_input_mode(self) -> None:
        self.encode_tokens, self.encode_numbers = self.encoders[0], self.numbers[0]

    def _switch_to_target_mode(self) -> None:
        self.encode_tokens, self.encode_numbers = self.encoders[1], self.numbers[1]

    @property
    def vocab_size(self) -> int:
        """Types of the source dictionary."""
        return len(self.numbers[0])

    def get_vocab(self) -> dict[str, int]:
        """Return the source dictionary, token to number."""
        return dict(self.numbers[0])

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        return self.encode_tokens(text)

    def _convert_token_to_id(self, token: str) -> int:
        number: int = self.encode_numbers.get(token, self.encode_numbers[str(self.unk_token)])
        return number

    def _convert_id_to_token(self, index: int) -> str:
        return self.words.get(index, str(self.unk_token))

    def build_inputs_with_special_tokens(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        """The end of the sentence behind the numbers; transformers 4 does not know ``special_tokens_pattern``."""
        return [*token_ids_0, *(token_ids_1 or ()), int(self.eos_token_id)]

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """The plain text of tokens."""
        return self.decode_words(joined(" ".join(tokens), self.form["subwords"]).strip())

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        """Copy the files into a directory, and return their names there."""
        made = []
        for name, file in self.files.items():
            prefix = f"{filename_prefix}-" if filename_prefix else ""
            path = Path(save_directory) / (prefix + self.vocab_files_names[name])
            if not (path.exists() and path.samefile(file)):
                shutil.copyfile(file, path)
            made.append(str(path))
        return tuple(made)
