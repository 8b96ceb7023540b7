"""All families of models, their registration with fairseq, and the error for an unknown architecture."""

import functools

from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_plugins.core.architectures import register_family
from fairseq_plugins.core.designed import DesignedModel
from fairseq_plugins.core.language_model import DeepTransformerLanguageModel
from fairseq_plugins.core.method import METHODS
from fairseq_plugins.core.model import DeepTransformerModel
from fairseq_plugins.core.speech_to_text import DeepS2TTransformerModel
from fairseq_plugins.errors import UserError, nearest

MODELS: tuple[type[DesignedModel], ...] = (DeepTransformerModel, DeepTransformerLanguageModel, DeepS2TTransformerModel)


@functools.cache
def register_architectures() -> None:
    """Register the models and every method's architectures with fairseq. Call after the methods are imported."""
    for model in MODELS:
        register_family(model)


def require_architecture(arch: str | None, setting: str) -> None:
    """Check that ``arch`` is an architecture of this package or of fairseq.

    Raises:
        UserError: it is not, or it is missing; the message names the nearest one and the patterns of legal names.
    """
    if arch in ARCH_MODEL_REGISTRY:
        return
    hint = nearest(arch or "", list(ARCH_MODEL_REGISTRY))
    problem = f"{setting} is missing" if arch is None else f"unknown {setting} '{arch}'{hint}"
    patterns = " or ".join(f"METHOD{model.family.suffix}" for model in MODELS)
    methods = ", ".join(sorted(METHODS))
    raise UserError(f"{problem}; legal: {patterns} with METHOD one of {methods}, their sizes, and fairseq's own")
