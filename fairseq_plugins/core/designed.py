"""Code that all models share: configuration to designs, first weights, first batch."""

from argparse import Namespace
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import BaseFairseqModel
from torch import Tensor

from fairseq_plugins.core import calibration
from fairseq_plugins.core.architectures import fill_unset, method_preset
from fairseq_plugins.core.config import nested_config, plain_namespace, resolve
from fairseq_plugins.core.fields import Family
from fairseq_plugins.core.initialisation import StackWeights, initialise, multipliers_of
from fairseq_plugins.core.residual import Residual


class DesignedModel(BaseFairseqModel):
    """Mixin for models built from designs. List it before the fairseq class so that its overrides win."""

    family: Family
    config_class: type[FairseqDataclass]

    data_seen = False

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Add flags from the flat configuration, without defaults so that architectures can fill them in."""
        gen_parser_from_dataclass(parser, cls.config_class(), delete_default=True)

    @classmethod
    def parse_config(cls, cfg: Any) -> tuple[Namespace, Any]:
        """Return the configuration as flat, plain data, and nested as fairseq's builders read it, with the designs.

        Raises:
            UserError: every problem of the configuration, before a module is built.
        """
        fill_unset(cfg, cls.family, cls.family.sizes[""].stock, method_preset(None))
        flat = plain_namespace(cfg, cls.config_class)
        return flat, nested_config(flat, resolve(flat, cls.family))

    def init_weights(self) -> None:
        """Draw the first weights, the encoder's first."""
        branches = sum(isinstance(module, Residual) for module in self.modules())
        encoder, decoder = getattr(self, "encoder", None), self.decoder
        source, target, output = getattr(encoder, "embed_tokens", None), decoder.embed_tokens, decoder.output_projection
        # An adaptive input has several tables, and an adaptive softmax has no projection.
        tied = output is not None and output.weight is getattr(target, "weight", None)
        with torch.no_grad():
            # The children of a list are all layers: with LayerDrop an iteration leaves some out, in a new model too.
            if encoder is not None:
                layers = list(encoder.layers.children())
                initialise(StackWeights(layers, source, None, branches, encoder.layer_norm), encoder.design)
            weights = StackWeights(
                list(decoder.layers.children()),
                embedding=None if source is not None and target.weight is source.weight else target,
                output=None if tied else output,
                branches=branches,
                top_norm=decoder.layer_norm,
            )
            initialise(weights, decoder.design)
        self.scaled_parameters = sum(bool(multipliers_of(parameter)) for parameter in self.parameters())

    def stacks(self) -> list[tuple[str, Any]]:
        """Return name and module of each stack, the encoder first."""
        return [(stack.value, getattr(self, stack.value)) for stack in self.family.stacks]

    def see_first_batch(self, *inputs: Any) -> None:
        """Calibrate from data in the first training forward of a model that has never been trained.

        Args:
            inputs: arguments of :meth:`run_stacks`.
        """
        if not self.training or self.data_seen:
            return
        # A stack may have been loaded with the weights of another training, which have seen data.
        stacks = [(name, stack) for name, stack in self.stacks() if calibration.pending(stack)]
        if stacks:
            calibration.calibrate(stacks, self, lambda: self.run_stacks(*inputs))
        # Check only once: reading the buffers on an accelerator costs a synchronisation. Set last: fairseq skips a
        # batch that does not fit into memory and goes on with the next.
        self.data_seen = True

    def run_stacks(self, *inputs: Any) -> None:
        """Run :meth:`forward` up to the output projection; ``inputs`` are the encoder's, then the decoder's."""
        *source, target = inputs
        self.decoder(target, encoder_out=self.encoder(*source) if source else None, features_only=True)

    def load_state_dict(
        self, state_dict: dict[str, Tensor], strict: bool = True, model_cfg: Any = None, args: Any = None
    ) -> Any:
        """Load as fairseq does; the new buffers then tell whether data has been seen."""
        self.data_seen = False
        return super().load_state_dict(state_dict, strict=strict, model_cfg=model_cfg, args=args)
