"""The encoder layer and the decoder layer: fairseq's layers, assembled from the parts of a design.

Every stock parameter keeps its name. Every sub-layer has the same lines: norm before the branch; branch with its
dropout; norm on the branch; residual connection; norm after the sum. Each norm exists only where the design has one,
and a residual connection only with its sub-layer, so that no parameter is ever without a gradient.

The first norm of a sub-layer has fairseq's name, whatever its place; a later one is named after its place.

Legend: T time, S source time, B batch, C width.
"""

# No `from __future__ import annotations`: TorchScript reads the annotations of module attributes as types.

from typing import TYPE_CHECKING, Any

from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from torch import Tensor, nn

from fairseq_plugins.core.attention import Attention
from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.dropout import lean
from fairseq_plugins.core.method import Site
from fairseq_plugins.core.norm import NormPlace, layer_norm, norm_inside
from fairseq_plugins.core.sub_layers import LAST_MAP, LATER_PLACES, NORM_OF


def _remove(layer: nn.Module, *names: str) -> None:
    """Remove modules that the stock constructor has built."""
    for name in names:
        setattr(layer, name, None)


def in_one_piece(x: Tensor) -> Tensor:
    """Copy the output of a layer that has its input's strides: fairseq transposes its embedding, and sums keep strides.

    A linear map copies an input with such strides, keeps the copy, and adds its bias in an operation of its own. The
    first layer keeps them, as stock's does: other strides would round differently. So does a layer above a history that
    sums the embedding state by state.
    """
    return x.contiguous()


class Layer(nn.Module):
    """Mixin of both kinds of layers. List it before the fairseq class among the bases."""

    # The place of the first norm of each sub-layer. TorchScript drops a branch that a constant disables.
    __constants__ = [f"norm_{place.value}_{site.value}" for place in NormPlace for site in Site]

    if TYPE_CHECKING:  # fairseq's modules have no types; TorchScript would take these for its own
        design: StackDesign
        depth: int

        def __getattr__(self, name: str) -> Any: ...

    def put_together(self, *sites: Site) -> None:
        """Add the design's norms, biases and residual connections to a layer that fairseq has built."""
        design = self.design
        for name in ("dropout_module", "activation_dropout_module"):
            setattr(self, name, lean(getattr(self, name)))
        norms = {site: dict(design.norms(site, self.depth)) for site in sites}
        inside = {site: places.pop(NormPlace.INSIDE, None) for site, places in norms.items()}
        for site in Site:
            self._place_norms(site, norms.get(site, {}))
        design.set_biases(self)
        for site, factory in inside.items():
            if factory is not None:
                owner, name = LAST_MAP[site]
                norm_inside(self.get_submodule(owner), name, factory, design)
        design.set_weight_forms(self)
        residuals = design.residuals(sites, self.depth)
        for site in Site:
            setattr(self, f"{site.value}_residual", residuals.get(site))

    def _place_norms(self, site: Site, norms: dict[NormPlace, Any]) -> None:
        first = next((place for place in NormPlace if place in norms), None)
        for place in NormPlace:
            setattr(self, f"norm_{place.value}_{site.value}", place is first)
        if first is None:
            _remove(self, NORM_OF[site])
        elif norms[first] is not layer_norm:  # fairseq has built that one
            setattr(self, NORM_OF[site], norms[first](self.embed_dim))
        for place in LATER_PLACES:
            later = norms[place](self.embed_dim) if place in norms and place is not first else None
            setattr(self, f"{site.value}_{place.value}_norm", later)

    # The three methods below repeat the same lines for each site: TorchScript does not accept a module as an argument.

    def join_self_attn(
        self, branch: Tensor, stream: Tensor, layer_input: Tensor, side: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """End a sub-layer: norm on the branch, residual connection, norm after the sum.

        Args:
            branch: output of the sub-layer after its dropout, ``(T, B, C)``, the shape of the others too.
            stream: input of the sub-layer, before any LayerNorm.
            layer_input: input of the layer, before any LayerNorm.
            side: the side stream, if the stack has one.

        Returns:
            the stream and the side stream after the sub-layer.
        """
        if self.norm_branch_self_attn:
            branch = self.self_attn_layer_norm(branch)
        if self.self_attn_branch_norm is not None:
            branch = self.self_attn_branch_norm(branch)
        if side is not None:
            side = self.self_attn_residual.carry(branch, stream, side)
        x = self.self_attn_residual(branch, stream, layer_input)
        if self.norm_after_self_attn:
            x = self.self_attn_residual.after_norm(self.self_attn_layer_norm(x), layer_input)
        if self.self_attn_after_norm is not None:
            x = self.self_attn_residual.after_norm(self.self_attn_after_norm(x), layer_input)
        return x, side

    def join_encoder_attn(
        self, branch: Tensor, stream: Tensor, layer_input: Tensor, side: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """See :meth:`join_self_attn`."""
        if self.norm_branch_encoder_attn:
            branch = self.encoder_attn_layer_norm(branch)
        if self.encoder_attn_branch_norm is not None:
            branch = self.encoder_attn_branch_norm(branch)
        if side is not None:
            side = self.encoder_attn_residual.carry(branch, stream, side)
        x = self.encoder_attn_residual(branch, stream, layer_input)
        if self.norm_after_encoder_attn:
            x = self.encoder_attn_residual.after_norm(self.encoder_attn_layer_norm(x), layer_input)
        if self.encoder_attn_after_norm is not None:
            x = self.encoder_attn_residual.after_norm(self.encoder_attn_after_norm(x), layer_input)
        return x, side

    def feed_forward(self, x: Tensor, layer_input: Tensor, side: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Run the feed-forward sub-layer; returns the stream and, if there is one, the side stream after it."""
        branch = x if side is None else self.ffn_residual.read(x, side)
        branch = self.final_layer_norm(branch) if self.norm_before_ffn else branch
        branch = self.fc2(self.activation_dropout_module(self.activation_fn(self.fc1(branch))))
        branch = self.dropout_module(branch)
        if self.norm_branch_ffn:
            branch = self.final_layer_norm(branch)
        if self.ffn_branch_norm is not None:
            branch = self.ffn_branch_norm(branch)
        if side is not None:
            side = self.ffn_residual.carry(branch, x, side)
        x = self.ffn_residual(branch, x, layer_input)
        if self.norm_after_ffn:
            x = self.ffn_residual.after_norm(self.final_layer_norm(x), layer_input)
        if self.ffn_after_norm is not None:
            x = self.ffn_residual.after_norm(self.ffn_after_norm(x), layer_input)
        return x, side


class EncoderLayer(Layer, TransformerEncoderLayerBase):
    """Self-attention and feed-forward. ``cfg`` is fairseq's nested ``TransformerConfig``; depth counts from 1."""

    def __init__(self, cfg: Any, design: StackDesign, depth: int) -> None:
        # build_self_attention runs inside the stock constructor and needs the design; a plain attribute may be
        # set before nn.Module's constructor.
        self.design, self.depth = design, depth
        super().__init__(cfg)
        self.put_together(Site.SELF, Site.FFN)

    def build_self_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        """Build the design's attention instead of fairseq's."""
        return self.design.attention(self.depth).encoder_self(
            embed_dim, cfg.encoder.attention_heads, dropout=cfg.attention_dropout, self_attention=True
        )

    def forward(
        self,
        x: Tensor,
        encoder_padding_mask: Tensor | None,
        scores: Tensor | None = None,
        side: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Encode.

        Args:
            x: ``(T, B, C)``.
            encoder_padding_mask: ``(B, T)``, true for pads.
            scores: attention logits of the layer below.
            side: the side stream, if the stack has one.

        Returns:
            output ``(T, B, C)``, the logits for the layer above, and the side stream.
        """
        layer_input = x

        branch = x if side is None else self.self_attn_residual.read(x, side)
        branch = self.self_attn_layer_norm(branch) if self.norm_before_self_attn else branch
        branch, _, scores = self.self_attn.attend(
            query=branch,
            key=branch,
            key_padding_mask=encoder_padding_mask,
            query_padding_mask=encoder_padding_mask,
            future_mask=None,
            incremental_state=None,
            need_weights=False,
            need_head_weights=False,
            scores=scores,
        )
        x, side = self.join_self_attn(self.dropout_module(branch), x, layer_input, side)

        x, side = self.feed_forward(x, layer_input, side)
        return in_one_piece(x), scores, side


class DecoderLayer(Layer, TransformerDecoderLayerBase):
    """Self-attention, cross-attention and feed-forward; the first two may be absent."""

    def __init__(self, cfg: Any, design: StackDesign, depth: int, no_encoder_attn: bool = False) -> None:
        self.design, self.depth = design, depth
        self.plan = design.attention(depth)
        super().__init__(cfg, no_encoder_attn)
        if self.plan.decoder_self is None:
            _remove(self, "self_attn")
        present = [Site.SELF] if self.self_attn is not None else []
        present += [Site.CROSS] if self.encoder_attn is not None else []
        self.put_together(*present, Site.FFN)

    def build_self_attention(
        self, embed_dim: int, cfg: Any, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> nn.Module:
        """Build the design's attention; one that is removed too, since fairseq's constructor reads its head count."""
        build = self.plan.decoder_self or Attention
        return build(embed_dim, cfg.decoder.attention_heads, dropout=cfg.attention_dropout, self_attention=True)

    def build_encoder_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        """Build the design's cross-attention; keys and values have the encoder's width."""
        return self.plan.cross(
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
        side: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
        """Decode.

        Args:
            x: ``(T, B, C)``.
            encoder_out: ``(S, B, C)``.
            encoder_padding_mask: ``(B, S)``, true for pads.
            incremental_state: fairseq's decoding cache, or None.
            self_attn_mask: ``(T, T)``, minus infinity above the diagonal.
            self_attn_padding_mask: ``(B, T)``, true for pads.
            need_attn: return the cross-attention weights of each head.
            self_scores: self-attention logits of the layer below.
            cross_scores: cross-attention logits of the layer below.
            side: the side stream, if the stack has one.

        Returns:
            output ``(T, B, C)``; weights ``(H, B, T, S)`` or none; both kinds of logits for the layer above; the side
            stream.
        """
        layer_input = x
        weights: Tensor | None = None

        if self.self_attn is not None:
            branch = x if side is None else self.self_attn_residual.read(x, side)
            branch = self.self_attn_layer_norm(branch) if self.norm_before_self_attn else branch
            branch, weights, self_scores = self.self_attn.attend(
                query=branch,
                key=branch,
                key_padding_mask=self_attn_padding_mask,
                query_padding_mask=self_attn_padding_mask,
                future_mask=self_attn_mask,
                incremental_state=incremental_state,
                need_weights=False,
                need_head_weights=False,
                scores=self_scores,
            )
            x, side = self.join_self_attn(self.dropout_module(branch), x, layer_input, side)

        if self.encoder_attn is not None and encoder_out is not None:
            branch = x if side is None else self.encoder_attn_residual.read(x, side)
            branch = self.encoder_attn_layer_norm(branch) if self.norm_before_encoder_attn else branch
            branch, weights, cross_scores = self.encoder_attn.attend(
                query=branch,
                key=encoder_out,
                key_padding_mask=encoder_padding_mask,
                query_padding_mask=self_attn_padding_mask,
                future_mask=self_attn_mask,
                incremental_state=incremental_state,
                need_weights=need_attn or (not self.training and self.need_attn),
                need_head_weights=need_attn,
                scores=cross_scores,
            )
            x, side = self.join_encoder_attn(self.dropout_module(branch), x, layer_input, side)

        x, side = self.feed_forward(x, layer_input, side)
        return in_one_piece(x), weights, self_scores, cross_scores, side
