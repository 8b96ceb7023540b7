"""The encoder layer and the decoder layer: stock fairseq's, assembled from the parts of a design.

Every stock parameter keeps its name. A sub-layer is always the same lines: LayerNorm if it stands before; branch with
its dropout; LayerNorm if it stands on the branch; junction, then LayerNorm if it stands after. Junctions and
LayerNorms exist if and only if the sub-layer and the norm place do, so that no parameter is ever without a gradient.

Legend: T time, S source time, B batch, C width.
"""

# No `from __future__ import annotations`: TorchScript reads the annotations of module attributes as types.

from typing import Any, Final

from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from torch import Tensor, nn

from fairseq_plugins.core.attention import Attention
from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Site
from fairseq_plugins.core.norm import NormPlace

SUB_LAYER_NORMS = ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")
NORM_OF = dict(zip(Site, SUB_LAYER_NORMS, strict=True))
"""Name of the module at the norm place of each site."""


def _remove(layer: nn.Module, *names: str) -> None:
    """Take away modules that the stock constructor has built."""
    for name in names:
        setattr(layer, name, None)


def _place_norms(layer: nn.Module, place: NormPlace, width: int) -> None:
    """Take away the LayerNorms of the stock constructor, or put something in their place, as ``place`` says."""
    for name in SUB_LAYER_NORMS:
        if getattr(layer, name, None) is None:
            continue
        if place.nowhere:
            _remove(layer, name)
        elif place.module is not None:
            setattr(layer, name, place.module(width))


class EncoderLayer(TransformerEncoderLayerBase):
    """Self-attention and feed-forward. ``cfg`` is fairseq's nested ``TransformerConfig``; depth counts from 1."""

    norm_before: Final[bool]
    norm_after: Final[bool]
    norm_branch: Final[bool]

    def __init__(self, cfg: Any, design: StackDesign, depth: int) -> None:
        # build_self_attention runs inside the stock constructor and needs the design; a plain attribute may be
        # set before nn.Module's constructor.
        self.design, self.depth = design, depth
        super().__init__(cfg)
        self.norm_before, self.norm_after, self.norm_branch = design.norm[:3]
        _place_norms(self, design.norm, self.embed_dim)
        design.set_biases(self)
        junctions = design.residuals((Site.SELF, Site.FFN), depth)
        self.self_attn_residual = junctions[Site.SELF]
        self.ffn_residual = junctions[Site.FFN]

    def build_self_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        """The design's attention in the place of the stock one."""
        return self.design.attention(self.depth).encoder_self(
            embed_dim, cfg.encoder.attention_heads, dropout=cfg.attention_dropout, self_attention=True
        )

    def forward(
        self,
        x: Tensor,
        encoder_padding_mask: Tensor | None,
        scores: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Encode.

        Args:
            x: ``(T, B, C)``.
            encoder_padding_mask: ``(B, T)``, true for pads.
            scores: attention logits of the layer below.

        Returns:
            output ``(T, B, C)`` and the logits for the layer above.
        """
        layer_input = x

        branch = self.self_attn_layer_norm(x) if self.norm_before else x
        branch, _, scores = self.self_attn.attend(
            branch, branch, encoder_padding_mask, encoder_padding_mask, None, None, False, False, scores
        )
        branch = self.dropout_module(branch)
        branch = self.self_attn_layer_norm(branch) if self.norm_branch else branch
        x = self.self_attn_residual(branch, x, layer_input)
        if self.norm_after:
            x = self.self_attn_residual.after_norm(self.self_attn_layer_norm(x), layer_input)

        branch = self.final_layer_norm(x) if self.norm_before else x
        branch = self.fc2(self.activation_dropout_module(self.activation_fn(self.fc1(branch))))
        branch = self.dropout_module(branch)
        branch = self.final_layer_norm(branch) if self.norm_branch else branch
        x = self.ffn_residual(branch, x, layer_input)
        if self.norm_after:
            x = self.ffn_residual.after_norm(self.final_layer_norm(x), layer_input)
        return x, scores


class DecoderLayer(TransformerDecoderLayerBase):
    """Self-attention, cross-attention and feed-forward; the first two may be absent."""

    norm_before: Final[bool]
    norm_after: Final[bool]
    norm_branch: Final[bool]

    def __init__(self, cfg: Any, design: StackDesign, depth: int, no_encoder_attn: bool = False) -> None:
        self.design, self.depth = design, depth
        super().__init__(cfg, no_encoder_attn)
        self.norm_before, self.norm_after, self.norm_branch = design.norm[:3]
        if design.attention(depth).decoder_self is None:
            _remove(self, "self_attn", "self_attn_layer_norm")
        _place_norms(self, design.norm, self.embed_dim)
        design.set_biases(self)
        present = [Site.SELF] if self.self_attn is not None else []
        present += [Site.CROSS] if self.encoder_attn is not None else []
        junctions = design.residuals((*present, Site.FFN), depth)
        self.self_attn_residual: Any = junctions.get(Site.SELF)
        self.encoder_attn_residual: Any = junctions.get(Site.CROSS)
        self.ffn_residual = junctions[Site.FFN]

    def build_self_attention(
        self, embed_dim: int, cfg: Any, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> nn.Module:
        """The design's attention. The stock constructor reads the head count off it even where there is none."""
        build = self.design.attention(self.depth).decoder_self or Attention
        return build(embed_dim, cfg.decoder.attention_heads, dropout=cfg.attention_dropout, self_attention=True)

    def build_encoder_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        """The design's cross-attention; keys and values have the encoder's width."""
        return self.design.attention(self.depth).cross(
            embed_dim,
            cfg.decoder.attention_heads,
            kdim=cfg.encoder.embed_dim,
            vdim=cfg.encoder.embed_dim,
            dropout=cfg.attention_dropout,
            encoder_decoder_attention=True,
        )

    def forward(
        self,
        x: Tensor,
        encoder_out: Tensor | None,
        encoder_padding_mask: Tensor | None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None,
        self_attn_mask: Tensor | None,
        self_attn_padding_mask: Tensor | None,
        need_attn: bool,
        self_scores: Tensor | None = None,
        cross_scores: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """Decode.

        Args:
            x: ``(T, B, C)``.
            encoder_out: ``(S, B, C)``.
            encoder_padding_mask: ``(B, S)``, true for pads.
            incremental_state: fairseq's decoding cache, or none.
            self_attn_mask: ``(T, T)``, minus infinity above the diagonal.
            self_attn_padding_mask: ``(B, T)``, true for pads.
            need_attn: return the cross-attention weights of each head.
            self_scores: self-attention logits of the layer below.
            cross_scores: cross-attention logits of the layer below.

        Returns:
            output ``(T, B, C)``; weights ``(H, B, T, S)`` or none; both kinds of logits for the layer above.
        """
        layer_input = x
        weights: Tensor | None = None

        if self.self_attn is not None:
            branch = self.self_attn_layer_norm(x) if self.norm_before else x
            branch, weights, self_scores = self.self_attn.attend(
                branch,
                branch,
                self_attn_padding_mask,
                self_attn_padding_mask,
                self_attn_mask,
                incremental_state,
                False,
                False,
                self_scores,
            )
            branch = self.dropout_module(branch)
            branch = self.self_attn_layer_norm(branch) if self.norm_branch else branch
            x = self.self_attn_residual(branch, x, layer_input)
            if self.norm_after:
                x = self.self_attn_residual.after_norm(self.self_attn_layer_norm(x), layer_input)

        if self.encoder_attn is not None and encoder_out is not None:
            branch = self.encoder_attn_layer_norm(x) if self.norm_before else x
            branch, weights, cross_scores = self.encoder_attn.attend(
                branch,
                encoder_out,
                encoder_padding_mask,
                self_attn_padding_mask,
                self_attn_mask,
                incremental_state,
                need_attn or (not self.training and self.need_attn),
                need_attn,
                cross_scores,
            )
            branch = self.dropout_module(branch)
            branch = self.encoder_attn_layer_norm(branch) if self.norm_branch else branch
            x = self.encoder_attn_residual(branch, x, layer_input)
            if self.norm_after:
                x = self.encoder_attn_residual.after_norm(self.encoder_attn_layer_norm(x), layer_input)

        branch = self.final_layer_norm(x) if self.norm_before else x
        branch = self.fc2(self.activation_dropout_module(self.activation_fn(self.fc1(branch))))
        branch = self.dropout_module(branch)
        branch = self.final_layer_norm(branch) if self.norm_branch else branch
        x = self.ffn_residual(branch, x, layer_input)
        if self.norm_after:
            x = self.ffn_residual.after_norm(self.final_layer_norm(x), layer_input)
        return x, weights, self_scores, cross_scores
