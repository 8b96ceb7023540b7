"""A model of this package as one of Hugging Face transformers, and as an engine.

Two of its classes have fairseq's own layers, under fairseq's own names, its sinusoids, and positions that skip pads
(release 5.24). FSMT, made for fairseq's models of WMT'19, is Post-LN. Each stack has its own dictionary, and tables of
positions are weights, so that any table fits. M2M-100 is Pre-LN with a final LayerNorm in both stacks; it has one size
of the dictionary, and computes its sinusoids. Neither has a LayerNorm on the embeddings, as BART and mBART have; in
Marian and Pegasus pads have positions.

A design's additions to such a model are folded into its weights by :mod:`fairseq_plugins.checkpoints.fold`.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor

# transformers imports torchaudio where it is installed. One for another torch does not load, and no text needs it.
try:
    import_module("torchaudio")
except (ImportError, OSError, RuntimeError):
    sys.modules["torchaudio"] = None  # type: ignore[assignment]

# isort: split
from transformers import (
    AutoModelForSeq2SeqLM,
    FSMTConfig,
    FSMTForConditionalGeneration,
    GenerationConfig,
    M2M100Config,
    M2M100ForConditionalGeneration,
)

from fairseq_plugins.checkpoints.fold import Folded, fold
from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.decoder import Hypothesis
from fairseq_plugins.tools.translator.engines import SearchOptions
from fairseq_plugins.tools.translator.fairseq_engine import FairseqEngine

ACTIVATIONS = {name: name for name in ("relu", "gelu", "swish", "tanh", "linear")}
ACTIVATIONS |= dict.fromkeys(("gelu_accurate", "gelu_fast"), "gelu_pytorch_tanh")
"""The names of transformers by fairseq's."""
LEAST_TRANSFORMERS = {"fsmt": 5, "m2m_100": 4}
"""The first release that computes the same: FSMT of release 4 ties the decoder's tables, and its search differs."""
BUFFERS = ("version", "_float_tensor")
"""Ends of the names of fairseq's buffers."""
TABLES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight")


def converted(model: Any, options: Mapping[str, Any]) -> Any:
    """Return the model of transformers that computes the same as ``model``; both are in evaluation mode.

    ``options`` is the flat configuration of ``model``. A UserError names everything that no class of transformers has.
    """
    try:
        folded = fold(model, Namespace(**options))
    except UserError as error:
        raise UserError([f"transformers does not support: {problem}" for problem in error.problems]) from None
    if problems := obstacles(model, folded):
        raise UserError(f"transformers does not support: {', '.join(problems)}")
    folded.weights = {name: value for name, value in folded.weights.items() if not name.endswith(BUFFERS)}
    make = _m2m_100 if folded.options["encoder_normalize_before"] else _fsmt
    theirs, weights = make(model, folded)
    theirs.load_state_dict(weights, strict=True)
    return theirs.eval()


def obstacles(model: Any, folded: Folded) -> list[str]:
    """Return the flags of the folded model's features that transformers lacks; a comparison finds the rest."""
    options, weights, reasons = folded.options, folded.weights, []
    is_pre_norm = options["encoder_normalize_before"]
    if is_pre_norm != options["decoder_normalize_before"]:
        reasons.append("LayerNorms before the branches in one stack and after the sums in the other")
    for name, stack in model.stacks():
        is_learned, has_top = (f"{name}.{end}.weight" in weights for end in ("embed_positions", "layer_norm"))
        settings = {
            "--layernorm-embedding": stack.layernorm_embedding is not None,
            "--no-token-positional-embeddings": stack.embed_positions is None,
            f"--activation-fn {stack.cfg.activation_fn}": stack.cfg.activation_fn not in ACTIVATIONS,
            "--adaptive-softmax-cutoff": getattr(stack, "adaptive_softmax", None) is not None,
            "stacks of two widths": stack.cfg.encoder.embed_dim != stack.cfg.decoder.embed_dim,
            f"--{name}-learned-pos in Pre-LN": is_pre_norm and is_learned,
            "--no-decoder-final-norm": is_pre_norm and not has_top,
        }
        reasons += [setting for setting, unknown in settings.items() if unknown]
    source, target = (len(weights[table]) for table in TABLES[:2])
    if is_pre_norm and source > target:
        reasons.append(f"in Pre-LN a source dictionary ({source:,} types) larger than the target's ({target:,})")
    return list(dict.fromkeys(reasons))


def _common_settings(model: Any, folded: Folded) -> dict[str, Any]:
    """Return the settings that have one name in both classes."""
    words, cfg = model.decoder.dictionary, model.decoder.cfg
    settings: dict[str, Any] = {}
    for name, stack in model.stacks():
        settings[f"{name}_layers"] = len(stack.layers)
        settings[f"{name}_attention_heads"] = stack.layers[0].self_attn.num_heads
        settings[f"{name}_ffn_dim"] = len(folded.weights[f"{name}.layers.0.fc1.weight"])
        settings[f"{name}_layerdrop"] = 0.0
    return {
        **settings,
        "d_model": cfg.decoder.embed_dim,
        "activation_function": ACTIVATIONS[cfg.activation_fn],
        "scale_embedding": not cfg.no_scale_embedding,
        "max_position_embeddings": max(model.max_positions()),
        "dropout": cfg.dropout,
        "attention_dropout": cfg.attention_dropout,
        "activation_dropout": cfg.activation_dropout,
        # Both classes tie all three tables or none.
        "tie_word_embeddings": bool(folded.options["share_all_embeddings"]),
        "bos_token_id": words.bos(),
        "pad_token_id": words.pad(),
        "eos_token_id": words.eos(),
        # fairseq's sentences begin with the end of the one before.
        "decoder_start_token_id": words.eos(),
    }


def _fsmt(model: Any, folded: Folded) -> tuple[Any, dict[str, Tensor]]:
    """Return the empty Post-LN model, and its weights by name."""
    weights = {f"model.{name}": value for name, value in folded.weights.items()}
    settings = _common_settings(model, folded)
    for name, stack in model.stacks():
        positions, table = stack.embed_positions, f"model.{name}.embed_positions.weight"
        rows = weights[table] if table in weights else positions.weights
        # Both tables have the size of the larger one, whose last rows no sentence that the model takes reaches.
        size = settings["max_position_embeddings"] + positions.padding_idx + 1
        weights[table] = F.pad(rows, (0, 0, 0, max(0, size - len(rows))))[:size]
    source, target = (len(folded.weights[table]) for table in TABLES[:2])
    config = FSMTConfig(**settings, src_vocab_size=source, tgt_vocab_size=target)
    return FSMTForConditionalGeneration(config), weights


def _m2m_100(model: Any, folded: Folded) -> tuple[Any, dict[str, Tensor]]:
    """Return the empty Pre-LN model, and its weights by name."""
    weights = {f"model.{name}": value for name, value in folded.weights.items()}
    table, target = folded.weights[TABLES[0]], len(folded.weights[TABLES[1]])
    source = F.pad(table, (0, 0, 0, target - len(table)))
    # Their third table of the input has the role of the encoder's.
    weights |= {"model.encoder.embed_tokens.weight": source, "model.shared.weight": source}
    weights["lm_head.weight"] = weights.pop("model.decoder.output_projection.weight")
    config = M2M100Config(**_common_settings(model, folded), vocab_size=target)
    return M2M100ForConditionalGeneration(config), weights


def search_settings(search: Mapping[str, Any], words: Any, longest: int) -> Any:
    """Return the settings of a search with the same results as fairseq's.

    The search stops when as many hypotheses as the beam have ended, and never chooses a pad.

    Args:
        search: settings of a package.
        words: the target dictionary.
        longest: maximum number of tokens of a translation, without the end of the sentence.
    """
    return GenerationConfig(
        num_beams=search["beam"],
        do_sample=False,
        early_stopping=True,
        length_penalty=search["lenpen"],
        max_new_tokens=longest + 1,
        min_new_tokens=search["min_len"] or None,
        no_repeat_ngram_size=search["no_repeat_ngram_size"],
        # fairseq ends every hypothesis there, too.
        forced_eos_token_id=words.eos(),
        suppress_tokens=[words.pad()],
        bos_token_id=words.bos(),
        pad_token_id=words.pad(),
        eos_token_id=words.eos(),
        decoder_start_token_id=words.eos(),
    )


class TransformersEngine(FairseqEngine):
    """A directory of transformers, with the search of its ``generation_config.json``, on the CPU.

    ``options`` has the search of the package, for limits that depend on the length of the source. ``positions`` is the
    number of target tokens that the model takes, the end of the sentence included.
    """

    def __init__(self, directory: Path, dictionaries: Any, options: SearchOptions, positions: int) -> None:
        model = AutoModelForSeq2SeqLM.from_pretrained(directory, local_files_only=True).eval()
        super().__init__(model, dictionaries, options)
        self.positions, self.label = positions, "transformers, float32, cpu"

    def _searched(self, inputs: dict[str, Tensor], nbest: int, alignment: bool) -> list[list[Hypothesis]]:
        assert (nbest, alignment) == (1, False)
        padded, marks = inputs["src_tokens"], (self.target.pad(), self.target.eos())
        generated = self.model.generate(
            input_ids=padded,
            attention_mask=padded.ne(self.source.pad()).long(),
            max_new_tokens=longest_translation(self.options.search, padded.size(1), self.positions) + 1,
            output_scores=True,
            return_dict_in_generate=True,
        )
        rows = ([self.target[number] for number in row if number not in marks] for row in generated.sequences.tolist())
        return [[Hypothesis(*row)] for row in zip(rows, generated.sequences_scores.tolist(), strict=True)]

    def _logits(self, source: Tensor, lengths: Tensor, previous: Tensor) -> Tensor:
        # FSMT masks later words only without a cache.
        logits: Tensor = self.model(input_ids=source, decoder_input_ids=previous, use_cache=False).logits
        return logits


def longest_translation(search: Mapping[str, Any], length: int, positions: int) -> int:
    """Return the maximum length of fairseq's translation of a source of ``length`` tokens, its end included."""
    return min(int(search["max_len_a"] * length + search["max_len_b"]), positions - 1)
