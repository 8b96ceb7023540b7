"""The methods, one file each. A new one needs one line here; see docs/adding_a_method.md."""

from fairseq_plugins.methods import (  # noqa: F401
    admin,
    admin_torch,
    average_attention,
    b2t,
    deepnet,
    dlcl,
    ds_init,
    fixup,
    gpt2_norm,
    hybrid_ln,
    looklinear,
    merged_attention,
    merged_attention_variants,
    post_ln,
    pre_ln,
    realformer,
    rezero,
    t_fixup,
)
