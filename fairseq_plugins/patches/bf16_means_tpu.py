"""``--bf16`` on the command line switches to the code for TPUs, on a CPU and on a GPU.

The option parser sets ``tpu`` whenever ``bf16`` is set, and the run ends in "'NoneType' object has no attribute
'xla_device'"; ``fairseq-hydra-train`` does not do so and works.
https://github.com/facebookresearch/fairseq/issues/4696
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from fairseq import options


def tpu_only_when_asked(
    parse: Callable[..., Any], parser: ArgumentParser, input_args: list[str] | None = None, *args: Any, **kwargs: Any
) -> Any:
    """``parse_args_and_arch`` in which ``tpu`` is true only with ``--tpu``."""
    parsed = parse(parser, input_args, *args, **kwargs)
    namespace = parsed[0] if isinstance(parsed, tuple) else parsed
    given = sys.argv[1:] if input_args is None else input_args
    if getattr(namespace, "tpu", False) and "--tpu" not in given:
        namespace.tpu = False
    return parsed


WRAPPED = ((options, "parse_args_and_arch", tpu_only_when_asked, 60),)
