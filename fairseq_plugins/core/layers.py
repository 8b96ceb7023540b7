"""The encoder layer and the decoder layer: fairseq's layers, assembled from the parts of a design.

Every stock parameter keeps its name. Each norm exists only where the design has one, a residual connection only with
its sub-layer, so that no parameter is ever without a gradient. The first norm of a sub-layer has fairseq's name at any
place; a later one is named after its place.

Legend: T time, S source time, B batch, C width.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from torch import Tensor, nn

from fairseq_plugins.core.attention import Attention, AttentionPlan
from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, Site
from fairseq_plugins.core.norm import NormPlace, layer_norm, norm_inside, placed_norms
from fairseq_plugins.core.sub_layers import LAST_MAP, NORM_OF, RESIDUAL_OF


def contiguous_output(x: Tensor) -> Tensor:
    """Make the output of a layer contiguous: fairseq transposes its embedding, and sums keep its strides.

    A linear map copies an input with such strides, keeps the copy, and adds its bias in an operation of its own. The
    first layer keeps them, as stock's does: other strides would round differently. So does a layer above a history that
    sums the embedding state by state.
    """
    return x.contiguous()


class Carried(NamedTuple):
    """Tensors that cross layers besides their input; None if the design carries none.

    A layer takes them as its last arguments and returns them last, since activation checkpointing needs flat tensors.

    Attributes:
        self_logits: self-attention logits of the layer below.
        cross_logits: cross-attention logits of the layer below.
        extra: the extra streams, see :class:`~fairseq_plugins.core.residual.ExtraStreams`.
    """

    self_logits: Tensor | None = None
    cross_logits: Tensor | None = None
    extra: Tensor | None = None


class Layer(nn.Module):
    """Mixin of both kinds of layers. List it before the fairseq class among the bases."""

    design: StackDesign
    depth: int
    norm_names: dict[Site, dict[NormPlace, str]]
    """Names of the norms of each sub-layer by place, in the order of the forward pass, except one inside the branch."""

    if TYPE_CHECKING:  # fairseq's modules have no types

        def __getattr__(self, name: str) -> Any: ...

    def assemble(self, *sites: Site) -> None:
        """Add the design's norms, biases and residual connections to a layer that fairseq has built."""
        design = self.design
        norms = {site: placed_norms(design, site, self.depth) for site in sites}
        inside = {site: places.pop(NormPlace.INSIDE, None) for site, places in norms.items()}
        self.norm_names = {site: self._place_norms(site, norms.get(site, {})) for site in Site}
        design.parts[Axis.BIAS].build(self, design)
        for site, factory in inside.items():
            if factory is not None:
                owner, name = LAST_MAP[site]
                norm_inside(self.get_submodule(owner), name, factory, design)
        design.parts[Axis.REPARAM].build(self, design)  # last, since it takes the maps as they are
        for site, residual in design.parts[Axis.RESIDUAL].build(sites, self.depth, design).items():
            setattr(self, RESIDUAL_OF[site], residual)

    def _place_norms(self, site: Site, norms: dict[NormPlace, Any]) -> dict[NormPlace, str]:
        names: dict[NormPlace, str] = {}
        for place in NormPlace:
            if place in norms:
                names[place] = f"{site.value}_{place.value}_norm" if names else NORM_OF[site]
                if names[place] != NORM_OF[site] or norms[place] is not layer_norm:  # fairseq has built that one
                    setattr(self, names[place], norms[place](self.embed_dim))
        if not names:
            setattr(self, NORM_OF[site], None)
        return names

    def pre(self, site: Site, stream: Tensor, extra: Tensor | None) -> tuple[Tensor, Any]:
        """Begin a sub-layer: the residual connection's ``pre`` if there are extra streams, then the norm.

        Args:
            site: which sub-layer.
            stream: input of the sub-layer, ``(T, B, C)``.
            extra: the extra streams, or None if the stack has none.

        Returns:
            the input of the branch, ``(T, B, C)``, and the value that :meth:`post` takes as ``extra``.
        """
        if extra is not None:
            stream, extra = getattr(self, RESIDUAL_OF[site]).pre(stream, extra)
        norms = self.norm_names[site]
        return getattr(self, norms[NormPlace.BEFORE])(stream) if NormPlace.BEFORE in norms else stream, extra

    def post(
        self, site: Site, output: Tensor, stream: Tensor, layer_input: Tensor, extra: Any
    ) -> tuple[Tensor, Tensor | None]:
        """End a sub-layer: dropout, norm on the branch, residual connection, norm after the sum.

        Args:
            site: which sub-layer.
            output: output of the last map of the sub-layer, ``(T, B, C)``, the shape of the others too.
            stream: input of the sub-layer, before any LayerNorm.
            layer_input: input of the layer, before any LayerNorm.
            extra: the second result of :meth:`pre`; None if the stack has no extra streams.

        Returns:
            the stream and the extra streams after the sub-layer.
        """
        residual, norms = getattr(self, RESIDUAL_OF[site]), self.norm_names[site]
        branch = self.dropout_module(output)
        if NormPlace.BRANCH in norms:
            branch = getattr(self, norms[NormPlace.BRANCH])(branch)
        if extra is not None:
            extra = residual.post(branch, stream, extra)
        x = residual(branch, stream, layer_input)
        if NormPlace.AFTER in norms:
            x = residual.after_norm(getattr(self, norms[NormPlace.AFTER])(x), layer_input)
        return x, extra

    def feed_forward(self, x: Tensor) -> Tensor:
        """Map ``(T, B, C)`` to the output of the feed-forward sub-layer."""
        return self.fc2(self.activation_dropout_module(self.activation_fn(self.fc1(x))))


class EncoderLayer(Layer, TransformerEncoderLayerBase):
    """Self-attention and feed-forward. ``cfg`` is fairseq's nested ``TransformerConfig``; depth counts from 1."""

    def __init__(self, cfg: Any, design: StackDesign, depth: int) -> None:
        # build_self_attention runs inside the stock constructor and needs the design; a plain attribute may be
        # set before nn.Module's constructor.
        self.design, self.depth = design, depth
        super().__init__(cfg)
        self.assemble(Site.SELF, Site.FFN)

    def build_self_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        """Build the design's attention instead of fairseq's."""
        build = self.design.parts[Axis.ATTENTION].build(self.depth, self.design).encoder_self
        return build(embed_dim, cfg.encoder.attention_heads, dropout=cfg.attention_dropout, self_attention=True)

    def forward(
        self, x: Tensor, encoder_padding_mask: Tensor | None, *below: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Encode ``x`` ``(T, B, C)``, whose padding mask ``(B, T)`` is true for pads.

        ``below`` is :class:`Carried`, from the layer below. Returns the output ``(T, B, C)``, then :class:`Carried` for
        the layer above.
        """
        layer_input = x
        carried = Carried(*below)
        extra = carried.extra

        seen, extra = self.pre(Site.SELF, x, extra)
        output, _, logits = self.self_attn.attend(
            seen, seen, encoder_padding_mask, query_padding_mask=encoder_padding_mask, prev_logits=carried.self_logits
        )
        x, extra = self.post(Site.SELF, output, x, layer_input, extra)

        seen, extra = self.pre(Site.FFN, x, extra)
        x, extra = self.post(Site.FFN, self.feed_forward(seen), x, layer_input, extra)
        return contiguous_output(x), *Carried(self_logits=logits, extra=extra)


class DecoderLayer(Layer, TransformerDecoderLayerBase):
    """Self-attention, cross-attention and feed-forward; the first two may be absent."""

    def __init__(self, cfg: Any, design: StackDesign, depth: int, no_encoder_attn: bool = False) -> None:
        self.design, self.depth = design, depth
        self.plan: AttentionPlan = design.parts[Axis.ATTENTION].build(depth, design)
        super().__init__(cfg, no_encoder_attn)
        if self.plan.decoder_self is None:
            self.self_attn = None
        present = [Site.SELF] if self.self_attn is not None else []
        present += [Site.CROSS] if self.encoder_attn is not None else []
        self.assemble(*present, Site.FFN)

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
        *below: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        """Decode.

        Args:
            x: ``(T, B, C)``.
            encoder_out: ``(S, B, C)``.
            encoder_padding_mask: ``(B, S)``, true for pads.
            incremental_state: fairseq's decoding cache, or None.
            self_attn_mask: ``(T, T)``, minus infinity above the diagonal.
            self_attn_padding_mask: ``(B, T)``, true for pads.
            need_attn: return the cross-attention weights of each head.
            below: :class:`Carried`, from the layer below.

        Returns:
            output ``(T, B, C)``; weights ``(H, B, T, S)`` or None; then :class:`Carried` for the layer above.
        """
        layer_input = x
        weights: Tensor | None = None
        carried = Carried(*below)
        self_logits, cross_logits, extra = carried.self_logits, carried.cross_logits, carried.extra

        if self.self_attn is not None:
            seen, extra = self.pre(Site.SELF, x, extra)
            output, _, self_logits = self.self_attn.attend(
                seen,
                seen,
                self_attn_padding_mask,
                query_padding_mask=self_attn_padding_mask,
                future_mask=self_attn_mask,
                incremental_state=incremental_state,
                prev_logits=self_logits,
            )
            x, extra = self.post(Site.SELF, output, x, layer_input, extra)

        if self.encoder_attn is not None and encoder_out is not None:
            seen, extra = self.pre(Site.CROSS, x, extra)
            output, weights, cross_logits = self.encoder_attn.attend(
                seen,
                encoder_out,
                encoder_padding_mask,
                query_padding_mask=self_attn_padding_mask,
                future_mask=self_attn_mask,
                incremental_state=incremental_state,
                need_weights=need_attn or (not self.training and self.need_attn),
                need_head_weights=need_attn,
                prev_logits=cross_logits,
            )
            x, extra = self.post(Site.CROSS, output, x, layer_input, extra)

        seen, extra = self.pre(Site.FFN, x, extra)
        x, extra = self.post(Site.FFN, self.feed_forward(seen), x, layer_input, extra)
        return contiguous_output(x), weights, *Carried(self_logits=self_logits, cross_logits=cross_logits, extra=extra)
