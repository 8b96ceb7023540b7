"""fairseq's commands reply to a misspelt option with 200 lines of usage, to a misspelt name with all 300 legal ones.

https://github.com/facebookresearch/fairseq/issues/3403
"""

from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from fairseq import options

from fairseq_plugins.options import make_one_line


def parse_in_one_line(parse: Callable[..., Any], parser: ArgumentParser, *args: Any, **kwargs: Any) -> Any:
    """A function, called before its command parses, with a parser that reports each mistake in one line."""
    make_one_line(parser, args[0] if args else kwargs.get("input_args"))
    return parse(parser, *args, **kwargs)


WRAPPED = ((options, "parse_args_and_arch", parse_in_one_line, 30), (options, "add_preprocess_args", parse_in_one_line))
"""The functions that fairseq calls after it has imported a user directory."""
