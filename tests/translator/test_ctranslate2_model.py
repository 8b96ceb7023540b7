"""Every case is exported and computes the same in CTranslate2, or is refused for a reason."""

from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("ctranslate2")

from fairseq_plugins.core.config import plain_namespace
from fairseq_plugins.core.method import Axis
from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.translator.ctranslate2_model import (
    ModelConverter,
    obstacles_to_export,
    without_scaled_streams,
)
from fairseq_plugins.tools.translator.engines import CTranslate2Engine, SearchOptions
from fairseq_plugins.tools.translator.equivalence import LARGEST_DIFFERENCE
from fairseq_plugins.tools.translator.fairseq_engine import FairseqEngine
from tests.models import CASES, configuration, dictionary, task, trained
from tests.representatives import STRUCTURE, for_each

EXPORTED = {"post_ln", "pre_ln", "deepnet", "admin", "rezero", "t_fixup", "fixup"}
"""Cases that must never be refused; the others are refused with a reason, or are the same."""
REFUSED = {
    "b2t": "--residual b2t",
    "dlcl": "--layer-aggregation dlcl",
    "realformer": "--attention realformer",
    "dsinit_matt": "--attention matt",
    "aan": "--attention aan",
    "gpt2_norm": "--norm-position branch",
    "norm_on_top": "sub-layers with a LayerNorm",
    "qk_norm": "--attention qk_norm",
    "rms_norm": "--norm-type rms_norm",
    "normformer_released": "--norm-position normformer",
    "scale_norm": "--norm-type scale_norm",
    "cosine_attention": "--attention cosine",
}
SEARCH = {"beam": 4, "lenpen": 1.0, "lenpen_form": "fairseq", "max_len_a": 0.0, "max_len_b": 20, "min_len": 1}
HOW = SearchOptions({**SEARCH, "no_repeat_ngram_size": 0}, device="cpu")


def sentences(count: int, longest: int, seed: int) -> list[list[str]]:
    draw, words = torch.Generator().manual_seed(seed), dictionary()
    lengths = [1 + number * (longest - 1) // (count - 1) for number in range(count)]
    numbers = (torch.randint(words.nspecial, len(words), (length,), generator=draw) for length in lengths)
    return [[words[number] for number in sentence.tolist()] for sentence in numbers]


def exported(model: Any, path: Path, quantization: str | None = None) -> CTranslate2Engine:
    options = vars(plain_namespace(Namespace(**model.given), type(model).config_class))
    plain = without_scaled_streams(model, options, path)
    ModelConverter(plain).convert(str(path), quantization=quantization)
    return CTranslate2Engine(path, HOW, model.max_positions()[1])


def trained_with_options(case: str, *flags: str) -> Any:
    model = trained(case, *flags)
    model.given = vars(configuration(*CASES[case], *flags))
    return model


def largest_difference(model: Any, engine: CTranslate2Engine, longest: int = 12) -> float:
    """In proportion to the log-probability where that is above 1."""
    ours = FairseqEngine(model, task(), HOW)
    source, target = (sentences(8, longest, seed) for seed in (3, 4))
    here, there = ours.score(source, target), engine.score(source, target)
    assert [len(each) for each in here] == [len(each) + 1 for each in target]
    pairs = [(a, b) for one, other in zip(here, there, strict=True) for a, b in zip(one, other, strict=True)]
    return max(abs(a - b) / max(1.0, abs(a)) for a, b in pairs)


@for_each("case", sorted(CASES), *(axis for axis in STRUCTURE if axis is not Axis.NORM_TYPE))
def test_a_case_is_the_same_in_ctranslate2_or_refused(case: str, tmp_path: Path) -> None:
    model = trained_with_options(case)
    problems = obstacles_to_export(model)
    if problems:
        assert case not in EXPORTED, problems
        assert any(problem.startswith(REFUSED.get(case, "")) for problem in problems)
        assert not {"--norm-position pre", "--norm-position post"} & {*problems}, "it has these"
        return
    # Rounding of float32 in five layers of width 16 stays below 1e-5.
    assert largest_difference(model, exported(model, tmp_path / "model")) < 0.1 * LARGEST_DIFFERENCE


@pytest.mark.parametrize(
    ("case", "flags"),
    [
        ("admin", "--share-all-embeddings"),
        ("pre_ln", "--share-decoder-input-output-embed --encoder-learned-pos --decoder-learned-pos"),
        ("admin", "--layernorm-embedding --no-scale-embedding --activation-fn gelu"),
        ("fixup", "--encoder-attention-heads 4"),
        ("admin", "--reparam fix_norm --share-all-embeddings"),
        ("scale_norm", "--norm-type layer_norm"),  # word vectors of length one
    ],
)
def test_settings_around_the_layers(case: str, flags: str, tmp_path: Path) -> None:
    model = trained_with_options(case, *flags.split())
    assert largest_difference(model, exported(model, tmp_path / "model")) < 0.1 * LARGEST_DIFFERENCE


@pytest.mark.parametrize("case", ["rezero", "fixup", "t_fixup"])
def test_a_model_without_norms_keeps_a_large_stream(case: str, tmp_path: Path) -> None:
    """The identity norm's error is mean(x^2) / 2^31 of the stream, 5e-7 at a mean square of 1,000; 200 positions.

    Everything that reads the stream is divided by what it is multiplied by, so that the outputs keep their size, and a
    norm that were none would change them all.
    """
    size = 30.0
    readers = tuple(f"{name}.weight" for name in ("q_proj", "k_proj", "v_proj", "fc1", "output_projection"))
    model = trained_with_options(case)
    with torch.no_grad():
        for stack in (model.encoder, model.decoder):
            stack.embed_tokens.weight.mul_(size)
            stack.embed_positions.weights.mul_(size)
        for name, parameter in model.named_parameters():
            if name.endswith(readers):
                parameter.div_(size)
    engine = exported(model, tmp_path / "model")
    assert largest_difference(model, engine, longest=200) < LARGEST_DIFFERENCE


@pytest.mark.parametrize("case", ["admin", "rezero", "fixup"])
def test_a_search_finds_what_ours_finds(case: str, tmp_path: Path) -> None:
    """Step by step, with caches, it computes what our model does.

    With a beam of one, because the two have different rules for the end of a larger beam. Both exclude the pad and an
    empty translation; CTranslate2 does so before the softmax, so its sums are a little larger.
    """
    model = trained_with_options(case)
    how = SearchOptions({**HOW.search, "beam": 1, "lenpen": 0.0}, device="cpu")
    source = sentences(20, 12, seed=5)
    ours = FairseqEngine(model, task(), how)
    words = Counter(token for [best] in ours.search(source) for token in best.tokens[3:])
    with torch.no_grad():  # so that translations end: the end becomes as probable as the most frequent word
        table, end = model.decoder.output_projection.weight, dictionary().eos()
        table[end] = table[dictionary().index(words.most_common(1)[0][0])] + 0.01
    exported(model, tmp_path / "model")
    here, there = (engine.search(source) for engine in (ours, CTranslate2Engine(tmp_path / "model", how, 1024)))
    # At the limit of the length only ours counts the end.
    finished = [(a, b) for [a], [b] in zip(here, there, strict=True) if len(a.tokens) < 19]
    assert len(finished) >= 3
    assert [a.tokens for a, _ in finished] == [b.tokens for _, b in finished]
    assert all(-LARGEST_DIFFERENCE < b.score - a.score < 0.2 * len(a.tokens) + 0.2 for a, b in finished)
    assert all(a.score == pytest.approx(sum(a.token_scores), abs=1e-4) for a, _ in finished)


def test_several_translations_are_the_best_of_the_beam_and_aligned_in_a_batch_as_alone() -> None:
    """Each of them once, the best first, and the first is the translation."""
    engine, source = FairseqEngine(trained_with_options("admin"), task(), HOW), sentences(6, 9, seed=5)
    lists = engine.search(source, 3, alignment=True)
    alone = [engine.search([sentence], 3, alignment=True)[0] for sentence in source]
    for best, nbest, single in zip(engine.search(source), lists, alone, strict=True):
        assert len({tuple(hypothesis.tokens) for hypothesis in nbest}) == 3
        scores = [hypothesis.score for hypothesis in nbest]
        assert scores == sorted(scores, reverse=True)
        assert nbest[0].tokens == best[0].tokens
        assert all(len(hypothesis.token_scores) == len(hypothesis.tokens) + 1 for hypothesis in nbest)
        assert [hypothesis.alignment for hypothesis in nbest] == [hypothesis.alignment for hypothesis in single]
        assert [place for _, place in nbest[0].alignment] == list(range(len(nbest[0].tokens)))


def test_a_model_without_cross_attention_has_no_alignment() -> None:
    model = trained_with_options("admin")
    model.decoder.forward = lambda *given, **named: (torch.zeros(1, 1, 8), {"attn": [None]})
    with pytest.raises(UserError, match="^--alignment: this model has no cross-attention"):
        FairseqEngine(model, task(), HOW).search([["w1"]], alignment=True)


@pytest.mark.parametrize("case", ["admin", "rezero", "fixup"])
def test_int8_is_near_and_the_model_stays_as_it_is(case: str, tmp_path: Path) -> None:
    """Weights of one byte have steps of 1/127 of the largest of a row; the converter quantises arrays in place.

    Without VNNI, CTranslate2 adds two products in 16 bits, and clips the sum; with it the difference is below 0.1.
    """
    model = trained_with_options(case)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    engine = exported(model, tmp_path / "model", "int8_float32")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert 1e-5 < largest_difference(model, engine) < 0.4


def test_a_translation_ends_where_the_positions_do_and_as_fairseq_s_does(tmp_path: Path) -> None:
    """A translation has at most a n + b tokens if the longest sentence of its batch, with its end, has n."""
    model = trained_with_options("post_ln", "--max-target-positions", "9", "--decoder-learned-pos")
    with torch.no_grad():  # a translation never ends by itself
        model.decoder.output_projection.weight[dictionary().eos()] = 0
    exported(model, tmp_path / "model")
    source = sentences(4, 12, seed=5)
    for a, b in ((0.0, 4), (2.0, 1), (0.5, 1)):
        how = SearchOptions({**HOW.search, "beam": 2, "max_len_a": a, "max_len_b": b}, device="cpu", batch=1)
        theirs = CTranslate2Engine(tmp_path / "model", how, model.max_positions()[1])
        expected = [min(int(a * (len(each) + 1) + b), 8) for each in source]
        for engine in (theirs, FairseqEngine(model, task(), how)):
            assert [len(best.tokens) for [best] in engine.search(source)] == expected
