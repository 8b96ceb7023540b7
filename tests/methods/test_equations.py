"""Every method against its equation, written out in plain torch: both stacks and a language model, with gradients."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_plugins.core.method import METHODS, Axis, Site
from tests import by_hand
from tests.methods.by_equation import At, Equation, Map, assert_is, attend, attention, linear, ln, rms, same

# The equations -------------------------------------------------------------------------------------------------------


def post(at: At, x: Tensor) -> Tensor:
    """Vaswani et al. 2017, section 3.1; without norms the plain sum."""
    return at.norm(x + at.branch(x))


def pre(at: At, x: Tensor) -> Tensor:
    return x + at.branch(at.norm(x))


def norm_on_top(at: At, x: Tensor) -> Tensor:
    return ln(x, at.stack.layer_norm)


POST, PRE = Equation(post), Equation(pre, norm_on_top)


def hybrid(at: At, x: Tensor) -> Tensor:
    return post(at, x) if at.in_encoder else pre(at, x)


def admin(at: At, x: Tensor) -> Tensor:
    omega = at.residual.omega_profiled
    if at.stack.design.options.admin_omega == "trained":
        omega = omega + at.residual.omega_trained
    return at.norm(omega * x + at.branch(x))


def admin_torch(at: At, x: Tensor) -> Tensor:
    """sqrt((n + 1) / log(n + 1) - 1) with six sub-layers in each stack."""
    fixed = at.stack.design.options.admin_torch_omega == "fixed"
    omega = math.sqrt(7 / math.log(7) - 1) if fixed else at.residual.omega
    return at.norm(omega * x + at.branch(x))


def deepnet(at: At, x: Tensor) -> Tensor:
    """Figure 2: N = 3 encoder and M = 2 decoder layers."""
    alpha = 0.81 * (3**4 * 2) ** (1 / 16) if at.in_encoder else at.sub_layers**0.25
    return at.norm(alpha * x + at.branch(x))


def b2t(at: At, x: Tensor) -> Tensor:
    """Equations 5 to 7, 9 to 11 with the depth of the own stack, and footnote 2."""
    total = x + at.branch(x)
    if at.site is not Site.FFN:
        return at.norm(total)
    if at.first_norm is None:
        return min(at.layers / 12, at.layers**-0.15) * at.layer_input + 16**-0.2 * total
    if at.stack.design.options.b2t_skip == "all":
        return at.layer_input + at.norm(total)
    return at.norm(at.layer_input + total)


def span(at: At, x: Tensor) -> Tensor:
    return at.norm((at.layer_input if at.site is Site.FFN else x) + at.branch(x))


def branch_norm(at: At, x: Tensor) -> Tensor:
    """A new model is in its first update, 1 / T."""
    return at.norm(x + at.branch(x) / at.stack.design.options.branch_norm_updates)


def deepscale(at: At, x: Tensor) -> Tensor:
    share = at.stack.design.options.deepscale_k / at.sub_layers
    return math.sqrt(1 - share) * x + math.sqrt(share) * at.branch(at.norm(x))


def keel(at: At, x: Tensor) -> Tensor:
    branch = at.branch(at.norm(x))
    if at.depth == 1 and at.site is Site.SELF:
        return x + branch
    scale = 1 if at.depth == 1 else at.stack.design.options.keel_alpha or at.sub_layers
    return at.later_norm("after", scale * x + branch)


def mix_ln(at: At, x: Tensor) -> Tensor:
    share = at.stack.design.options.mix_post
    return post(at, x) if at.depth <= math.floor(share * at.layers) else pre(at, x)


def rezero(at: At, x: Tensor) -> Tensor:
    return at.norm(x + at.residual.alpha * at.branch(x))


def resi_dual_on_top(at: At, x: Tensor) -> Tensor:
    options = at.stack.design.options
    total = options.resi_dual_scale * (at.start + sum(at.branches))
    return options.resi_dual_alpha * x + ln(total, at.stack.side_stream.norm, epsilon=1e-7)


def normformer(at: At, x: Tensor) -> Tensor:
    z = at.norm(x)
    if at.site is Site.FFN:
        stream = x * getattr(at.residual, "scale", 1)
        return stream + at.branch(z, inner=lambda hidden: ln(hidden, at.layer.fc2.norm))
    module = getattr(at.layer, at.site.value)
    factors = module.out_proj.heads.scale.repeat_interleave(module.head_dim)
    if at.stack.design.options.head_scale_at == "output":
        return x + at.later_norm("branch", at.branch(z) * factors)
    return x + at.later_norm("branch", at.branch(z, inner=lambda heads: heads * factors))


def sub_ln(at: At, x: Tensor) -> Tensor:
    last = at.layer.fc2 if at.site is Site.FFN else getattr(at.layer, at.site.value).out_proj
    plain = at.site is Site.CROSS and at.stack.design.options.sub_cross == "no"
    return x + at.branch(at.norm(x), inner=same if plain else lambda z: ln(z, last.norm))


def qk_norm(at: At, x: Tensor) -> Tensor:
    def on_heads(map_: Any, heads: Tensor) -> Tensor:
        return ln(heads, map_.norm) if hasattr(map_, "norm") else heads

    return x + at.branch(at.norm(x), **({} if at.site is Site.FFN else {"on_heads": on_heads}))


def hybrid_norm(at: At, x: Tensor) -> Tensor:
    """X' = Norm(Y) + FFN(Norm(Y)), with Y = X + attention of normalised queries, keys and values."""
    if at.site is Site.FFN:
        return x + at.branch(x)
    return rms(x + at.branch(x, on_heads=lambda map_, heads: rms(heads, map_.norm)), at.first_norm)


def of_length(x: Tensor, length: Tensor | float = 1.0) -> Tensor:
    return length * x / (x * x).sum(dim=-1, keepdim=True).sqrt()


def cosines(at: At, x: Tensor) -> Tensor:
    """softmax(g cos(q, k)), where the formula of attention divides by the root of the width of a head."""

    def on_heads(map_: Any, heads: Tensor) -> Tensor:
        if not hasattr(map_, "norm"):
            return heads
        return of_length(heads, 1.0 if map_.norm.scale is None else map_.norm.scale * math.sqrt(heads.size(-1)))

    return x + at.branch(at.norm(x), **({} if at.site is Site.FFN else {"on_heads": on_heads}))


def value_residual(at: At, module: Any, query: Tensor, source: Tensor, **changes: Any) -> Tensor:
    """V_n <- l1 V_n + l2 V_1, in three chains."""

    def on_heads(map_: Any, heads: Tensor) -> Tensor:
        if map_ is not module.v_proj:
            return heads
        first = at.logits.setdefault(at.site, heads)
        own, others = (0.5, 0.5) if map_.mixing.factors is None else map_.mixing.factors
        return heads if at.depth == 1 else own * heads + others * first

    return attend(at, module, query, source, on_heads=on_heads)


def gated(at: At, module: Any, query: Tensor, source: Tensor, **changes: Any) -> Tensor:
    gate = torch.sigmoid(query @ module.gate_proj.weight.t())
    each = gate.repeat_interleave(query.size(-1) // gate.size(-1), dim=-1)
    return attend(at, module, query, source, inner=lambda context: context * each)


def siamese(at: At, x: Tensor) -> Tensor:
    y = at.start + sum(at.branches)
    branch = at.branch(at.norm(x + ln(y, at.residual.norm)))
    return at.later_norm("after", x + branch / math.sqrt(at.depth * at.sub_layers / at.layers))


def siamese_on_top(at: At, x: Tensor) -> Tensor:
    return norm_on_top(at, x + ln(at.start + sum(at.branches), at.stack.side_stream.norm))


def hyper(at: At, x: Tensor) -> Tensor:
    """h = sum_i a_i h_i, h_j' = sum_i M_ij h_i + w_j F(LN(h)), stream by stream."""
    own = at.residual
    h, count = at.streams or [at.start] * len(own.write_weights), len(own.write_weights)
    reads, writes = [own.read_weights[0, i] for i in range(count)], [own.write_weights[i] for i in range(count)]
    mixes: Any = [[own.mix_weights[i, j] for j in range(count)] for i in range(count)]
    if at.stack.design.options.hyper_weights == "dynamic":
        for i in range(count):
            centred = h[i] - h[i].mean(dim=-1, keepdim=True)
            normed = centred / torch.sqrt((centred * centred).mean(dim=-1, keepdim=True) + 1e-5)
            small = torch.tanh(normed @ own.map).split(1, dim=-1)  # reading, writing, mixing
            reads[i], writes[i] = reads[i] + own.scales[0] * small[0], writes[i] + own.scales[1] * small[1]
            mixes[i] = [mixes[i][j] + own.scales[0] * small[2 + j] for j in range(count)]
    branch = at.branch(at.norm(sum(a * each for a, each in zip(reads, h, strict=True))))
    at.streams = [sum(mixes[i][j] * h[i] for i in range(count)) + writes[j] * branch for j in range(count)]
    return x


def manifold(at: At, x: Tensor) -> Tensor:
    """The same with a = sigmoid, w = 2 sigmoid and a doubly stochastic M, which maps stream j to i here."""
    own, count = at.residual, at.stack.design.options.mhc_streams
    h = at.streams or [at.start] * count
    flat = torch.cat(h, dim=-1)
    product = flat @ own.map / torch.sqrt((flat * flat).mean(dim=-1, keepdim=True) + 1e-5)
    scales = own.scales.repeat_interleave(torch.tensor([count, count, count * count]))
    a, w, square = (scales * product + own.bias.flatten()).split([count, count, count * count], dim=-1)
    mixes = square.unflatten(-1, (count, count)).exp()
    for _ in range(20):
        mixes = mixes / mixes.sum(dim=-2, keepdim=True)
        mixes = mixes / mixes.sum(dim=-1, keepdim=True)
    branch = at.branch(at.norm(sum(torch.sigmoid(a[..., i : i + 1]) * h[i] for i in range(count))))
    at.streams = [
        sum(mixes[..., i, j].unsqueeze(-1) * h[j] for j in range(count)) + 2 * torch.sigmoid(w[..., i : i + 1]) * branch
        for i in range(count)
    ]
    return x


def streams_on_top(at: At, x: Tensor) -> Tensor:
    return norm_on_top(at, torch.stack(at.streams).sum(dim=0))


def depth_attention(at: At, query: Tensor) -> Tensor:
    """softmax_i(w . RMSNorm(v_i)) over the embedding and the sums of branches so far, a block each."""
    blocks = at.stack.design.options.attention_residual_blocks
    sites = at.sub_layers // at.layers
    size = sites * math.ceil(at.layers / blocks) if blocks else 1
    values = [at.start, *(sum(at.branches[i : i + size]) for i in range(0, len(at.branches), size))]
    logits = [(v @ query) / torch.sqrt((v * v).mean(dim=-1) + 1e-5) for v in values]
    weights = torch.softmax(torch.stack(logits), dim=0).unsqueeze(-1)
    return sum(weight * v for weight, v in zip(weights, values, strict=True))


def attention_residual(at: At, x: Tensor) -> Tensor:
    at.branch(at.norm(depth_attention(at, at.residual.query) if at.branches else at.start))
    return x


def normed_by(norm: Callable[[Tensor, Any], Tensor]) -> Equation:
    return Equation(lambda at, x: x + at.branch(norm(x, at.first_norm)), lambda at, x: norm(x, at.stack.layer_norm))


def tanh(x: Tensor, norm: Any) -> Tensor:
    return torch.tanh(norm.alpha * x) * norm.weight + norm.bias


def derf(x: Tensor, norm: Any) -> Tensor:
    return torch.erf(norm.alpha * x + norm.shift) * norm.weight + norm.bias


def denseformer(stack: Any, states: list[Tensor]) -> Tensor:
    """After layer i, if i is a multiple of the period: sum over j = i, i - dilation, ... of a_ij X_j."""
    i, options = len(states) - 1, stack.design.options
    if i == 0 or i % options.denseformer_period:
        return states[i]
    weight, dilation = stack.history.weight, options.denseformer_dilation
    return sum(weight[i, j] * states[j] for j in range(i + 1) if (i - j) % dilation == 0)


def gtrans(stack: Any, states: list[Tensor]) -> Tensor:
    """On top the mean of sigmoid(w_g) h_gT."""
    layers, size = len(stack.layers), stack.design.options.gtrans_group
    if len(states) <= layers:
        return states[-1]
    ends = range(size, layers + 1, size)
    return sum(torch.sigmoid(w) * states[end] for w, end in zip(stack.history.weight, ends, strict=True)) / len(ends)


def completep(at: At, x: Tensor) -> Tensor:
    options = at.stack.design.options
    return x + at.branch(at.norm(x)) / (at.layers / options.depth_mup_base) ** options.depth_mup_alpha


def dlcl(stack: Any, states: list[Tensor]) -> Tensor:
    """x_{l+1} = sum_{k <= l} W_{l+1,k} LN_k(y_k), or LN_{l+1} of the plain mixture; norm l has index l - 1."""
    options, norms, row = stack.design.options, stack.history.layer_norms, len(states) - 1
    first = max(0, len(states) - options.dlcl_window) if options.dlcl_window else 0
    weights = stack.history.weight[row, first : row + 1]
    if options.dlcl_normalised == "yes":
        weights = weights.exp() / weights.exp().sum(dim=0)
    pre_ln = stack.design.choice(Axis.NORM_POSITION) == "pre"
    normed = [ln(y, norms[k - 1]) if pre_ln and k > 0 else y for k, y in enumerate(states)]
    total = sum(weight * y for weight, y in zip(weights, normed[first:], strict=True))
    return total if pre_ln or row == 0 else ln(total, norms[row - 1])


def seen_so_far(x: Tensor) -> by_hand.Seen:
    return by_hand.seen_so_far(torch.ones(x.size(1), x.size(0)) > 0)


def average_attention(at: At, module: Any, query: Tensor, source: Tensor, **changes: Any) -> Tensor:
    """In place of the decoder's self-attention."""
    if hasattr(module, "gate"):
        return by_hand.gated_average(module, query, seen_so_far(query))
    return attend(at, module, query, source, **changes)


def merged_attention(at: At, module: Any, query: Tensor, source: Tensor, **changes: Any) -> Tensor:
    """(heads of the cross-attention + mean of x W_v + b_v) W_o + b_o; the encoder's attention is stock's."""
    if at.in_encoder:
        return attend(at, module, query, source, **changes)
    average = by_hand.average(linear(query, module.v_proj), seen_so_far(query))
    return attention(module, query, source, False, inner=lambda context: context + average)


def joined_attention(at: At, module: Any, query: Tensor, source: Tensor, **changes: Any) -> Tensor:
    """CA(x, h) + SA(x), or CA(x, h) + u with the gated average u."""
    if at.in_encoder:
        return attend(at, module, query, source, **changes)
    inner, target = module.self_attn, seen_so_far(query)
    averages = hasattr(inner, "gate")
    own = by_hand.gated_average(inner, query, target) if averages else attention(inner, query, query, True)
    return attention(module, query, source, False) + own


def residual_attention(at: At, module: Any, query: Tensor, source: Tensor, **changes: Any) -> Tensor:
    """S_l = Q_l K_l^T / sqrt(D) + S_{l-1}, in three chains; the softmax gets the sum, or the mean."""

    def add(own: Tensor) -> Tensor:
        at.logits[at.site] = own + at.logits.get(at.site, 0)
        mean = at.stack.design.options.realformer_logits == "mean"
        return at.logits[at.site] / at.depth if mean else at.logits[at.site]

    return attend(at, module, query, source, on_logits=add)


def fixup(at: At, x: Tensor) -> Tensor:
    """Z + s * F(z - b); the keys and values of the cross-attention are not shifted."""
    return x + at.residual.alpha * at.branch(x - at.first_norm.shift)


def fixup_feed_forward(layer: Any, x: Tensor) -> Tensor:
    """W_2 (relu(W_1 x - b_2) - b_3)."""
    inside = torch.relu(x @ layer.fc1.weight.t() - layer.fc1.shift)
    return (inside - layer.fc2.shift) @ layer.fc2.weight.t()


def fixup_on_top(at: At, x: Tensor) -> Tensor:
    """S (x - b) on the encoder, x - b on the decoder."""
    shifted = x - at.stack.layer_norm.shift
    return at.stack.layer_norm.scale * shifted if at.in_encoder else shifted


def runge_kutta(at: At, layer: Map, y: Tensor) -> Tensor:
    """Li et al. 2022 in the encoder; with the whole layer for F, as their code has it."""
    if not at.in_encoder:
        return layer(y)
    options, solver = at.stack.design.options, at.stack.solver

    def f(x: Tensor) -> Tensor:
        return layer(x) if options.ode_function == "layer" else layer(x) - x

    f1 = f(y)
    if at.stack.design.choice(Axis.SOLVER) == "ode_rk4":
        f2 = f(y + f1 / 2)
        f3 = f(y + f2 / 2)
        return y + (f1 + 2 * f2 + 2 * f3 + f(y + f3)) / 6
    f2 = f(y + f1)
    if options.ode_coefficients == "gate":
        gate = torch.sigmoid(linear(torch.cat([f1, f2], dim=-1), solver.gate))
        return y + gate * f1 + (1 - gate) * f2
    first, second = solver.gamma if options.ode_coefficients == "trained" else (0.5, 0.5)
    return y + first * f1 + second * f2


def predictor_corrector(at: At, layer: Map, y: Tensor) -> Tensor:
    """Li et al. 2024 in the encoder; ``at.corrected`` has the states of the layers below."""
    if not at.in_encoder:
        return layer(y)
    options, solver, m = at.stack.design.options, at.stack.solver, at.depth

    def f(x: Tensor) -> Tensor:
        return layer(x) if options.pcformer_function == "layer" else layer(x) - x

    f1 = f(y)
    if options.pcformer_order == "4":
        f2 = f(y + f1 / 2)
        f3 = f(y + f2 / 2)
        found = [f1, f2, f3, f(y + f3)]
    else:
        found = [f1, f(y + f1)]
    n = len(found)
    prediction = y + sum(solver.alpha * (1 - solver.alpha) ** (n - i) * f_i for i, f_i in enumerate(found, start=1))
    if m == 1:
        at.corrected = [at.start]
    before = [*at.corrected, ln(prediction, solver.prediction_norms[m - 1])]
    evaluated = layer(sum(solver.before[m, k] * before[k] for k in range(m + 1)))
    at.corrected.append(ln(evaluated, solver.state_norms[m - 1]))
    return sum(solver.after[m, k] * at.corrected[k] for k in range(m + 1))


LN_OVER_DEPTH = Equation(lambda at, x: x + at.branch(at.norm(x) / math.sqrt(at.depth)), norm_on_top)
RMS_OVER_DEPTH = Equation(
    lambda at, x: x + at.branch(rms(x, at.first_norm) / math.sqrt(at.depth)), lambda at, x: rms(x, at.stack.layer_norm)
)
PCFORMER = Equation(pre, norm_on_top, solve=predictor_corrector)
ODE, FUNCTIONS = Equation(pre, norm_on_top, solve=runge_kutta), ("change", "layer")
DLCL_PRE, DLCL_POST = Equation(pre, norm_on_top, mix=dlcl), Equation(post, mix=dlcl)
DENSEFORMER, RESI_DUAL = Equation(pre, norm_on_top, mix=denseformer), Equation(post, resi_dual_on_top)
SIAMESE = Equation(siamese, siamese_on_top)
HYPER, MANIFOLD = Equation(hyper, streams_on_top), Equation(manifold, streams_on_top)
DEPTH_ATTENTION = Equation(
    attention_residual, lambda at, x: norm_on_top(at, depth_attention(at, at.stack.side_stream.query))
)
REALFORMER, JOINED = Equation(post, attend=residual_attention), Equation(post, attend=joined_attention)
DLCL_OPTIONS: list[dict[str, str]] = [
    {},
    {"dlcl_window": "1"},
    {"dlcl_window": "2"},
    {"dlcl_window": "3", "dlcl_normalised": "yes"},
    {"dlcl_weights": "dimension"},
    {"dlcl_weights": "dimension", "dlcl_normalised": "yes"},
    {"dlcl_normalised": "yes"},
    {"dlcl_init": "one"},
    {"dlcl_init": "one", "dlcl_window": "2", "dlcl_weights": "dimension"},
]
DENSEFORMER_OPTIONS = [
    {"denseformer_dilation": dilation, "denseformer_period": period}
    for dilation, period in (("1", "1"), ("2", "1"), ("1", "2"), ("2", "2"), ("3", "1"))
]
EQUATIONS: list[tuple[str, Equation, list[dict[str, Any]]]] = [
    ("post_ln", POST, [{}]),
    ("pre_ln", PRE, [{}]),
    ("hybrid_ln", Equation(hybrid, lambda at, x: x if at.in_encoder else norm_on_top(at, x)), [{}]),
    ("gpt2_norm", Equation(lambda at, x: x + at.norm(at.branch(x))), [{}]),
    ("gpt2_norm", Equation(lambda at, x: x + at.norm(at.branch(x)), norm_on_top), [{"norm_on_top": "yes"}]),
    ("peri_ln", Equation(lambda at, x: x + at.later_norm("branch", at.branch(at.norm(x))), norm_on_top), [{}]),
    ("layernorm_scaling", LN_OVER_DEPTH, [{}]),
    ("layernorm_scaling", RMS_OVER_DEPTH, [{"norm_type": "rms_norm"}]),
    ("mix_ln", Equation(mix_ln, norm_on_top), [{"mix_post": share} for share in ("0.25", "0.5,0.5", "0.4,0.9")]),
    ("sub_ln", Equation(sub_ln, norm_on_top), [{"sub_cross": "yes"}, {"sub_cross": "no"}]),
    ("normformer", Equation(normformer, norm_on_top), [{}, {"residual": "res_scale", "head_scale_at": "output"}]),
    ("rms_norm", normed_by(rms), [{}]),
    ("dyt", normed_by(tanh), [{}]),
    ("derf", normed_by(derf), [{}]),
    ("qk_norm", Equation(qk_norm, norm_on_top), [{}]),
    ("hybrid_norm", Equation(hybrid_norm, lambda at, x: rms(x, at.stack.layer_norm)), [{}]),
    ("layer_scale", Equation(lambda at, x: x + at.residual.alpha * at.branch(at.norm(x)), norm_on_top), [{}]),
    ("scale_norm", normed_by(lambda x, norm: of_length(x, norm.scale)), [{}]),
    ("cosine_attention", Equation(cosines, norm_on_top), [{}]),
    ("value_residual", Equation(pre, norm_on_top, attend=value_residual), [{}, {"value_residual_mix": "trained"}]),
    ("gated_attention", Equation(pre, norm_on_top, attend=gated), [{}, {"gated_by": "head"}]),
    ("siamese_norm", SIAMESE, [{}]),
    ("hyper_connections", HYPER, [{}, {"hyper_weights": "static", "hyper_streams": "3"}]),
    ("mhc", MANIFOLD, [{}, {"mhc_streams": "2"}]),
    ("attention_residuals", DEPTH_ATTENTION, [{}, {"attention_residual_blocks": "2"}]),
    ("admin", Equation(admin), [{}, {"admin_scale": "scalar"}, {"admin_omega": "frozen"}]),
    ("admin_torch", Equation(admin_torch), [{}, {"admin_torch_omega": "trained"}]),
    ("deepnet", Equation(deepnet), [{}]),
    ("deepscale", Equation(deepscale, norm_on_top), [{}, {"deepscale_k": 0.5}]),
    ("branch_norm", Equation(branch_norm), [{"branch_norm_updates": "1"}, {"branch_norm_updates": "5"}]),
    ("keel", Equation(keel), [{}, {"keel_alpha": "2.5"}]),
    ("resi_dual", RESI_DUAL, [{}, {"resi_dual_scale": "0.5", "resi_dual_alpha": "0.7"}]),
    ("span_norm", Equation(span), [{}]),
    ("b2t", Equation(b2t), [{}, {"b2t_skip": "all,residual"}, {"norm_position": "post,none"}]),
    ("b2t_skip_all", Equation(b2t), [{}]),
    ("b2t_without_ln", Equation(b2t), [{}]),
    ("b2t_without_ln", Equation(b2t, norm_on_top), [{"norm_on_top": "yes"}]),
    ("b2t_deep", Equation(b2t), [{}]),
    ("rezero", Equation(rezero), [{}, {"rezero_alpha_per": "sublayer"}]),
    ("rezero_alpha_one", Equation(rezero), [{}]),
    ("rezero_post_ln", Equation(rezero), [{}, {"rezero_alpha_per": "sublayer"}]),
    ("fixup", Equation(fixup, fixup_on_top, feed=fixup_feed_forward), [{}]),
    ("t_fixup", POST, [{}]),
    ("ds_init", POST, [{}]),
    ("looklinear", POST, [{}]),
    ("aan", Equation(post, attend=average_attention), [{}, {"aan_ffn": "yes"}]),
    ("aan", Equation(pre, norm_on_top, attend=average_attention), [{"norm_position": "pre", "aan_ffn": "yes"}]),
    ("dsinit_matt", Equation(post, attend=merged_attention), [{}]),
    ("dsinit_matt_self", JOINED, [{}]),
    ("dsinit_matt_aan", JOINED, [{}]),
    ("realformer", REALFORMER, [{}, {"realformer_logits": "mean"}]),
    (
        "ode",
        ODE,
        [{"ode_function": f, "ode_coefficients": c} for f in FUNCTIONS for c in ("gate", "trained", "standard")],
    ),
    ("ode_rk4", ODE, [{"ode_function": f} for f in FUNCTIONS]),
    ("pcformer", PCFORMER, [{}, {"pcformer_order": "4", "pcformer_function": "layer"}]),
    ("denseformer", DENSEFORMER, DENSEFORMER_OPTIONS),
    ("gtrans", Equation(pre, norm_on_top, mix=gtrans), [{}, {"gtrans_group": "3,1"}]),
    ("completep", Equation(completep, norm_on_top), [{}, {"depth_mup_alpha": "0.5", "depth_mup_base": "1"}]),
    ("dlcl", DLCL_PRE, DLCL_OPTIONS),
    ("dlcl_post_ln", DLCL_POST, DLCL_OPTIONS),
]


@pytest.mark.parametrize(
    ("method", "equation", "values"),
    [
        pytest.param(method, equation, values, id=f"{method} {' '.join(map(str, values.values()))}".strip())
        for method, equation, settings in EQUATIONS
        for values in settings
    ],
)
def test_stacks_and_a_language_model_are_the_equation(method: str, equation: Equation, values: dict[str, Any]) -> None:
    assert_is(f"{method}_transformer", equation, **values)


def test_every_method_is_there() -> None:
    """But sigma-Reparam, whose matrices are followed by power iterations: see its own test."""
    missing = set(METHODS) - {method for method, _, _ in EQUATIONS} - {"sigma_reparam"}
    assert not missing, f"EQUATIONS above needs a row for {sorted(missing)}: the sub-layer in plain torch"
