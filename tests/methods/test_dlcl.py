"""DLCL: mixtures against the equations, the paper's sizes, and memory that grows linearly with depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairseq_plugins.errors import UserError
from fairseq_plugins.methods.dlcl import LinearCombination, initial_weights
from tests.building import batch, count, logits, tiny

JOINED = {"share_all_embeddings": True}
FORMS = {"dlcl_transformer": "pre", "dlcl_post_ln_transformer": "post"}
every_form = pytest.mark.parametrize("arch", FORMS)
OPTIONS: list[dict[str, str]] = [
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


# Sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arch", "plain"), [("dlcl", "pre_ln"), ("dlcl_post_ln", "post_ln")])
def test_a_stack_has_a_matrix_and_as_many_norms_as_layers_more(arch: str, plain: str) -> None:
    base = count(f"{plain}_transformer", **JOINED)
    assert count(f"{arch}_transformer", **JOINED) - base == 2 * (49 + 6144)  # (L+1)^2 + 2dL, L = 6, d = 512
    each = {"dlcl_weights": "dimension"}
    assert count(f"{arch}_transformer", **JOINED, **each) - base == 2 * (49 * 512 + 6144)
    deep = {"encoder_layers": 30}
    more = count(f"{arch}_transformer", **JOINED, **deep) - count(f"{plain}_transformer", **JOINED, **deep)
    assert more == 31**2 + 2 * 512 * 30 + 49 + 6144


@pytest.mark.parametrize(
    ("arch", "layers", "printed", "exact"),
    [("pre_ln", 20, 106, 105.5), ("dlcl_post_ln", 25, 121, 121.3), ("dlcl", 30, 137, 137.1)],
)
def test_models_of_the_paper(arch: str, layers: int, printed: int, exact: float) -> None:
    """Deep encoders, a decoder of six layers and about 33,700 types shared by all embeddings, WMT16 En-De."""
    found = count(f"{arch}_transformer_wmt_en_de", 33_700, 33_700, **JOINED, encoder_layers=layers) / 1e6
    assert round(found, 1) == exact
    assert round(found) == printed


# Weights of a new model --------------------------------------------------------------------------------------------


def test_initial_weights() -> None:
    a, b = 1 / 2, 1 / 3
    whole = [[1, 0, 0, 0], [a, a, 0, 0], [b, b, b, 0], [1 / 4] * 4]
    assert torch.equal(initial_weights(4, 4, "average"), torch.tensor(whole))
    of_two = [[1.0, 0, 0, 0], [a, a, 0, 0], [0, a, a, 0], [0, 0, a, a]]
    assert torch.equal(initial_weights(4, 2, "average"), torch.tensor(of_two))
    assert torch.equal(initial_weights(3, 3, "one"), torch.tensor([[1.0, 0, 0], [1, 1, 0], [1, 1, 1]]))
    assert torch.equal(initial_weights(3, 1, "one"), torch.eye(3))


@every_form
def test_shapes_and_start(arch: str) -> None:
    for weights, size in (("scalar", 1), ("dimension", 16)):
        model = tiny(arch, dlcl_weights=weights)
        for stack, states in ((model.encoder, 4), (model.decoder, 3)):
            matrix = stack.history.weight
            assert matrix.shape == (states, states, size)
            for row in range(states):
                expected = torch.zeros(states, size)
                expected[: row + 1] = 1 / (row + 1)
                assert torch.equal(matrix[row], expected)
            assert len(stack.history.layer_norms) == states - 1


def test_the_norm_on_top_is_that_of_the_plain_method() -> None:
    assert tiny("dlcl_transformer").encoder.layer_norm is not None
    assert tiny("dlcl_transformer").decoder.layer_norm is not None
    assert tiny("dlcl_post_ln_transformer").encoder.layer_norm is None
    assert tiny("dlcl_post_ln_transformer").decoder.layer_norm is None


# Equations ---------------------------------------------------------------------------------------------------------


def watch(model: nn.Module) -> dict[str, list[Tensor]]:
    """y_0 and the outputs of all layers, the inputs of all layers and the top of either stack, of one forward pass."""
    seen: dict[str, list[Tensor]] = {}
    handles = []
    for name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        inputs, outputs = seen.setdefault(f"{name} inputs", []), seen.setdefault(f"{name} outputs", [])

        def note(_: Any, arguments: Any, result: Any, inputs: list = inputs, outputs: list = outputs) -> None:
            inputs.append(arguments[0])
            outputs.append(result[0])

        handles += [layer.register_forward_hook(note) for layer in stack.layers]
    with torch.no_grad():
        data = batch()
        encoder_out = model.encoder(data.src_tokens, data.src_lengths, return_all_hiddens=True)
        features, extra = model.decoder(data.prev_output_tokens, encoder_out, features_only=True)
    for handle in handles:
        handle.remove()
    seen["encoder outputs"].insert(0, encoder_out["encoder_states"][0])
    seen["decoder outputs"].insert(0, extra["inner_states"][0])
    seen["encoder top"], seen["decoder top"] = encoder_out["encoder_out"], [features.transpose(0, 1)]
    return seen


def spread(model: nn.Module) -> None:
    """Move LayerNorms away from their start, so that it matters which one is used."""
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.uniform_(module.weight, 0.5, 2.0)
            nn.init.normal_(module.bias)


def used(row: int, window: int) -> range:
    return range(max(0, row + 1 - window) if window else 0, row + 1)


def mixture(
    form: str, history: nn.Module, outputs: list[Tensor], weights: Callable[[int, int], Any], row: int, window: int
) -> Tensor:
    """Row ``row`` of the equations, with the LayerNorms of ``history``: LN_k and LN_l have index k - 1 and l - 1."""
    total = torch.zeros_like(outputs[0])
    for k in used(row, window):
        y = history.layer_norms[k - 1](outputs[k]) if form == "pre" and k > 0 else outputs[k]
        total = total + weights(row, k) * y
    return history.layer_norms[row - 1](total) if form == "post" and row > 0 else total


def check_mixtures(arch: str, model: nn.Module, window: int, weights: Callable[[nn.Module, int, int], Any]) -> None:
    seen = watch(model.eval())
    for name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        outputs, inputs = seen[f"{name} outputs"], seen[f"{name} inputs"]
        assert len(outputs) == len(inputs) + 1 == len(stack.layers) + 1

        def of_stack(row: int, k: int, history: nn.Module = stack.history) -> Any:
            return weights(history, row, k)

        for row, found in enumerate(inputs):
            expected = mixture(FORMS[arch], stack.history, outputs, of_stack, row, window)
            torch.testing.assert_close(found, expected)
        top = mixture(FORMS[arch], stack.history, outputs, of_stack, len(inputs), window)
        if stack.layer_norm is not None:
            top = stack.layer_norm(top)
        torch.testing.assert_close(seen[f"{name} top"][0], top)


@every_form
@pytest.mark.parametrize(("window", "normalised"), [(0, "no"), (1, "no"), (2, "no"), (0, "yes"), (2, "yes")])
def test_every_input_of_a_new_model_is_the_mean_of_its_history(arch: str, window: int, normalised: str) -> None:
    model = tiny(arch, dlcl_window=str(window), dlcl_normalised=normalised)
    spread(model)
    check_mixtures(arch, model, window, lambda history, row, k: 1 / len(used(row, window)))


@every_form
def test_start_at_one_is_the_sum(arch: str) -> None:
    model = tiny(arch, dlcl_init="one")
    spread(model)
    check_mixtures(arch, model, 0, lambda history, row, k: 1)


@every_form
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_trained_weights_mix_by_the_equations(arch: str, options: dict[str, str]) -> None:
    model = tiny(arch, **options)
    spread(model)
    window = int(options.get("dlcl_window", 0))
    for stack in (model.encoder, model.decoder):
        nn.init.normal_(stack.history.weight)

    def weight(history: nn.Module, row: int, k: int) -> Tensor:
        if options.get("dlcl_normalised") != "yes":
            return history.weight[row, k]
        exponentials = history.weight[row].exp()
        return exponentials[k] / sum(exponentials[j] for j in used(row, window))

    with torch.no_grad():
        check_mixtures(arch, model, window, weight)


def test_a_window_of_the_whole_history_is_no_window() -> None:
    one, other = tiny("dlcl_transformer", dlcl_window="4,3").eval(), tiny("dlcl_transformer").eval()
    assert torch.equal(logits(one, batch()), logits(other, batch()))


def test_normalised_weights_do_not_change_with_a_shift_of_their_row() -> None:
    model = tiny("dlcl_transformer", dlcl_normalised="yes").eval()
    before = logits(model, batch())
    with torch.no_grad():
        model.encoder.history.weight.add_(torch.tensor([1.0, -2.0, 3.0, 0.5]).view(4, 1, 1))
    torch.testing.assert_close(logits(model, batch()), before)
    plain = tiny("dlcl_transformer").eval()
    with torch.no_grad():
        plain.encoder.history.weight.add_(1.0)
    assert (logits(plain, batch()) - before).abs().max() > 1e-2


@every_form
@torch.no_grad()
def test_the_first_entry_scales_the_embedding(arch: str) -> None:
    model = tiny(arch).eval()
    before = watch(model)
    for stack in (model.encoder, model.decoder):
        stack.history.weight[0, 0] = 3.0
    after = watch(model)
    for name in ("encoder", "decoder"):
        torch.testing.assert_close(after[f"{name} inputs"][0], 3 * before[f"{name} outputs"][0])


# Gradients ---------------------------------------------------------------------------------------------------------


@every_form
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_used_weight_gets_a_gradient_and_no_other(arch: str, options: dict[str, str]) -> None:
    model = tiny(arch, dropout=0.0, **options)
    window = int(options.get("dlcl_window", 0))
    with torch.no_grad():
        for stack in (model.encoder, model.decoder):
            stack.history.weight.add_(0.1 * torch.rand_like(stack.history.weight))
    logits(model, batch()).square().sum().backward()
    for stack in (model.encoder, model.decoder):
        gradient = stack.history.weight.grad
        for row in range(gradient.size(0)):
            # One weight that is normalised is one, whatever is trained; of the others each dimension counts.
            alone = options.get("dlcl_normalised") == "yes" and len(used(row, window)) == 1
            for k in range(gradient.size(1)):
                expected = k in used(row, window) and not alone
                assert bool(gradient[row, k].all()) == bool(gradient[row, k].any()) == expected, (row, k)
        for norm in stack.history.layer_norms:
            assert bool(norm.weight.grad.any())
            assert bool(norm.bias.grad.any())


# Memory ------------------------------------------------------------------------------------------------------------


def saved_bytes(run: Callable[[], Tensor], parameters: list[nn.Parameter]) -> int:
    """Bytes of all storages that autograd keeps for the backward pass of ``run``, each once, without parameters."""
    own = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    storages: dict[int, int] = {}
    alive: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        alive.append(tensor)  # so that no address is used twice
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        alive.append(run())
    return sum(storages.values())


def through(history: nn.Module, layers: int, x: Tensor) -> Tensor:
    """The loop of a stack over layers that save one state each, their output."""
    states = [x]
    for _ in range(layers):
        states = history.remember(states, torch.tanh(history(states)))
    return history(states)


class Stacked(LinearCombination):
    """The same mixture made of one tensor of all states: what must not be done."""

    def forward(self, states: list[Tensor]) -> Tensor:
        return (torch.stack(states) * self.weight[len(states) - 1, : len(states)].view(-1, 1, 1, 1)).sum(dim=0)


def bytes_of_history(kind: type[nn.Module] | None, arch: str, layers: int, weights: str) -> int:
    width = 16
    history = tiny(arch, encoder_layers=layers, dlcl_weights=weights).encoder.history
    if kind is not None:
        history = kind(layers, width, 1, layers + 1, False, "average")
    return saved_bytes(lambda: through(history, layers, torch.randn(7, 3, width)), list(history.parameters()))


@every_form
@pytest.mark.parametrize("weights", ["scalar", "dimension"])
def test_memory_of_a_history_is_linear_in_its_depth(arch: str, weights: str) -> None:
    state = 7 * 3 * 16 * 4
    eight, sixteen, twenty_four = (bytes_of_history(None, arch, layers, weights) for layers in (8, 16, 24))
    assert sixteen - eight == twenty_four - sixteen
    # Two states a layer, y_k and what is normalised, and a mean and a deviation for each position.
    assert sixteen - eight == 8 * (2 * state + 2 * 7 * 3 * 4)


def test_memory_of_stacked_states_would_not_be() -> None:
    state = 7 * 3 * 16 * 4
    arguments = (Stacked, "dlcl_transformer")
    eight, sixteen, twenty_four = (bytes_of_history(*arguments, layers, "scalar") for layers in (8, 16, 24))
    assert (twenty_four - sixteen) - (sixteen - eight) == 8 * 8 * state


@every_form
def test_memory_of_a_training_step_is_linear_in_depth(arch: str) -> None:
    def needed(layers: int) -> int:
        model = tiny(arch, encoder_layers=layers, decoder_layers=layers, dropout=0.1).train()
        return saved_bytes(lambda: logits(model, batch()).sum(), list(model.parameters()))

    four, eight, twelve = needed(4), needed(8), needed(12)
    assert eight > four
    assert eight - four == twelve - eight


@torch.no_grad()
@every_form
def test_decoding_caches_keys_and_values_alone(arch: str) -> None:
    caches = []
    for name in (arch, "post_ln_transformer"):
        model, data, cache = tiny(name).eval(), batch(), {}
        encoder_out = model.encoder(data.src_tokens, data.src_lengths)
        for step in (1, 2, 3):
            model.decoder(data.prev_output_tokens[:, :step], encoder_out, incremental_state=cache)
        entries = [entry for state in cache.values() for entry in state.items()]
        caches.append([(key, None if value is None else tuple(value.shape)) for key, value in entries])
    assert len(caches[0]) == 2 * 2 * 3
    assert caches[0] == caches[1]


@every_form
def test_what_is_out_of_the_window_is_forgotten(arch: str) -> None:
    history = tiny(arch, dlcl_window="2").encoder.history
    states = [torch.randn(2, 2, 16)]
    for _ in range(3):
        before = list(states)
        states = history.remember(states, torch.randn(2, 2, 16))
        assert len(states) == len(before) + 1
        assert torch.equal(states[-2], before[-1])
    assert [state.numel() for state in states] == [0, 0, 64, 64]


# Half precision, messages ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"norm": "none"},
            "--history dlcl mixes the outputs of LayerNorms: it needs --norm pre or --norm post, not none",
        ),
        (
            {"norm": "pre,branch"},
            "--history dlcl mixes the outputs of LayerNorms: it needs --norm pre or --norm post, not branch",
        ),
        ({"dlcl_window": "-1"}, "--dlcl-window must be at least 0, not -1; 0 is the whole history"),
        ({"dlcl_window": "1.5"}, "--dlcl-window takes a number, not '1.5'"),
        (
            {"dlcl_normalised": "yes", "dlcl_init": "one"},
            "--dlcl-normalised yes starts as the average whatever --dlcl-init says: drop --dlcl-init one",
        ),
        (
            {"dlcl_normalised": "yes", "dlcl_window": "1"},
            "--dlcl-window 1 leaves each mixture one weight, which --dlcl-normalised yes makes 1: drop one of the two",
        ),
        (
            {"encoder_layerdrop": 0.1},
            "--history dlcl needs every layer's output: it cannot be combined with --encoder-layerdrop",
        ),
    ],
    ids=str,
)
def test_refusals(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        tiny("dlcl_transformer", **values)
    assert caught.value.problems == (message,)


def test_stacks_may_differ() -> None:
    model = tiny("dlcl_transformer", norm="post,pre", dlcl_window="1,0", dlcl_weights="dimension,scalar")
    assert (model.encoder.layer_norm, model.decoder.layer_norm is None) == (None, False)
    assert (model.encoder.history.window, model.decoder.history.window) == (1, 3)
    assert [stack.history.weight.size(2) for stack in (model.encoder, model.decoder)] == [16, 1]
    half = tiny("pre_ln_transformer", history="dlcl,last")
    assert not [name for name, _ in half.decoder.named_parameters() if "history" in name]
    assert half.encoder.history.weight.shape == (4, 4, 1)
