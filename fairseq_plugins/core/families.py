"""All families of models, and their registration with fairseq."""

from __future__ import annotations

import functools
from typing import Tuple, Type

from fairseq_plugins.core.architectures import register_family
from fairseq_plugins.core.designed import DesignedModel
from fairseq_plugins.core.language_model import DeepTransformerLanguageModel
from fairseq_plugins.core.model import DeepTransformerModel
from fairseq_plugins.core.speech_to_text import DeepS2TTransformerModel

MODELS: Tuple[Type[DesignedModel], ...] = (DeepTransformerModel, DeepTransformerLanguageModel, DeepS2TTransformerModel)


@functools.cache
def register_architectures() -> None:
    """Register the models and every method's architectures with fairseq. Call after the methods are imported."""
    for model in MODELS:
        register_family(model)
