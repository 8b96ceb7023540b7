"""``lenpen_form``: how it is set, what it goes with, what it is refused with; without it fairseq stays fairseq."""

import math
from argparse import Namespace
from typing import Any

import pytest
import torch
from fairseq import options
from fairseq.dataclass.configs import GenerationConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.sequence_scorer import SequenceScorer
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from hydra import compose, initialize_config_module
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf

from fairseq_plugins.search.beam import LeanSearch
from tests import models
from tests.refusals import refused
from tests.search.searching import gnmt, log_prob, outspoken, sample_of, scores, search, settings, stock_search, words

NOT_ASKED_FOR: dict[str, dict[str, Any]] = {
    "not said": {},
    "fairseq": {"lenpen_form": "fairseq"},
    "lenpen": {"lenpen_form": "fairseq", "lenpen": 0.6},
    "unnormalized": {"lenpen_form": "fairseq", "unnormalized": True},
    "negative": {"lenpen_form": "fairseq", "lenpen": -1.0},
    "alignment": {"print_alignment": "soft"},
    "diverse": {"diverse_beam_groups": 3, "lenpen": 2},
    "reference": {"score_reference": True},
}


def test_fairseq_s_form_is_fairseq_untouched() -> None:
    members, data = [outspoken()], models.batch()
    for name, asked in NOT_ASKED_FOR.items():
        values = {**asked, "search": "fairseq"}
        generator = models.task().build_generator(members, settings(**values))
        assert type(generator) in (SequenceGenerator, SequenceGeneratorWithAlignment, SequenceScorer)
        ours, stock = search(members, data, **values), stock_search(members, data, **values)
        for mine, theirs in zip(ours, stock, strict=True):
            assert (words(mine), scores(mine)) == (words(theirs), scores(theirs)), name
            for one, other in zip(mine, theirs, strict=True):
                assert torch.equal(one["positional_scores"], other["positional_scores"])


def test_older_configurations_mean_fairseq_s_form() -> None:
    """A checkpoint stores the settings of its day, closed to new keys."""
    older = OmegaConf.structured(GenerationConfig)
    assert "lenpen_form" not in older
    OmegaConf.set_struct(older, True)
    assert type(models.task().build_generator([outspoken()], older)) is LeanSearch


def test_what_is_unknown_or_contradicts_is_refused() -> None:
    unknown = [({"lenpen_form": form}, "unknown --lenpen-form '") for form in ("GNMT", "wu", "", None, 0.6)]
    for values, message in (
        *unknown,
        ({"lenpen_form": "gnmd"}, "unknown --lenpen-form 'gnmd' (did you mean 'gnmt'?); legal values: fairseq, gnmt"),
        ({"search": "leen"}, "unknown --search 'leen' (did you mean 'lean'?); legal values: fairseq, lean"),
        ({"unnormalized": True}, "--lenpen-form gnmt asks for a length penalty and --unnormalized for none: drop one"),
        *(({"lenpen": alpha}, f"--lenpen {alpha}: ") for alpha in (-0.6, math.nan, math.inf)),
    ):
        asked = settings(**{"lenpen_form": "gnmt", **values})
        assert refused(models.task().build_generator, [outspoken()], asked).startswith(message)


# --score-reference


@pytest.mark.parametrize("members", [1, 2])
def test_a_reference_is_scored_by_equation_14(members: int) -> None:
    ensemble, data = [outspoken(seed=seed) for seed in range(1, members + 1)], models.batch()
    ours = search(ensemble, data, lenpen_form="gnmt", lenpen=0.6, score_reference=True)
    stock = stock_search(ensemble, data, score_reference=True)
    lengths = set()
    for (mine,), (theirs,), target in zip(ours, stock, data.target, strict=True):
        assert torch.equal(mine["tokens"], target[target.ne(models.dictionary().pad())])
        assert torch.equal(mine["positional_scores"], theirs["positional_scores"])
        length = len(mine["tokens"])
        assert float(mine["score"]) == pytest.approx(log_prob(mine) / gnmt(length, 0.6), rel=1e-5)
        assert float(theirs["score"]) == pytest.approx(log_prob(theirs) / length, rel=1e-5)
        lengths.add(length)
    assert len(lengths) > 1


# Tasks with a search of their own, and searches handed over


def whole(**values: Any) -> Namespace:
    return Namespace(**{**vars(GenerationConfig()), **values})


def test_a_task_of_another_package_is_refused_if_it_would_ignore_the_form_and_served_if_not() -> None:
    class Late(TranslationTask):
        def build_generator(self, models: Any, args: Any, **unused: Any) -> Any:
            return SequenceGenerator(models, self.target_dictionary, len_penalty=args.lenpen)

    class Adding(TranslationTask):
        def build_generator(self, models: Any, args: Any, **unused: Any) -> Any:
            return super().build_generator(models, args, extra_gen_cls_kwargs={"symbols_to_strip_from_output": {5}})

    late, adding = (kind(TranslationConfig(), models.dictionary(), models.dictionary()) for kind in (Late, Adding))
    assert type(late.build_generator([outspoken()], whole())) is SequenceGenerator
    line = refused(late.build_generator, [outspoken()], whole(lenpen_form="gnmt"))
    assert "Late searches with SequenceGenerator, which knows only its" in line
    generator = adding.build_generator([outspoken()], whole(lenpen_form="gnmt", lenpen=0.6))
    assert type(generator) is LeanSearch
    assert generator.gnmt_alpha == 0.6
    assert generator.symbols_to_strip_from_output == {5, models.dictionary().eos()}


def test_a_class_handed_over_is_replaced_or_refused() -> None:
    class Other(SequenceGenerator):
        pass

    build, members, asked = models.task().build_generator, [outspoken()], settings(lenpen_form="gnmt")
    assert type(build(members, asked, seq_gen_cls=SequenceGenerator)) is LeanSearch
    assert type(build(members, settings(), seq_gen_cls=Other)) is Other
    aligned = build(members, settings(print_alignment="soft"), extra_gen_cls_kwargs={"lm_weight": 0.5})
    assert (type(aligned), aligned.lm_weight) == (SequenceGeneratorWithAlignment, 0.5)
    line = refused(build, members, asked, seq_gen_cls=Other)
    assert "TranslationTask searches with Other, which knows only its own" in line


def test_allowed_words_still_bind_the_search() -> None:
    allowed = [models.dictionary().index("w3"), models.dictionary().eos()]
    generator = models.task().build_generator(
        [outspoken()], settings(lenpen_form="gnmt", beam=1), prefix_allowed_tokens_fn=lambda row, tokens: allowed
    )
    for (one,) in generator.generate([], sample_of(models.batch())):
        assert set(one["tokens"].tolist()) == set(allowed)
        assert float(one["score"]) == pytest.approx(log_prob(one) / gnmt(len(one["tokens"]), 1.0), rel=1e-5)


# Flags and configurations


def configured(*given: str, task: str = "translation") -> Any:
    arguments = ["data", "--task", task, "--path", "model.pt", *given]
    parser = options.get_generation_parser(default_task=task)
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, arguments))


def test_the_flag_becomes_a_setting_of_generation() -> None:
    """One of these tasks has settings of fairseq's own class among its own."""
    for task in ("translation", "audio_finetuning"):
        asked = configured("--lenpen-form", "gnmt", "--lenpen", "0.6", task=task).generation
        assert (asked.lenpen_form, asked.lenpen) == ("gnmt", 0.6)
        assert configured(task=task).generation.lenpen_form == "fairseq"


def composed(*overrides: str) -> Any:
    with initialize_config_module("fairseq.config", version_base="1.1"):
        return compose("config", overrides=list(overrides))


def test_hydra_knows_the_setting() -> None:
    assert composed().generation.lenpen_form == "fairseq"
    asked = composed("generation.lenpen_form=gnmt", "generation.lenpen=0.6")
    assert models.task().build_generator([outspoken()], asked.generation).gnmt_alpha == 0.6
    plain = OmegaConf.create(OmegaConf.to_container(asked, enum_to_str=True))
    assert plain.generation.lenpen_form == "gnmt"
    with pytest.raises(ConfigCompositionException) as caught:
        composed("generation.lenpen_form=gnmd")
    assert "expected one of [fairseq, gnmt]" in str(caught.value.__cause__)
