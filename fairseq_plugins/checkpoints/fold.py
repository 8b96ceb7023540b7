"""Turn a checkpoint whose residual connections scale the stream into one of stock fairseq: ``fairseq-deep fold``.

A Post-LN sub-layer LN(s * z + F(z)), s fixed after training, computes what the plain LN(y + G(y)) computes with y = s *
z, if the module that makes z is multiplied by s and the columns of every map that reads z are divided by s. In all but
the first sub-layer of a stack a LayerNorm makes z, and its gain and bias take s. The first reads the embeddings: there
s goes into the LayerNorm of ``--layernorm-embedding`` or else into the token table, which is thereby untied from all
others, and into a table of learned positions. Liu et al., EMNLP 2020, https://arxiv.org/abs/2004.08249, appendix C,
whose formula for cross-attention also divides W_v; keys and values read the encoder, so that is a misprint. A factor of
the branch goes into the rows of its last map.

The options of the result are a plain dictionary, not the ``argparse.Namespace`` that stock fairseq would store: torch
2.6 and later refuse that class, and with it every stock checkpoint, where this package is not imported.
"""

import copy
import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, build_model
from fairseq.models.transformer import TransformerModelBase
from omegaconf import OmegaConf
from torch import Tensor

from fairseq_plugins.checkpoints.provenance import other_weights
from fairseq_plugins.core.config import plain_namespace
from fairseq_plugins.core.fields import OLD_NAMES
from fairseq_plugins.core.linear_maps import MatrixForm
from fairseq_plugins.core.method import Axis, Site, Stack, all_options
from fairseq_plugins.core.model import DeepTransformerModel
from fairseq_plugins.core.norm import NormPlace, ScaledLayerNorm, norms_always
from fairseq_plugins.core.residual import Residual
from fairseq_plugins.core.sub_layers import LAST_MAP, NORM_OF, sub_layers
from fairseq_plugins.errors import UserError, flag
from fairseq_plugins.files import require_no_input
from fairseq_plugins.integrity import (
    architecture,
    num_updates,
    read_checkpoint,
    without_training_state,
    write_checkpoint,
)
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.process import exit_code

STOCK_ARCH = "transformer"
LARGEST_DIFFERENCE = 1e-4
"""The most by which log-probabilities (natural log, float32) may differ. Rounding stays below 1e-5; more is a bug."""

# The maps of a sub-layer that read its stream. Keys and values of the cross-attention read the encoder instead.
READERS: Mapping[Site, tuple[str, ...]] = {
    Site.SELF: ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    Site.CROSS: ("encoder_attn.q_proj",),
    Site.FFN: ("fc1",),
}


@dataclass
class Folded:
    """A stock model: its options, and its weights by name in float32."""

    options: dict[str, Any]
    weights: dict[str, Tensor]

    def multiply(self, name: str, factor: Tensor) -> None:
        """Multiply the last dimension of a weight, in float64. Other names of the same tensor keep the old one."""
        self.weights[name] = (self.weights[name].double() * factor).float()


def obstacles(model: DeepTransformerModel) -> list[str]:
    """Return why parts of ``model`` have no counterpart in stock fairseq; the equivalence check catches the rest."""
    parts = [part for _, stack in model.stacks() for part in stack.design.parts.values() if part.no_fold]
    reasons = [f"{flag(part.axis.value)} {part.name} cannot be folded: {part.no_fold}" for part in parts]
    # The reason of a part covers its residual connections.
    reasons = reasons or [
        f"{sub.name}_residual cannot be folded: it does more than scale the stream and add the branch"
        for sub in sub_layers(model)
        if sub.residual.stream_scale() is None and sub.residual.branch_scale() is None
    ]
    return list(dict.fromkeys(reasons))


def fold(model: DeepTransformerModel, options: Namespace) -> Folded:
    """Fold every scale of ``model``, built from the flat ``options``; a UserError lists every obstacle."""
    if problems := obstacles(model):
        raise UserError(problems)
    names = tuple(name + "." for name, module in model.named_modules() if isinstance(module, (Residual, MatrixForm)))
    weights = {name: value.detach() for name, value in model.state_dict().items() if not name.startswith(names)}
    own = {axis.value for axis in Axis} | {option.name for option in all_options()} | OLD_NAMES.keys()
    stock = {name: value for name, value in vars(options).items() if name not in own}
    stock.update(_name=STOCK_ARCH, arch=STOCK_ARCH)
    folded = Folded(stock, weights)
    # Reparametrised maps and tables get their effective weights, and LayerNorms take their constant factor.
    for name, layer in model.named_modules():
        if isinstance(layer, MatrixForm):
            folded.weights[f"{name}.weight"] = layer.matrix().detach()
            if (constant := layer.constant()) is not None:
                folded.weights[f"{name}.bias"] = constant.detach()
        elif isinstance(layer, ScaledLayerNorm):
            for parameter, _ in layer.named_parameters():
                folded.multiply(f"{name}.{parameter}", torch.tensor(layer.scale.number, dtype=torch.float64))
    for name, stack in model.stacks():
        stock[f"{name}_normalize_before"] = norms_always(stack.design, NormPlace.BEFORE)
        stock[f"{name}_layers"] = len(stack.layers)
        stock[f"{name}_layers_to_keep"] = None
        _fold_stack(model, name, stack, folded)
    return folded


def _fold_stack(model: DeepTransformerModel, name: str, stack: Any, folded: Folded) -> None:
    # The LayerNorm that makes the stream; none where that is the embedding.
    maker = f"{name}.layernorm_embedding" if stack.layernorm_embedding is not None else ""
    for sub in sub_layers(model):
        if sub.stack != name:
            continue
        scale, factor = sub.residual.stream_scale(), sub.residual.branch_scale()
        if scale is None:
            assert factor is not None  # see obstacles
            last, scale = sub.beside(".".join(filter(None, LAST_MAP[sub.site]))), torch.ones(1)
            for parameter in (f"{last}.weight", f"{last}.bias"):
                rows = folded.weights[parameter].double()
                folded.weights[parameter] = (rows.t() * factor.detach().double()).t().float()
        scale = scale.detach().double()
        if bool((scale != 1).any()):
            for reader in READERS[sub.site]:
                folded.multiply(f"{sub.beside(reader)}.weight", 1 / scale)
            if maker:
                folded.multiply(f"{maker}.weight", scale)
                folded.multiply(f"{maker}.bias", scale)
            else:
                _fold_into_tables(name, stack, scale, folded)
        maker = sub.beside(NORM_OF[sub.site])


def _fold_into_tables(name: str, stack: Any, scale: Tensor, folded: Folded) -> None:
    folded.multiply(f"{name}.embed_tokens.weight", scale)
    options = folded.options
    if options["share_all_embeddings"]:
        options.update(share_all_embeddings=False, share_decoder_input_output_embed=True)
    if name == Stack.DECODER.value:
        options["share_decoder_input_output_embed"] = False
    positions = stack.embed_positions
    if positions is None:
        return
    table = f"{name}.embed_positions.weight"
    if table not in folded.weights:
        # A sinusoidal table is not a weight. It has the rows of a learned one: those up to the pad, then the positions.
        folded.weights[table] = positions.weights
        options[f"{name}_learned_pos"] = True
    folded.multiply(table, scale)


@cache
def made_up_dictionary(size: int) -> Dictionary:
    """Return a dictionary of ``size`` types, including fairseq's special ones."""
    words = Dictionary()
    for number in range(size - len(words)):
        words.add_symbol(f"word{number}")
    return words


def made_up_task(source: int, target: int) -> SimpleNamespace:
    """Return all that a model's builder needs of a task: dictionaries of these sizes, one if they are equal."""
    return SimpleNamespace(source_dictionary=made_up_dictionary(source), target_dictionary=made_up_dictionary(target))


def task_for(weights: Mapping[str, Tensor]) -> SimpleNamespace:
    """Return such a task for weights, which is one of words without an encoder; a UserError without a table."""
    # An adaptive input has a table for each band of words.
    form = r"\.embed_tokens\.(embeddings\.\d+\.0\.)?weight"
    tables = {name: len(table) for name, table in weights.items() if table.dim() == 2}
    source, target = (
        sum(words for name, words in tables.items() if re.fullmatch(stack.value + form, name)) for stack in Stack
    )
    if not target:
        raise UserError("not weights of a translation model: they have no table decoder.embed_tokens.weight")
    return made_up_task(source or target, target)


def own_options(state: Mapping[str, Any], path: Path, kind: Any = DeepTransformerModel) -> Namespace:
    """Return the flat configuration in a checkpoint of a ``kind`` of this package; a UserError for any other."""
    arch = architecture(dict(state))
    model: Any = ARCH_MODEL_REGISTRY.get(arch, object)
    if not issubclass(model, kind):
        what = "translation model" if kind is DeepTransformerModel else "model"
        raise UserError(f"{path}: '{arch}' is not a {what} of this package")
    options = Namespace(**state["cfg"]["model"])
    ARCH_CONFIG_REGISTRY[arch](options)
    flat = plain_namespace(options, model.config_class)
    # The embeddings are in the checkpoint; their original files may be gone.
    flat.encoder_embed_path = flat.decoder_embed_path = None
    return flat


def build(
    options: Mapping[str, Any], weights: Mapping[str, Tensor], task: Any, path: Path, kind: Any = DeepTransformerModel
) -> Any:
    """Return the model, a ``kind``, of a flat configuration with its weights, in float32 and evaluation mode.

    A UserError if the weights, in messages called ``path``, are of another architecture or dictionary.
    """
    model: Any = kind.build_model(Namespace(**copy.deepcopy(dict(options))), task)
    try:
        model.load_state_dict(dict(weights), strict=True)
    except RuntimeError as error:
        if line := other_weights(str(path), str(error)):
            raise UserError(line) from error
        raise
    return model.eval()


def largest_difference(before: TransformerModelBase, after: TransformerModelBase) -> float:
    """Return the largest difference of two models' log-probabilities (natural log) on random sentences with pads."""
    generator = torch.Generator().manual_seed(1)
    sentences, longest = 4, 20
    source, target = (
        torch.randint(words.nspecial, len(words), (sentences, min(longest, limit)), generator=generator)
        for words, limit in zip(
            (before.encoder.dictionary, before.decoder.dictionary), before.max_positions(), strict=True
        )
    )
    # A source is padded on the left, a target on the right.
    source[1, : source.size(1) // 2] = before.encoder.padding_idx
    target[2, (target.size(1) + 1) // 2 :] = before.decoder.padding_idx
    lengths = source.ne(before.encoder.padding_idx).sum(dim=1)
    with torch.no_grad():
        first, second = (
            model.get_normalized_probs(model(source, lengths, target), log_probs=True) for model in (before, after)
        )
    return float((first - second).abs().max())


def fold_checkpoint(path: Path, output: Path, overwrite: bool = False) -> float:
    """Fold the checkpoint at ``path`` and write it to ``output`` atomically, or raise a UserError.

    Returns the largest difference of log-probabilities (natural log) on random sentences.
    """
    require_no_input(output, [path])
    if output.exists() and not overwrite:
        raise UserError(f"{output} exists; --force overwrites it")
    state = read_checkpoint(path)
    options = own_options(state, path)
    model = build(vars(options), state["model"], task_for(state["model"]), path)
    folded = fold(model, options)
    # Built by fairseq itself.
    stock: Any = build_model(OmegaConf.create(folded.options), task_for(folded.weights))
    stock.load_state_dict(folded.weights, strict=True)
    difference = largest_difference(model, stock.eval())
    if not difference <= LARGEST_DIFFERENCE:
        raise UserError(f"{path}: the folded model differs by {difference:.2g} in log-probability; nothing written")
    config = {**state["cfg"], "model": folded.options}
    if config.get("common"):
        config["common"] = {**config["common"], "user_dir": None}
    origin = {"file": path.name, "arch": architecture(state), "num_updates": num_updates(state)}
    entries = {"args": None, "cfg": config, "model": dict(stock.state_dict()), "folded_from": origin}
    write_checkpoint({**without_training_state(state), **entries}, output)
    return difference


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``fairseq-deep fold``; returns 0, or 2 after one line per problem."""
    flags = OneLineParser(
        prog="fairseq-deep fold",
        description="Fold the scales of stream, branches, weights and norms (Admin's omega) into other weights: the "
        "result is a plain Transformer that stock fairseq loads without this package and that computes the same.",
    )
    flags.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="a checkpoint of this package")
    flags.add_argument("out", type=Path, metavar="OUT", help="the folded checkpoint")
    flags.add_argument("--force", action="store_true", help="overwrite OUT")

    def run() -> None:
        args = flags.read(argv)
        difference = fold_checkpoint(args.checkpoint, args.out, args.force)
        print(f"largest difference of log-probabilities on random sentences: {difference:.1e}")
        print(f"{args.out}: a checkpoint of stock fairseq, --arch {STOCK_ARCH}, float32")

    return exit_code(run)
