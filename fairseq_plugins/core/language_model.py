"""The language model: a decoder without cross-attention, for fairseq's ``language_modeling`` task.

Embeddings and output layers are those of stock ``transformer_lm``: one table, or the adaptive input and softmax of
``transformer_lm_wiki103`` (Baevski and Auli, ICLR 2019, https://arxiv.org/abs/1809.10853).
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from fairseq.data import Dictionary
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig
from fairseq.modules import AdaptiveInput
from torch import Tensor, nn

from fairseq_plugins.core.config import DROPOUTS, SIZES
from fairseq_plugins.core.designed import DesignedModel
from fairseq_plugins.core.fields import Family, Size, flat_fields
from fairseq_plugins.core.method import Stack
from fairseq_plugins.core.stacks import Decoder
from fairseq_plugins.errors import flag


def _enwik8(layers: int, width: int) -> Size:
    """A character-level model of the ReZero paper (UAI 2021, https://arxiv.org/abs/2003.04887) on enwik8."""
    shape = {"decoder_layers": layers, "decoder_embed_dim": width, "decoder_ffn_embed_dim": 4 * width}
    dropouts = {name: 0.2 for name in ("dropout", "attention_dropout", "activation_dropout")}
    return Size("transformer_lm", {**shape, **dropouts, "decoder_attention_heads": 2, "activation_fn": "gelu"})


def _complete(values: Namespace) -> None:
    """Set the values that fairseq's builder sets, and an encoder without layers that matches the decoder."""
    if values.max_target_positions is None:
        values.max_target_positions = values.tokens_per_sample
    values.checkpoint_activations = values.checkpoint_activations or values.offload_activations
    values.encoder_embed_dim = values.decoder_embed_dim
    values.encoder_attention_heads = values.decoder_attention_heads


def cutoffs(text: str | None) -> tuple[int, ...] | None:
    """Read ``20000,60000`` as increasing numbers; None without a text.

    Raises:
        ValueError: it is not such a list.
    """
    if text is None:
        return None
    numbers = tuple(int(number) for number in text.split(","))
    if list(numbers) != sorted(set(numbers)) or numbers[0] < 1:
        raise ValueError(text)
    return numbers


def _problems(config: Namespace) -> list[str]:
    """Problems of embedding and output projection, of each and with each other."""
    problems = []
    for name in ("adaptive_input_cutoff", "adaptive_softmax_cutoff"):
        try:
            cutoffs(getattr(config, name))
        except ValueError:
            problems.append(f"{flag(name)} takes increasing numbers such as 20000,60000, not '{getattr(config, name)}'")
    if config.adaptive_input and config.adaptive_input_cutoff is None:
        problems.append("--adaptive-input needs --adaptive-input-cutoff, for instance 20000,60000")
    pairs = ("adaptive_input_factor", "adaptive_softmax_factor"), ("adaptive_input_cutoff", "adaptive_softmax_cutoff")
    alike = all(getattr(config, first) == getattr(config, second) for first, second in pairs)
    one_width = config.decoder_input_dim == config.decoder_output_dim
    adaptive_output = config.adaptive_softmax_cutoff is not None
    if config.tie_adaptive_weights and not (config.adaptive_input and adaptive_output and alike and one_width):
        problems.append(
            "--tie-adaptive-weights needs --adaptive-input and --adaptive-softmax-cutoff, with equal cutoffs, factors "
            "and widths"
        )
    if config.share_decoder_input_output_embed and (config.adaptive_input or adaptive_output or not one_width):
        problems.append(
            "--share-decoder-input-output-embed needs one embedding table: neither --adaptive-input nor "
            "--adaptive-softmax-cutoff, and --decoder-input-dim equal to --decoder-output-dim"
        )
    return problems


LANGUAGE_MODEL = Family(
    model="deep_transformer_lm",
    suffix="_transformer_lm",
    class_name="DeepTransformerLanguageModelConfig",
    stacks=(Stack.DECODER,),
    stock=flat_fields(TransformerLanguageModelConfig),
    presettable=(
        *(name for name in SIZES if name.startswith("decoder")),
        *DROPOUTS,
        *("activation_fn", "no_decoder_final_norm", "adaptive_input", "adaptive_input_cutoff"),
        *("adaptive_softmax_cutoff", "adaptive_softmax_dropout", "tie_adaptive_weights", "tie_adaptive_proj"),
    ),
    sizes={
        "": Size("transformer_lm"),
        "_big": Size("transformer_lm_big"),
        "_gpt": Size("transformer_lm_gpt"),
        "_wiki103": Size("transformer_lm_wiki103"),
        "_enwik8_12": _enwik8(12, 512),
        "_enwik8_64": _enwik8(64, 256),
        "_enwik8_128": _enwik8(128, 256),
    },
    fallbacks={"add_bos_token": False, "tokens_per_sample": 1024, "max_target_positions": None, "tpu": False},
    fixed={"encoder_layers": 0, "no_cross_attention": True},
    complete=_complete,
    problems=_problems,
)


class DeepTransformerLanguageModel(DesignedModel, TransformerLanguageModel):
    """Stock fairseq's Transformer language model whose layers are built from a design."""

    family = LANGUAGE_MODEL

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> DeepTransformerLanguageModel:
        """Build from a flat configuration; raises the errors of :meth:`parse_config`."""
        flat, nested = cls.parse_config(cfg)
        if flat.decoder_layers_to_keep:
            nested.decoder.layers = len(flat.decoder_layers_to_keep.split(","))
        dictionary: Dictionary = task.source_dictionary
        embed_tokens: nn.Module
        # The same steps as in fairseq's builder, which has no separate method for them.
        if flat.adaptive_input:
            embed_tokens = AdaptiveInput(
                len(dictionary),
                dictionary.pad(),
                flat.decoder_input_dim,
                flat.adaptive_input_factor,
                flat.decoder_embed_dim,
                list(cutoffs(flat.adaptive_input_cutoff) or ()),
            )
        else:
            embed_tokens = cls.build_embedding(flat, dictionary, flat.decoder_input_dim)
        design = nested.designs[Stack.DECODER]
        model = cls(Decoder(nested, task.target_dictionary, embed_tokens, design, no_encoder_attn=True))
        model.init_weights()
        return model

    def forward(self, src_tokens: Tensor, **kwargs: Any) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        """Predict the next token at every position of ``(B, T)``; further arguments are those of fairseq's decoder.

        Returns logits ``(B, T, V)``, or features ``(B, T, C)`` if the softmax is adaptive; and a dictionary.
        """
        self.see_first_batch(src_tokens)
        return self.decoder(src_tokens, **kwargs)
