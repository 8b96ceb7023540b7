"""``--tokenizer moses`` without ``-s`` and ``-t`` ends in "Error merging override tokenizer.source_lang=null".

fairseq infers the languages from the data too late for the tokenizer's options. Here the same function infers them
earlier. Not reported upstream so far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq import options, utils
from fairseq.data import data_utils

from fairseq_plugins.patches.wrapping import wrap


def languages_of_data(parse: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``parse_args_and_arch`` that fills in unset languages if a tokenizer needs them."""
    parsed = parse(*args, **kwargs)
    namespace = parsed[0] if isinstance(parsed, tuple) else parsed
    data = getattr(namespace, "data", None)
    if not getattr(namespace, "tokenizer", None) or not data or not hasattr(namespace, "source_lang"):
        return parsed
    source, target = data_utils.infer_language_pair(utils.split_paths(data)[0])
    namespace.source_lang = namespace.source_lang or source
    namespace.target_lang = namespace.target_lang or target
    return parsed


def apply() -> None:
    """Wrap the parser of every command except ``fairseq-hydra-train``, whose users name the languages."""
    wrap(options, "parse_args_and_arch", languages_of_data, order=50)
