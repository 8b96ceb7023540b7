"""AAN, average attention: a gate between the target word and the mean of all so far, instead of self-attention."""

from functools import partial

from fairseq_plugins.core.attention import AttentionPlan, of_decoders
from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, NewParameter, Option, method, part
from fairseq_plugins.methods.shared.averages import AverageAttention


@part(
    Axis.ATTENTION,
    "aan",
    summary="a gated mean of the inputs so far in place of the decoder's self-attention",
    options=(Option("aan_ffn", "no", "whether a feed-forward network with relu transforms the mean", ("no", "yes")),),
    parameters=(
        NewParameter("self_attn.gate.weight", "(2C, 2C)", "drawn: Xavier uniform"),
        NewParameter("self_attn.gate.bias", "(2C)", "0"),
    ),
    conflicts=of_decoders,
    no_fold="stock fairseq has no average attention",
)
def build(depth: int, design: StackDesign) -> AttentionPlan:
    """Build average attention for the decoder; the encoder and the cross-attention keep softmax."""
    ffn_width = design.ffn_width if design.options.aan_ffn == "yes" else 0
    average = partial(AverageAttention, ffn_width=ffn_width, activation_dropout=design.activation_dropout)
    return AttentionPlan(decoder_self=average)


method(
    "aan",
    title="AAN",
    paper="Zhang et al., ACL 2018, https://arxiv.org/abs/1805.00631",
    equation=(
        r"decoder: $`o_t = \mathrm{LN}(x_t + \sigma(i_t) \odot x_t + \sigma(f_t) \odot g_t)`$ instead of "
        r"self-attention; $`g_t = \frac{1}{t} \sum_{k \leq t} x_k`$ and $`[i_t; f_t] = W [x_t; g_t] + b`$ (equations "
        "1 to 3); cross-attention, feed-forward and encoder as Post-LN"
    ),
    norm_position="post",
    attention="aan",
    departures=(
        "In equation 1 a feed-forward network transforms the mean. The released code leaves it out, as the "
        "authors advise and as the parameter counts of the DS-Init paper, which compares with AAN, have it. The "
        "default has none; `--aan-ffn yes` is the equation, and adds `self_attn.ffn.fc1` and "
        r"`self_attn.ffn.fc2`, $`2 d f + f + d`$ parameters a layer.",
        "Dropout of attention weights has nothing to drop here; the dropout after the network's relu is "
        "`--activation-dropout`.",
        r"The released code draws q of the cross-attention by itself, and k and v as one matrix. Here all three are "
        r"drawn as one, as in fairseq: q starts at $`\sqrt{1/2} = 0.707`$ of the released bound, k and v at "
        r"$`\sqrt{3/4} = 0.866`$. `--base-init xavier_apart` draws all three by themselves, q as released. The "
        r"released code draws biases, too; here they start at 0.",
    ),
)
