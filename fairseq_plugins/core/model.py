"""The translation model and its family."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModelBase
from omegaconf import II
from torch import Tensor, nn

from fairseq_plugins.core import linear_maps, solver  # noqa: F401  (they register parts)
from fairseq_plugins.core.config import SIZE_FIELDS, STOCK
from fairseq_plugins.core.designed import DesignedModel
from fairseq_plugins.core.fields import Family, Size
from fairseq_plugins.core.method import Stack
from fairseq_plugins.core.stacks import Decoder, Encoder
from fairseq_plugins.errors import flag

MODEL_NAME = "deep_transformer"
# Suffix of an architecture: the fairseq architecture whose sizes it takes.
SIZES = {
    "": "transformer",
    "_iwslt_de_en": "transformer_iwslt_de_en",
    "_wmt_en_de": "transformer_wmt_en_de",
    "_wmt_en_de_big": "transformer_wmt_en_de_big",
}
# Suffix: encoder and decoder layers. The depths of the papers' tables.
DEPTHS: dict[str, tuple[int, int] | None] = {
    "": None,
    "_12": (12, 12),
    "_18": (18, 18),
    "_60_12": (60, 12),
    "_100": (100, 100),
}
LIMITS = ("max_source_positions", "max_target_positions")
TRANSLATION = Family(
    model=MODEL_NAME,
    suffix="_transformer",
    class_name="DeepTransformerConfig",
    stacks=tuple(Stack),
    stock=tuple(
        (name, kind, field(default=II(f"task.{name}")) if name in LIMITS else stock) for name, kind, stock in STOCK
    ),
    presettable=SIZE_FIELDS,
    problems=lambda config: [
        f"{flag(name)} is a setting of language models"
        for name in ("adaptive_input", "char_inputs")
        if getattr(config, name, False)
    ],
    sizes={suffix: Size(stock) for suffix, stock in SIZES.items()},
    fallbacks=dict.fromkeys(LIMITS, 1024),  # fairseq's DEFAULT_MAX_SOURCE_POSITIONS and DEFAULT_MAX_TARGET_POSITIONS
    depths={
        suffix: dict(zip(("encoder_layers", "decoder_layers"), depth or (), strict=False))
        for suffix, depth in DEPTHS.items()
    },
)


class DeepTransformerModel(DesignedModel, TransformerModelBase):
    """A stock fairseq Transformer whose layers are built from a design."""

    family = TRANSLATION

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> DeepTransformerModel:
        """Build from a flat configuration; raises the errors of :meth:`parse_config`."""
        _, nested = cls.parse_config(cfg)
        model = super().build_model(nested, task)
        model.init_weights()
        return model

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Dictionary, embed_tokens: nn.Module) -> Encoder:
        """Build the design's encoder."""
        return Encoder(cfg, src_dict, embed_tokens, cfg.designs[Stack.ENCODER])

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Dictionary, embed_tokens: nn.Module) -> Decoder:
        """Build the design's decoder."""
        return Decoder(cfg, tgt_dict, embed_tokens, cfg.designs[Stack.DECODER], no_encoder_attn=cfg.no_cross_attention)

    def forward(
        self, src_tokens: Tensor, src_lengths: Tensor | None, prev_output_tokens: Tensor, **options: Any
    ) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        """Translate under teacher forcing.

        Sources ``(B, S)`` are left-padded, lengths ``(B)``; the target ``(B, T)`` is shifted right. Returns logits
        ``(B, T, V)`` and a dictionary with ``attn`` and ``inner_states``.
        """
        self.see_first_batch(src_tokens, src_lengths, prev_output_tokens)
        return super().forward(src_tokens, src_lengths, prev_output_tokens, **options)
