"""Speech to text: stock ``s2t_transformer`` with layers built from designs, for fairseq's ``speech_to_text`` task.

The convolutional front end, the embeddings and the output are fairseq's (Wang et al., AACL 2020,
https://arxiv.org/abs/2010.05171). fairseq's model is Pre-LN unless code changes that; here ``--norm-position`` does.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from dataclasses import field
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.data.data_utils import lengths_to_padding_mask
from fairseq.models.speech_to_text.s2t_transformer import (
    S2TTransformerEncoder,
    S2TTransformerModel,
    TransformerDecoderScriptable,
)
from fairseq.models.transformer import Embedding
from torch import Tensor, nn

from fairseq_plugins.core.config import has_stock_top
from fairseq_plugins.core.designed import DesignedModel
from fairseq_plugins.core.fields import Family, Size, parser_fields
from fairseq_plugins.core.layers import EncoderLayer
from fairseq_plugins.core.method import Stack
from fairseq_plugins.core.stacks import Decoder, EncoderLoop, assemble, wrap
from fairseq_plugins.errors import UserError, flag

logger = logging.getLogger(__name__)

FLAGS = parser_fields(S2TTransformerModel.add_args)
PRETRAINED = "load_pretrained_encoder_from"
# Settings that are not flags of the model: type, the group that sets them, and the value if it does not. The task sets
# the sizes of the features when it builds the model.
TOLD: dict[str, tuple[Any, str, Any]] = {
    "max_source_positions": (int, "task", 6000),
    "max_target_positions": (int, "task", 1024),
    "input_feat_per_channel": (int, "task", 80),
    "input_channels": (int, "task", 1),
    "speaker_to_id": (Any, "task", None),
    "ctc_weight": (float, "criterion", 0.0),
}


def _problems(config: Namespace) -> list[str]:
    problems = []
    kernels = [size.strip() for size in config.conv_kernel_sizes.split(",")]
    if not all(size.isdecimal() and int(size) > 0 for size in kernels):
        problems.append(f"--conv-kernel-sizes takes positive numbers such as 5,5, not '{config.conv_kernel_sizes}'")
    if config.conv_channels < 2 or config.conv_channels % 2:
        problems.append(f"--conv-channels must be even, since its gate halves them, not {config.conv_channels}")
    if len({rate.strip() for rate in config.word_dropout.split(",")}) == 2:
        problems.append("--word-dropout takes one value here, for the decoder: the speech encoder embeds no words")
    return problems


SPEECH_TO_TEXT = Family(
    model="deep_s2t_transformer",
    suffix="_s2t_transformer",
    class_name="DeepS2TTransformerConfig",
    stacks=tuple(Stack),
    stock=(
        *FLAGS,
        *(
            # The other group need not have it.
            (name, kind, field(default=f"${{oc.select:{group}.{name},{'null' if default is None else default}}}"))
            for name, (kind, group, default) in TOLD.items()
        ),
    ),
    presettable=tuple(name for name, kind, _ in FLAGS if kind is not bool and name != PRETRAINED),
    sizes={suffix: Size(f"s2t_transformer{suffix}") for suffix in ("", "_xs", "_s", "_sp", "_m", "_mp", "_l", "_lp")},
    fallbacks={name: value for name, (_, _, value) in TOLD.items()},
    problems=_problems,
)


class S2TEncoder(EncoderLoop, S2TTransformerEncoder):
    """Stock front end, then layers built from a design.

    Args:
        flat: the flat configuration.
        cfg: the same as fairseq's nested ``TransformerConfig``.
        words: size of the target dictionary, for the CTC head.
    """

    def __init__(self, flat: Namespace, cfg: Any, words: int) -> None:
        design = cfg.designs[Stack.ENCODER]
        # fairseq's constructor builds its own layers. It gets no layers to build, and not the head that follows them,
        # so that the random numbers are drawn in the same order as in fairseq.
        bare = {"encoder_layers": 0, "ctc_weight": 0.0, "encoder_normalize_before": has_stock_top(design)}
        super().__init__(Namespace(**{**vars(flat), **bare}))
        self.design = design
        depths = range(1, flat.encoder_layers + 1)
        self.transformer_layers.extend([wrap(EncoderLayer(cfg, design, depth), cfg) for depth in depths])
        assemble(self, design)
        if flat.ctc_weight > 0:
            self.ctc_proj = nn.Linear(flat.encoder_embed_dim, words)

    @property
    def layers(self) -> nn.ModuleList:
        """The layers, which fairseq calls ``transformer_layers`` here."""
        return self.transformer_layers

    def _forward(self, src_tokens: Tensor, src_lengths: Tensor, return_all_hiddens: bool = False) -> dict[str, Any]:
        """Encode features ``(B, T, F)``; arguments and result are those of fairseq, which calls this."""
        x, lengths = self.subsample(src_tokens, src_lengths)
        encoder_padding_mask = lengths_to_padding_mask(lengths)
        positions = self.embed_positions(encoder_padding_mask).transpose(0, 1)
        x = self.dropout_module(self.embed_scale * x + positions)
        encoder_states: list[Tensor] = []
        x = self.run_layers(x, encoder_padding_mask, encoder_states, return_all_hiddens)
        return {
            "encoder_out": [x],  # T B C
            "encoder_padding_mask": [encoder_padding_mask] if encoder_padding_mask.any() else [],  # B T
            "encoder_embedding": [],
            "encoder_states": encoder_states,  # each T B C
            "src_tokens": [],
            "src_lengths": [],
        }


class S2TDecoder(Decoder):
    """The decoder of a design, which also returns the encoder's result, for the CTC criterion."""

    extract_features = TransformerDecoderScriptable.extract_features


class DeepS2TTransformerModel(DesignedModel, S2TTransformerModel):
    """Stock fairseq's speech-to-text Transformer whose layers are built from a design."""

    family = SPEECH_TO_TEXT

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> DeepS2TTransformerModel:
        """Build from a flat configuration; raises the errors of :meth:`parse_config` and :func:`load_encoder`."""
        flat, nested = cls.parse_config(cfg)
        words: Dictionary = task.target_dictionary
        embed_tokens = Embedding(len(words), flat.decoder_embed_dim, words.pad())
        encoder = S2TEncoder(flat, nested, len(words))
        model = cls(encoder, S2TDecoder(nested, words, embed_tokens, nested.designs[Stack.DECODER]))
        model.init_weights()
        pretrained = getattr(flat, PRETRAINED)
        if pretrained:
            load_encoder(encoder, Path(pretrained))
            # From now on the weights are in the model's own checkpoints, whose loading must not need the file.
            setattr(cfg, PRETRAINED, None)
        return model

    def forward(self, src_tokens: Tensor, src_lengths: Tensor, prev_output_tokens: Tensor) -> tuple[Tensor, Any]:
        """Transcribe or translate features ``(B, S, F)`` of lengths ``(B)``; the target ``(B, T)`` is shifted right."""
        self.see_first_batch(src_tokens, src_lengths, prev_output_tokens)
        return super().forward(src_tokens, src_lengths, prev_output_tokens)


def load_encoder(encoder: S2TEncoder, path: Path) -> None:
    """Load the encoder's weights from the checkpoint at ``path``; fairseq silently skips a missing file.

    Parameters that a plain encoder lacks get their neutral value, as when a whole checkpoint is loaded.

    Raises:
        UserError: the file does not exist, or its encoder has other sizes or parts.
    """
    setting = flag(PRETRAINED)
    if not path.is_file():
        raise UserError(
            f"{setting} {path}: no such file; to load a model that was trained from it, add "
            f"--model-overrides \"{{'{PRETRAINED}': None}}\""
        )
    stored = checkpoint_utils.load_checkpoint_to_cpu(str(path))["model"]
    prefix = "encoder."
    weights = {name[len(prefix) :]: value for name, value in stored.items() if name.startswith(prefix)}
    for name, module in encoder.named_modules():
        if hasattr(module, "upgrade_state_dict_named") and name:
            module.upgrade_state_dict_named(weights, name)
    try:
        encoder.load_state_dict(weights, strict=True)
    except RuntimeError as error:
        raise UserError(
            f"{setting} {path}: its encoder does not match this model: {' '.join(str(error).split())}"
        ) from error
    logger.info("the encoder starts from %s", path)
