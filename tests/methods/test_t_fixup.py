"""T-Fixup: the paper's constants, every matrix and table that they scale, and the advice against a warm-up."""

from __future__ import annotations

import dataclasses
import math
from argparse import Namespace
from typing import Any

import pytest
import torch
from fairseq.optim.lr_scheduler import LR_SCHEDULER_DATACLASS_REGISTRY
from omegaconf import DictConfig, OmegaConf
from torch import nn

from fairseq_plugins.core.method import PARTS, Axis
from fairseq_plugins.methods.t_fixup import advice
from tests.methods.test_initialisation import FUSED, XAVIER, XAVIER_FFN, D, assert_model, model

N, M = 5, 4  # of the models below


def scaled(query_and_key: float) -> dict[str, dict[str, float]]:
    """Bounds of the uniform distributions: v, out, fc1 and fc2 from Xavier with gain 1."""
    bounds: dict[str, dict[str, float]] = {}
    for stack, factor, sites in (
        ("encoder", 0.67 / N**0.25, ["self_attn"]),
        ("decoder", 1 / (9 * M) ** 0.25, ["self_attn", "encoder_attn"]),
    ):
        bounds[stack] = {"fc1": XAVIER_FFN * factor, "fc2": XAVIER_FFN * factor}
        for site in sites:
            bounds[stack] |= {f"{site}.{one}_proj": query_and_key for one in "qk"}
            bounds[stack] |= {f"{site}.v_proj": XAVIER * factor, f"{site}.out_proj": XAVIER * factor}
    return bounds


def test_matrices_of_the_text_and_as_released() -> None:
    """Xavier for all, v, out and feed-forward scaled, no biases.

    As released, q and k keep 1/sqrt(2), which v does not; the biases of q, k and v are random.
    """
    assert_model(model("t_fixup_transformer"), scaled(query_and_key=XAVIER))
    built = model("t_fixup_transformer", t_fixup_rule="released", base_init="xavier_biased")
    random = {f"{site}.{one}_proj": 1 / math.sqrt(D) for site in ("self_attn", "encoder_attn") for one in "qkv"}
    assert_model(built, scaled(query_and_key=FUSED), random)


def tables(built: nn.Module) -> list[nn.Parameter]:
    """Token tables and output projection, each tensor once."""
    modules = (built.encoder.embed_tokens, built.decoder.embed_tokens, built.decoder.output_projection)
    return list({id(module.weight): module.weight for module in modules}.values())


def test_tables() -> None:
    """Stock draws N(0, d^(-1/2)), and the same numbers here; tied and shared tables are scaled once."""
    of_encoder, of_decoder = 1 / (9 * N) ** 0.25, 1 / (9 * M) ** 0.25
    for sharing, factors in (
        ({}, [of_encoder, of_decoder, 1.0]),
        ({"share_decoder_input_output_embed": True}, [of_encoder, of_decoder]),
        ({"share_all_embeddings": True}, [of_encoder]),
    ):
        ours, stock = tables(model("t_fixup_transformer", **sharing)), tables(model("transformer", **sharing))
        for mine, drawn, factor in zip(ours, stock, factors, strict=True):
            torch.testing.assert_close(mine, drawn * factor, rtol=1e-6, atol=0)
            assert float(mine[4:].detach().std()) == pytest.approx(D**-0.5 * factor, rel=0.06)
        assert not ours[0][1].any(), "the row of the pad"


def test_one_stack_alone() -> None:
    """A shared table follows the encoder's choice."""
    plain = {"base_init": "xavier", "norm": "none", "share_all_embeddings": True}
    stock = tables(model("transformer", share_all_embeddings=True))[0]
    built = model("deep_transformer", **plain, init="t_fixup,keep")
    torch.testing.assert_close(tables(built)[0], stock / (9 * N) ** 0.25, rtol=1e-6, atol=0)
    built = model("deep_transformer", **plain, init="keep,t_fixup")
    assert torch.equal(tables(built)[0], stock)
    assert_model(built, {"decoder": scaled(query_and_key=XAVIER)["decoder"]})


def test_merged_attention_is_scaled_from_its_own_gain() -> None:
    """Its q, k and v are drawn with gain 1 to begin with."""
    expected = scaled(query_and_key=XAVIER)["decoder"]
    expected = {name: bound for name, bound in expected.items() if not name.startswith("self_attn")}
    assert_model(model("t_fixup_transformer", attention="matt"), {"decoder": expected})


def training(name: str, values: dict[str, Any]) -> DictConfig:
    """What fairseq hands to advice: the schedule by its own dataclass, learning rate 0.0005, 1000 updates."""
    schedule = dataclasses.asdict(LR_SCHEDULER_DATACLASS_REGISTRY[name]())
    optimization = {"lr": [0.0005], "max_update": 1000}
    return OmegaConf.create({"optimization": optimization, "lr_scheduler": {**schedule, "_name": name, **values}})


WITH_WARM_UP: list[tuple[str, dict[str, Any], int]] = [
    ("inverse_sqrt", {}, 4000),  # fairseq's defaults, from 0
    ("inverse_sqrt", {"warmup_updates": 4000, "warmup_init_lr": 1e-7}, 4000),
    ("inverse_sqrt", {"warmup_updates": 2}, 2),
    ("fixed", {"warmup_updates": 300}, 300),
    ("cosine", {"warmup_updates": 300}, 300),
    ("tri_stage", {"warmup_steps": 300}, 300),
]
WITHOUT: list[tuple[str, dict[str, Any]]] = [
    ("inverse_sqrt_without_warmup", {}),
    ("inverse_sqrt", {"warmup_updates": 4000, "warmup_init_lr": 0.0005}),  # constant, then falling
    ("inverse_sqrt", {"warmup_updates": 1}),
    ("fixed", {}),
    ("cosine", {}),
    ("cosine", {"warmup_updates": 300, "warmup_init_lr": 0.0005}),
    ("tri_stage", {}),
    ("pass_through", {}),
]


def test_a_warm_up_is_advised_against_and_nothing_else() -> None:
    for name, values, updates in WITH_WARM_UP:
        assert advice(training(name, values)) == [
            f"T-Fixup is meant to train without warm-up, as in its paper, but --lr-scheduler {name} warms up for "
            f"{updates} updates: --lr-scheduler inverse_sqrt_without_warmup is the paper's schedule"
        ]
    assert [name for name, values in WITHOUT if advice(training(name, values))] == []
    # Without a dataclass it has the flags of the command.
    config = Namespace(optimization=Namespace(lr=[0.0005]), lr_scheduler=Namespace(_name="manual"))
    assert advice(config) == []


def test_only_this_part_gives_it() -> None:
    """A method with another initialisation may warm up."""
    config = training("inverse_sqrt", {})
    assert [name for name, part in PARTS[Axis.INIT].items() if part.advice(config)] == ["t_fixup"]
