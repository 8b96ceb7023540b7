"""A model of this package as one of CTranslate2, through ``ctranslate2.converters`` and its specifications.

CTranslate2 knows a LayerNorm before the branch or after the sum, and plain sums. A design's additions are folded
into the weights:

* a scale of the stream, by :mod:`fairseq_plugins.checkpoints.fold`;
* a scale a of the branch: ``a (W x + b)`` is ``(a W) x + a b`` in the last map of the branch;
* ``scale * x + shift`` in the place of a norm, with two scalars: ``W (scale x + shift 1) + b`` is
  ``(scale W) x + (b + shift W 1)`` in every map that reads it.

A sub-layer without any norm would lose its skip, because CTranslate2 adds the stream only where there is a norm
(``src/layers/transformer.cc`` and ``attention.cc`` of 4.8). It gets an RMS norm ``gamma x / sqrt(mean(x^2) + epsilon)``
with gamma = 2^15 and epsilon = 2^30, which is ``x (1 - mean(x^2) / 2^31 + ...)``: the relative error is below float32's
rounding, 2^-24, while mean(x^2) < 128, and 2^15 is a number in half precision. Epsilon is one number for the whole
model, so a model has either such norms or LayerNorms.
"""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from ctranslate2.converters import utils
from ctranslate2.converters.converter import Converter
from ctranslate2.specs import common_spec, transformer_spec
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_plugins.checkpoints.fold import build, fold, obstacles
from fairseq_plugins.core.attention import Attention
from fairseq_plugins.core.history import LastState
from fairseq_plugins.core.linear_maps import affine_form
from fairseq_plugins.core.method import Axis, Site
from fairseq_plugins.core.norm import AffineNorm, NormPlace, ScaledLayerNorm
from fairseq_plugins.core.sub_layers import SubLayer, sub_layers
from fairseq_plugins.errors import UserError, flag
from fairseq_plugins.tools.translator.engines import PAD
from fairseq_plugins.tools.translator.model import as_ours

ACTIVATIONS = {
    "relu": common_spec.Activation.RELU,
    "gelu": common_spec.Activation.GELU,
    "gelu_accurate": common_spec.Activation.GELUTanh,
    "gelu_fast": common_spec.Activation.GELUTanh,
    "swish": common_spec.Activation.SWISH,
}
IDENTITY_GAMMA, IDENTITY_EPSILON = 2.0**15, 2.0**30
PARTS = {Site.SELF: "self_attention", Site.CROSS: "attention", Site.FFN: "ffn"}
"""CTranslate2's name of each site."""
LEARNED_EPSILON = 1e-5
"""The epsilon of fairseq's LayerNorm."""
ONE = torch.ones(1)


class Affine(NamedTuple):
    """``scale * x + shift``, each ``(1)``."""

    scale: Tensor = ONE
    shift: Tensor = torch.zeros(1)


PLAIN = Affine()


class ModelConverter(Converter):
    """Converts a model of this package, in evaluation mode and without :func:`obstacles_to_export`."""

    def __init__(self, model: Any) -> None:
        self.model = model

    @torch.no_grad()
    def _load(self) -> Any:
        """Return the specification, which the base class writes."""
        model = self.model
        spec = transformer_spec.TransformerSpec(*(_new_stack(stack) for _, stack in model.stacks()))
        tops = [stack.layer_norm for _, stack in model.stacks()]
        encoder, decoder = (Affine(*top.affine()) if isinstance(top, AffineNorm) else PLAIN for top in tops)
        for name, stack in model.stacks():
            _set_ends(getattr(spec, name), stack)
        for sub in sub_layers(model):
            _set_sub_layer(getattr(getattr(spec, sub.stack).layer[sub.number], PARTS[sub.site]), sub, encoder)
        _set_linear(spec.decoder.projection, model.decoder.output_projection, decoder)
        # Tokens in the order of their numbers.
        source, target = (
            [PAD if token == words.pad_word else token for token in words.symbols]
            for words in (model.encoder.dictionary, model.decoder.dictionary)
        )
        spec.register_source_vocabulary(source)
        spec.register_target_vocabulary(target)
        spec.config.decoder_start_token = spec.config.eos_token
        spec.config.add_source_eos = True
        spec.config.layer_norm_epsilon = LEARNED_EPSILON if has_layer_norms(model) else IDENTITY_EPSILON
        return spec


def without_scaled_streams(model: Any, options: dict[str, Any], path: Path) -> Any:
    """Return a model that computes the same, without scales of the stream; a UserError lists the obstacles."""
    if all(sub.residual.branch_scale() is not None for sub in sub_layers(model)):
        return model
    if problems := obstacles(model):
        raise UserError(problems)
    folded = fold(model, Namespace(**options))
    dictionaries = SimpleNamespace(
        source_dictionary=model.encoder.dictionary, target_dictionary=model.decoder.dictionary
    )
    return build(as_ours(folded.options), folded.weights, dictionaries, path)


def has_layer_norms(model: Any) -> bool:
    """Return whether there is any LayerNorm."""
    return any(isinstance(module, nn.LayerNorm) for module in model.modules())


def obstacles_to_export(model: Any) -> list[str]:
    """Return features of ``model`` that CTranslate2 lacks, except scaled streams, as far as the modules show.

    The comparison of both engines finds any other difference.
    """
    reasons = []
    for name, stack in model.stacks():
        subs = [sub for sub in sub_layers(model) if sub.stack == name]
        reasons += [f"{flag(axis.value)} {stack.design.choice(axis)}" for axis in _unknown_parts(stack, subs)]
        cfg = stack.cfg
        settings = {
            "an embedding that is not a table": affine_form(stack.embed_tokens) is None,
            "--no-token-positional-embeddings": stack.embed_positions is None,
            f"--activation-fn {cfg.activation_fn}": cfg.activation_fn not in ACTIVATIONS,
            "--adaptive-softmax-cutoff": getattr(stack, "adaptive_softmax", None) is not None,
            "stacks of two widths": cfg.encoder.embed_dim != cfg.decoder.embed_dim,
        }
        reasons += [setting for setting, unknown in settings.items() if unknown]
    if has_layer_norms(model) and not all(
        any(isinstance(norm, nn.LayerNorm) for norm in sub.norms.values()) for sub in sub_layers(model)
    ):
        reasons.append("sub-layers with a LayerNorm and others without (it has one epsilon for all)")
    return list(dict.fromkeys(reasons))


def _unknown_parts(stack: Any, subs: list[SubLayer]) -> Iterator[Axis]:
    # A layer of CTranslate2 reads only the layer below.
    if type(stack.history) is not LastState:
        yield Axis.LAYER_AGGREGATION
    if stack.solver is not None:
        yield Axis.SOLVER
    # CTranslate2 has one stream, to which branches are added.
    unknown = [sub for sub in subs if sub.residual.branch_scale() is None and sub.residual.stream_scale() is None]
    if unknown or stack.side_stream is not None:
        yield Axis.RESIDUAL
    # Each sub-layer has one LayerNorm, before all branches of a stack or after all sums, and none inside a branch.
    places = {tuple(sub.norms) for sub in subs}
    norms = [norm for sub in subs for norm in sub.norms.values()] + [stack.layer_norm]
    if not all(norm is None or isinstance(norm, (AffineNorm, nn.LayerNorm)) for norm in norms):
        replaced = stack.design.choice(Axis.NORM_TYPE) != "layer_norm"
        yield Axis.NORM_TYPE if replaced else Axis.NORM_POSITION
    unreadable = {sub.site for sub in subs if any(affine_form(linear) is None for linear in _maps(sub))}
    # Another attention has changed the maps of attentions, else a norm is before them.
    of_attention = unreadable - {Site.FFN} if stack.design.choice(Axis.ATTENTION) != "softmax" else set()
    if unreadable - of_attention or len(places) > 1 or any(len(p) > 1 or NormPlace.BRANCH in p for p in places):
        yield Axis.NORM_POSITION
    # Attention is softmax attention, and each layer of a decoder attends to the source.
    attentions = [getattr(sub.layer, sub.site.value) for sub in subs if sub.site is not Site.FFN]
    reads_source = Site.CROSS in {sub.site for sub in subs} or not hasattr(stack, "output_projection")
    are_softmax = all(
        isinstance(attention, Attention)
        and type(attention).attend is Attention.attend
        and type(attention).forward is MultiheadAttention.forward
        and attention.bias_k is None
        and not attention.add_zero_attn
        for attention in attentions
    )
    if not reads_source or of_attention or not are_softmax:
        yield Axis.ATTENTION


def _maps(sub: SubLayer) -> list[Any]:
    """Return the linear maps of a sub-layer that has stock attention; the last map ends the branch."""
    if sub.site is Site.FFN:
        return [sub.layer.fc1, sub.layer.fc2]
    attention = getattr(sub.layer, sub.site.value)
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    return [getattr(attention, name) for name in names if hasattr(attention, name)]


def _new_stack(stack: Any) -> Any:
    """Return the empty specification of a stack."""
    norms, has_top = has_layer_norms(stack.layers), isinstance(stack.layer_norm, nn.LayerNorm)
    first = stack.layers[0]
    is_decoder = hasattr(stack, "output_projection")
    make = transformer_spec.TransformerDecoderSpec if is_decoder else transformer_spec.TransformerEncoderSpec
    # The mean of all heads is the attention of an alignment.
    further = {"project_in_out": stack.project_in_dim is not None, "alignment_heads": 0} if is_decoder else {}
    return make(
        len(stack.layers),
        first.self_attn.num_heads,
        pre_norm=not norms or NormPlace.BEFORE in first.norm_names[Site.FFN],
        no_final_norm=not has_top,
        activation=ACTIVATIONS[stack.cfg.activation_fn],
        layernorm_embedding=stack.layernorm_embedding is not None,
        rms_norm=not norms,
        **further,
    )


def _set_ends(spec: Any, stack: Any) -> None:
    """Set embeddings, positions, and the norms around the layers."""
    embeddings = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
    _set_linear(embeddings, stack.embed_tokens)
    spec.scale_embeddings = stack.embed_scale
    positions = stack.embed_positions
    table = positions.weight if isinstance(positions, nn.Embedding) else positions.weights
    spec.position_encodings.encodings = _array(table[positions.padding_idx + 1 :])
    if isinstance(stack.layer_norm, nn.LayerNorm):
        _set_norm(spec.layer_norm, stack.layer_norm)
    if stack.layernorm_embedding is not None:
        _set_norm(spec.layernorm_embedding, stack.layernorm_embedding)
    if getattr(stack, "project_in_dim", None) is not None:
        _set_linear(spec.project_in, stack.project_in_dim)
        _set_linear(spec.project_out, stack.project_out_dim)


def _set_sub_layer(spec: Any, sub: SubLayer, encoder: Affine) -> None:
    """Set the weights of a sub-layer; ``encoder`` replaces the norm on top of the encoder."""
    [norm] = sub.norms.values() or [None]
    if isinstance(norm, nn.LayerNorm):
        _set_norm(spec.layer_norm, norm)
    else:
        spec.layer_norm.gamma = _array(torch.full((sub.layer.embed_dim,), IDENTITY_GAMMA))
    stream = Affine(*norm.affine()) if isinstance(norm, AffineNorm) else PLAIN
    branch = sub.residual.branch_scale()
    assert branch is not None
    *first, last = _maps(sub)
    if sub.site is Site.FFN:
        _set_linear(spec.linear_0, first[0], stream)
        _set_linear(spec.linear_1, last, branch=branch)
        return
    parts = [common_spec.LinearSpec() for _ in first]
    # Keys and values of the cross-attention read the encoder.
    readers = [stream, stream, stream] if sub.site is Site.SELF else [stream, encoder, encoder]
    for part, linear, reader in zip(parts, first, readers, strict=True):
        _set_linear(part, linear, reader)
    if sub.site is Site.SELF:
        utils.fuse_linear(spec.linear[0], parts)
    else:
        spec.linear[0].weight, spec.linear[0].bias = parts[0].weight, parts[0].bias
        utils.fuse_linear(spec.linear[1], parts[1:])
    _set_linear(spec.linear[-1], last, branch=branch)


def _set_norm(spec: Any, norm: Any) -> None:
    scale = norm.scale.number if isinstance(norm, ScaledLayerNorm) else 1.0
    spec.gamma, spec.beta = _array(norm.weight * scale), _array(norm.bias * scale)


def _set_linear(spec: Any, linear: Any, read: Affine = PLAIN, branch: Tensor = ONE) -> None:
    """Write ``branch * (W (scale x + shift) + b)``, folded in float64."""
    form = affine_form(linear)
    assert form is not None  # see _unknown_parts
    weight, constant = form[0].double(), form[1]
    bias = 0 if constant is None else constant.double()
    spec.weight = _array(branch.double().unsqueeze(1) * read.scale.double() * weight)
    folded = branch.double() * (bias + read.shift.double() * weight.sum(dim=1))
    if constant is not None or bool(folded.any()):
        spec.bias = _array(folded)


def _array(tensor: Tensor) -> Any:
    """Return a copy in float32: the converter quantises arrays in place, and the model is still needed."""
    return tensor.float().numpy().copy()
