"""The one model and the architectures that the registered methods make of it."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Type

import torch
from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import ARCH_CONFIG_REGISTRY, register_model, register_model_architecture
from fairseq.models.transformer import TransformerModelBase
from torch import Tensor, nn

from fairseq_plugins.core import bias, calibration, weight_decay  # noqa: F401  (bias registers a part)
from fairseq_plugins.core.config import (
    fill_unsaid,
    make_config_class,
    method_preset,
    nested_config,
    plain_namespace,
    resolve,
    stock_sizes,
)
from fairseq_plugins.core.initialisation import StackWeights
from fairseq_plugins.core.method import METHODS, Method, Stack
from fairseq_plugins.core.residual import Residual
from fairseq_plugins.core.stacks import Decoder, Encoder
from fairseq_plugins.errors import UserError

MODEL_NAME = "deep_transformer"
# Suffix of our architectures: the stock architecture whose sizes they take.
SIZES = {
    "": "transformer",
    "_iwslt_de_en": "transformer_iwslt_de_en",
    "_wmt_en_de": "transformer_wmt_en_de",
    "_wmt_en_de_big": "transformer_wmt_en_de_big",
}
# Suffix: encoder and decoder layers. The depths of the papers' tables.
DEPTHS: Dict[str, Optional[Tuple[int, int]]] = {
    "": None,
    "_12": (12, 12),
    "_18": (18, 18),
    "_60_12": (60, 12),
    "_100": (100, 100),
}


class DeepTransformerModel(TransformerModelBase):
    """A stock fairseq Transformer whose layers are built from a design."""

    config_class: Type[FairseqDataclass]

    def __init__(self, cfg: Any, encoder: Encoder, decoder: Decoder) -> None:
        super().__init__(cfg, encoder, decoder)
        self.data_seen = False

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Flags from the flat configuration. Defaults are left out so that architectures can fill them in."""
        gen_parser_from_dataclass(parser, cls.config_class(), delete_default=True)

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "DeepTransformerModel":
        """Build from a flat configuration.

        Raises:
            UserError: every problem of the configuration, before a module is built.
        """
        fill_unsaid(cfg, {**stock_sizes("transformer"), **method_preset(None)})
        flat = plain_namespace(cfg, cls.config_class)
        nested = nested_config(flat, resolve(flat))
        if flat.share_all_embeddings and task.source_dictionary != task.target_dictionary:
            raise UserError(
                "--share-all-embeddings needs one dictionary for both languages: "
                "run fairseq-preprocess with --joined-dictionary"
            )
        model = super().build_model(nested, task)
        with torch.no_grad():
            for stack, weights in stack_weights(model):
                stack.design.initialise(weights)
        weight_decay.mark(model, flat)
        return model

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Dictionary, embed_tokens: nn.Module) -> Encoder:
        """The encoder of the design."""
        return Encoder(cfg, src_dict, embed_tokens, cfg.designs[Stack.ENCODER])

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Dictionary, embed_tokens: nn.Module) -> Decoder:
        """The decoder of the design."""
        return Decoder(cfg, tgt_dict, embed_tokens, cfg.designs[Stack.DECODER], no_encoder_attn=cfg.no_cross_attention)

    # TorchScript knows neither super() nor **kwargs, hence the stock body again.
    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor],
        prev_output_tokens: Tensor,
        return_all_hiddens: bool = True,
        features_only: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
    ) -> Tuple[Tensor, Dict[str, List[Optional[Tensor]]]]:
        """Translate under teacher forcing.

        Args:
            src_tokens: ``(B, S)``, left-padded.
            src_lengths: ``(B)``.
            prev_output_tokens: ``(B, T)``, the target shifted right.
            return_all_hiddens: keep each encoder layer's output in the encoder's result.
            features_only: leave out the output projection.
            alignment_layer: decoder layer whose cross-attention is returned, from 0; the last one by default.
            alignment_heads: average only over the first so many heads.

        Returns:
            logits ``(B, T, V)`` and a dictionary with ``attn`` and ``inner_states``.
        """
        if not torch.jit.is_scripting():
            self.see_first_batch(src_tokens, src_lengths, prev_output_tokens)
        encoder_out = self.encoder(src_tokens, src_lengths=src_lengths, return_all_hiddens=return_all_hiddens)
        return self.decoder(
            prev_output_tokens,
            encoder_out=encoder_out,
            features_only=features_only,
            alignment_layer=alignment_layer,
            alignment_heads=alignment_heads,
            src_lengths=src_lengths,
            return_all_hiddens=return_all_hiddens,
        )

    @torch.jit.unused
    def see_first_batch(
        self, src_tokens: Tensor, src_lengths: Optional[Tensor], prev_output_tokens: Tensor
    ) -> None:
        """Calibrate what has to see data, in the first training forward of a model that has never been trained."""
        if not self.training or self.data_seen:
            return
        if calibration.pending(self):
            stacks: List[Tuple[str, nn.Module]] = [("encoder", self.encoder), ("decoder", self.decoder)]

            def forward() -> None:
                encoder_out = self.encoder(src_tokens, src_lengths=src_lengths)
                self.decoder(prev_output_tokens, encoder_out=encoder_out, features_only=True)

            calibration.calibrate(stacks, self, forward)
        # Asked once: reading the buffers on an accelerator costs a synchronisation. Set last, since fairseq skips a
        # batch that does not fit into memory and goes on with the next.
        self.data_seen = True

    def load_state_dict(
        self, state_dict: Dict[str, Tensor], strict: bool = True, model_cfg: Any = None, args: Any = None
    ) -> Any:
        """As stock; afterwards the buffers say anew whether data has been seen."""
        self.data_seen = False
        return super().load_state_dict(state_dict, strict=strict, model_cfg=model_cfg, args=args)


def stack_weights(model: DeepTransformerModel) -> Iterator[Tuple[Any, StackWeights]]:
    """Each stack with its weights, the encoder first."""
    source, target = model.encoder.embed_tokens, model.decoder.embed_tokens
    branches = sum(isinstance(module, Residual) for module in model.modules())
    yield model.encoder, StackWeights(model.encoder.layers, embedding=source, branches=branches)
    output = model.decoder.output_projection
    tied = output is None or output.weight is target.weight
    yield (
        model.decoder,
        StackWeights(
            model.decoder.layers,
            embedding=target,
            embedding_is_shared=target.weight is source.weight,
            output=None if tied else output,
            branches=branches,
        ),
    )


def _architecture(preset: Dict[str, Any], stock_arch: str) -> Callable[[Any], None]:
    """Architecture function for fairseq: fills what the user left unsaid, then reports every problem at once."""

    def fill(config: Any) -> None:
        fill_unsaid(config, preset, stock_arch)
        resolve(plain_namespace(config, DeepTransformerModel.config_class))

    return fill


def _architectures(method: Optional[Method]) -> Iterator[Tuple[str, str, Dict[str, Any]]]:
    """Suffix, stock architecture and preset, for every size and depth."""
    for size_suffix, stock_arch in SIZES.items():
        for depth_suffix, depth in DEPTHS.items():
            preset = {**stock_sizes(stock_arch), **method_preset(method)}
            if depth is not None:
                preset["encoder_layers"], preset["decoder_layers"] = depth
            yield size_suffix + depth_suffix, stock_arch, preset


def architecture_presets(method: Optional[Method]) -> Dict[str, Dict[str, Any]]:
    """Architecture suffix to preset, for every size and depth."""
    return {suffix: preset for suffix, _, preset in _architectures(method)}


@functools.cache
def register_architectures() -> None:
    """Register the model and every method's architectures with fairseq. Call after the methods are imported."""
    DeepTransformerModel.config_class = make_config_class()
    register_model(MODEL_NAME, dataclass=DeepTransformerModel.config_class)(DeepTransformerModel)
    # fairseq registers an architecture of the model's own name that does nothing; ours writes the resolved
    # choices into the configuration, so that a checkpoint keeps its meaning if a preset is corrected later.
    ARCH_CONFIG_REGISTRY[MODEL_NAME] = _architecture(architecture_presets(None)[""], SIZES[""])
    for prefix, method in [(MODEL_NAME, None), *((f"{name}_transformer", one) for name, one in METHODS.items())]:
        for suffix, stock_arch, preset in _architectures(method):
            if prefix + suffix != MODEL_NAME:
                register_model_architecture(MODEL_NAME, prefix + suffix)(_architecture(preset, stock_arch))
