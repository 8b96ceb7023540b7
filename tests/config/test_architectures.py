"""Architectures of every family: names, sizes and choices, and what a user says against what one presets."""

import argparse
import itertools
from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_plugins.core.architectures import refusals
from fairseq_plugins.core.config import SIZE_FIELDS, plain_namespace, resolve
from fairseq_plugins.core.fields import OLD_NAMES
from fairseq_plugins.core.language_model import DeepTransformerLanguageModel as LM
from fairseq_plugins.core.method import METHODS, Axis, Method, Stack
from fairseq_plugins.core.model import DeepTransformerModel
from fairseq_plugins.core.speech_to_text import SPEECH_TO_TEXT, DeepS2TTransformerModel
from fairseq_plugins.errors import flag
from tests.models import WORDS, count, methods_of, settings, tiny
from tests.refusals import problems_of

DEPTHS = {"": (6, 6), "_12": (12, 12), "_18": (18, 18), "_60_12": (60, 12), "_100": (100, 100)}
ENWIK8 = {"_enwik8_12": (12, 512), "_enwik8_64": (64, 256), "_enwik8_128": (128, 256)}
"""Layers and width of the models in ReZero's appendix A."""
SIZES = {
    DeepTransformerModel: ("", "_iwslt_de_en", "_wmt_en_de", "_wmt_en_de_big"),
    LM: ("", "_big", "_gpt", "_wiki103", *ENWIK8),
    DeepS2TTransformerModel: ("", "_xs", "_s", "_sp", "_m", "_mp", "_l", "_lp"),
}
"""But for ENWIK8 they are fairseq's: ``tests/equivalence`` compares every setting."""


def test_methods_that_make_no_language_model_are_refused_when_they_are_asked_for() -> None:
    """There is no cross-attention to merge with, and no encoder for a hybrid of two stacks or for a solver."""
    refused = set(METHODS) - set(methods_of(LM))
    merged, encoders = {"dsinit_matt", "dsinit_matt_self", "dsinit_matt_aan"}, {"ode", "ode_rk4", "pcformer"}
    assert refused == {*merged, *encoders, "hybrid_ln", "t_fixup"}
    assert methods_of(DeepS2TTransformerModel) == ["deep", *METHODS]
    for method in refused:
        axes = {axis.value: METHODS[method].choice(axis) for axis in Axis}
        by_parts = problems_of(tiny, "deep_transformer_lm", **axes)
        assert problems_of(settings, f"{method}_transformer_lm_gpt") == by_parts
    foreign = Method("", "", "", "", options={"encoder_layers": 30})
    config_class = LM.config_class
    assert refusals(config_class, foreign) == ["deep_transformer_lm has no setting 'encoder_layers'"]


def test_choices_and_depths_of_translation() -> None:
    for size, depth in itertools.product(SIZES[DeepTransformerModel], DEPTHS):
        dropout = 0.3 if size.endswith("_big") else 0.1
        for name, method in METHODS.items():
            config = settings(f"{name}_transformer{size}{depth}")
            assert (config.dropout, config.activation_dropout) == (method.options.get("dropout", dropout), 0.0)
            designs = resolve(plain_namespace(config, DeepTransformerModel.config_class), DeepTransformerModel.family)
            for half, (stack, layers) in enumerate(zip(Stack, DEPTHS[depth], strict=True)):
                assert getattr(config, f"{stack.value}_layers") == designs[stack].layers == layers
                chosen = {axis: designs[stack].choice(axis) for axis in Axis}
                assert chosen == {axis: method.choice(axis).split(",")[-half] for axis in Axis}, name


def test_models_for_characters() -> None:
    """ReZero's appendix A. A layer has 12 d^2 + 9 d parameters (4 d^2 + 4 d, 8 d^2 + 5 d), alpha, and no LayerNorm."""
    for size, (layers, width) in ENWIK8.items():
        config = settings(f"rezero_transformer_lm{size}")
        (design,) = resolve(plain_namespace(config, LM.config_class), LM.family).values()
        assert (design.stack, design.encoder_layers, design.layers) == (Stack.DECODER, 0, layers)
        assert (design.width, design.ffn_width, design.heads) == (width, 4 * width, 2)
        assert (config.dropout, config.attention_dropout, config.activation_dropout) == (0.2,) * 3
        assert config.activation_fn == "gelu"
        parameters = count(f"rezero_transformer_lm{size}", share_decoder_input_output_embed=True)
        assert parameters == layers * (12 * width**2 + 9 * width + 1) + WORDS * width


def test_a_second_pass_changes_nothing() -> None:
    """fairseq applies an architecture to the flags and once more before it builds the model."""
    archs = [name for name, model in ARCH_MODEL_REGISTRY.items() if model is DeepTransformerModel]
    archs += [f"rezero_transformer_lm{size}" for size in SIZES[LM]]
    archs += [f"b2t_s2t_transformer{size}" for size in SIZES[DeepS2TTransformerModel]]
    changed = []
    for arch in archs:
        once = settings(arch)
        changed += [arch] if vars(settings(**vars(once))) != vars(once) else []
    assert changed == []


def test_what_the_user_says_wins() -> None:
    sizes = {"encoder_layers": 4, "decoder_layers": 3, "encoder_embed_dim": 32, "decoder_ffn_embed_dim": 7}
    choices = {"dropout": 0.0, "norm_position": "post,post", "base_init": "fairseq", "admin_profile": "paper"}
    config = settings("admin_transformer_iwslt_de_en_18", **sizes, **choices)
    preset = {"decoder_embed_dim": 512, "encoder_ffn_embed_dim": 1024, "residual": "admin"}
    assert vars(config).items() >= {**sizes, **choices, **preset}.items()
    said = {"decoder_layers": 3, "dropout": 0.0, "adaptive_softmax_cutoff": "10"}
    said |= {"tie_adaptive_weights": False, "tie_adaptive_proj": False}
    config = settings("admin_transformer_lm_wiki103", **said)
    assert vars(config).items() >= {**said, "decoder_embed_dim": 1024, "adaptive_input_cutoff": "20000,60000"}.items()


def test_what_is_not_said_follows_stock() -> None:
    """In ``transformer`` the decoder's widths follow the encoder's; in the sizes of the corpora they do not.

    For speech the rates inside a layer follow the dropout, too.
    """
    widths = ("encoder_embed_dim", "encoder_ffn_embed_dim", "decoder_embed_dim", "decoder_ffn_embed_dim")
    translation: list[dict[str, Any]] = [{}, *({width: 64} for width in widths)]
    translation += [{"encoder_embed_dim": 64, "decoder_ffn_embed_dim": 32}]
    translation += [{"encoder_layers": 2}, {"encoder_attention_heads": 2}]
    speech: list[dict[str, Any]] = [{"dropout": 0.3}, {"dropout": 0.3, "attention_dropout": 0.0}]
    speech += [{"encoder_embed_dim": 64}, {"encoder_ffn_embed_dim": 64, "decoder_layers": 2}]
    speech += [{"conv_kernel_sizes": "3"}]
    presettable = [name for name in SPEECH_TO_TEXT.presettable if hasattr(settings("s2t_transformer"), name)]
    assert len(presettable) > 15
    archs = ("transformer", "transformer_iwslt_de_en", "transformer_wmt_en_de_big")
    cases = [("post_ln", *case, SIZE_FIELDS) for case in itertools.product(archs, translation)]
    speech_archs = ("s2t_transformer", "s2t_transformer_s")
    cases += [("pre_ln", *case, presettable) for case in itertools.product(speech_archs, speech)]
    for method, arch, said, names in cases:
        ours, stock = settings(f"{method}_{arch}", **said), settings(arch, **said)
        assert {name: getattr(ours, name) for name in names} == {name: getattr(stock, name) for name in names}, said


OF_TASK = {"--max-source-positions", "--max-target-positions"}
"""Flags of stock's model that the task declares as well; ours leaves them to the task."""


def flags(arch: str) -> dict[str, argparse.Action]:
    """The flags of an architecture; which ours adds to stock's is recorded in ``tests/recorded``."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    ARCH_MODEL_REGISTRY[arch].add_args(parser)
    return {name: action for action in parser._actions for name in action.option_strings}


def test_flags_are_those_of_stock_and_of_the_parts() -> None:
    # Translation adds one that stock's language model has, and its model for speech has not.
    ours, theirs = flags("deep_transformer"), flags("transformer")
    added = set(ours) - set(theirs) - {"--decoder-input-dim"}
    assert set(theirs) - set(ours) <= OF_TASK
    for stock in ("transformer_lm", "s2t_transformer"):
        assert set(flags(f"deep_{stock}")) - set(flags(stock)) == added
        assert set(flags(stock)) - set(flags(f"deep_{stock}")) == set()
    kinds = {name: [(type(of[name]), of[name].choices) for of in (ours, theirs)] for name in set(ours) & set(theirs)}
    assert {name: both for name, both in kinds.items() if both[0] != both[1]} == {}
    assert {"--norm-position", "--residual", "--word-dropout"} <= added
    without = [name for name in added if "ENCODER,DECODER" not in str(ours[name].help)]
    assert set(without) == {"--embedding-dropout", *map(flag, OLD_NAMES)}, "it is for the whole model"
    assert [ours[flag(name)].help for name in OLD_NAMES] == [argparse.SUPPRESS] * 4


def test_a_method_is_the_sum_of_its_parts() -> None:
    """``--arch deep_transformer`` with the method's choices said one by one is the method."""
    differing = []
    for name, method in METHODS.items():
        chosen = {axis.value: method.choice(axis) for axis in Axis}
        options = {option: value if option == "dropout" else str(value) for option, value in method.options.items()}
        whole = tiny(f"{name}_transformer").state_dict()
        parts = tiny("deep_transformer", **chosen, **options).state_dict()
        same = list(whole) == list(parts) and all(bool((value == parts[key]).all()) for key, value in whole.items())
        differing += [] if same else [name]
    assert differing == []
