"""One file a method. Adding one is one line here; see docs/adding_a_method.md."""

from fairseq_plugins.methods import (  # noqa: F401
    admin,
    b2t,
    ds_init,
    merged_attention,
    post_ln,
    pre_ln,
    rezero,
)
