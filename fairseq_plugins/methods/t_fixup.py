"""T-Fixup: no LayerNorm and no warm-up; embeddings, values, outputs and feed-forward start smaller in deeper stacks."""

from torch import nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.initialisation import StackWeights, attentions
from fairseq_plugins.core.method import Axis, Option, Stack, method, part


@part(
    Axis.INIT,
    "t_fixup",
    summary="values, output maps, feed-forward matrices and embeddings shrink with the depth of their stack",
    options=(
        Option("t_fixup_rule", "paper", "Xavier's gain of q and k: 1, or 1/sqrt(2) as released", ("paper", "released")),
    ),
    # The constants are for an encoder-decoder; nobody has derived any for a decoder alone.
    conflicts=lambda design, config: (
        ["--init t_fixup has no published rule for a language model: choose another --init"]
        if design.encoder_layers == 0
        else []
    ),
)
def initialise(weights: StackWeights, design: StackDesign) -> None:
    """Scale the matrices of the layers and the token table; biases and positions are unchanged.

    A table that is shared with the encoder was scaled with the encoder, by its N. An output projection that is tied to
    the token table is scaled with it; one with its own weight is unchanged. All factors are relative to Xavier's rule
    with gain 1, which q and k get by the text's rule.
    """
    small = (9 * design.layers) ** -0.25
    factor = 0.67 * design.layers**-0.25 if design.stack is Stack.ENCODER else small
    for attention in attentions(weights.layers):
        gain = attention.xavier_input_gain if attention.qkv_same_dim else 1.0
        attention.out_proj.weight.mul_(factor)
        attention.v_proj.weight.mul_(factor / gain)
        if design.options.t_fixup_rule == "paper":
            attention.q_proj.weight.div_(gain)
            attention.k_proj.weight.div_(gain)
    for layer in weights.layers:
        for linear in (layer.fc1, layer.fc2):
            linear.weight.mul_(factor)
    if weights.embedding is None:
        return
    for module in weights.embedding.modules():
        if isinstance(module, nn.Embedding):
            module.weight.mul_(small)


method(
    "t_fixup",
    title="T-Fixup",
    paper="Huang et al., ICML 2020, https://proceedings.mlr.press/v119/huang20f.html",
    equation=(
        "$`o = x + F(x)`$, no LayerNorm, no warm-up, small weights at first (section 3); Xavier's matrices of values, "
        r"outputs and feed-forward times $`0.67\, N^{-1/4}`$ in the encoder and $`(9 M)^{-1/4}`$ in the decoder of "
        r"$`M`$ layers; embeddings $`\mathcal{N}(0, 1 / d)`$ times $`(9 N)^{-1/4}`$ and $`(9 M)^{-1/4}`$"
    ),
    norm_position="none",
    init="t_fixup",
    departures=(
        r"The text draws every matrix by Xavier's rule. The released code keeps fairseq's gain $`1/\sqrt{2}`$ for "
        "q and k (not for v, which it multiplies back) and draws the biases of q, k and v at random: "
        "`--t-fixup-rule released --base-init xavier_biased`. The default follows the text.",
        "The text has one depth for both stacks. Here, as in the released code, each stack has its own depth, and a "
        "shared table is scaled once, by the encoder's depth.",
        "The released decoder layers keep a LayerNorm that nothing uses; here there is none.",
        "An output projection that is tied to the token table is just as small at first, in the released code too. If "
        "the encoder's input is not text, there is no table to scale.",
    ),
)
