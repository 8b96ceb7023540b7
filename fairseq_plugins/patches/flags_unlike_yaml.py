"""Two flags mean something else than in YAML: ``--bf16`` asks for a TPU, and ``polynomial_decay`` has no length.

The option parser sets ``tpu`` whenever ``bf16`` is set, and the run ends in "'NoneType' object has no attribute
'xla_device'". In YAML the length of the decay follows ``optimization.max_update``; by flag it is "Error merging
override lr_scheduler.total_num_update=null". https://github.com/facebookresearch/fairseq/issues/4696 and
https://github.com/facebookresearch/fairseq/issues/4064
"""

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from fairseq import options


def parse_as_yaml(
    parse: Callable[..., Any], parser: ArgumentParser, input_args: list[str] | None = None, *args: Any, **kwargs: Any
) -> Any:
    """``parse_args_and_arch`` in which ``tpu`` needs ``--tpu``, and a decay without a length ends with the training."""
    parsed = parse(parser, input_args, *args, **kwargs)
    namespace = parsed[0] if isinstance(parsed, tuple) else parsed
    given = sys.argv[1:] if input_args is None else input_args
    if getattr(namespace, "tpu", False) and "--tpu" not in given:
        namespace.tpu = False
    if getattr(namespace, "lr_scheduler", None) == "polynomial_decay" and namespace.total_num_update is None:
        # Commands that do not train have the flag of the schedule, but not --max-update; 0 means unset in YAML.
        namespace.total_num_update = getattr(namespace, "max_update", 0)
    return parsed


WRAPPED = ((options, "parse_args_and_arch", parse_as_yaml, 40),)
