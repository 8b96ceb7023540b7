"""The documentation of methods, parameters and patches agrees with the code."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from docs import generate
from fairseq_plugins import patches
from fairseq_plugins.core.method import GENERAL_OPTIONS, METHODS, PARTS, Axis, Method, NewParameter, Part, all_options
from fairseq_plugins.core.residual import only_branches

ROOT = Path(__file__).resolve().parents[2]
ADDED_BY = (Axis.RESIDUAL, Axis.ATTENTION, Axis.LAYER_AGGREGATION)
ADDS_PARAMETERS = [part for axis in ADDED_BY for part in PARTS[axis].values()]
ALL_PARTS = [part for parts in PARTS.values() for part in parts.values()]


def name_of(thing: Method | Part) -> str:
    return f"{thing.axis.value}-{thing.name}" if isinstance(thing, Part) else thing.name


PAGES = "methods fairseq reproduction choosing translating learning_rates training_speed".split()
GENERATED = [
    *(f"docs/{name}.md" for name in PAGES),
    *("docs/results/depth.md", "docs/results/depth_cells.tsv", "docs/results/depth_sweep.tsv"),
]


def test_committed_pages_are_what_the_generator_writes() -> None:
    pages = generate.pages()
    assert {str(path.relative_to(ROOT)) for path in pages} == set(GENERATED)
    assert [path for path, text in pages.items() if path.read_text(encoding="utf-8") != text] == []


def test_stale_page_is_reported_and_then_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("old")
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "pages", lambda: {page: "new"})
    assert (generate.main(["--check"]), page.read_text()) == (1, "old")
    assert (generate.main([]), page.read_text()) == (0, "new")
    assert generate.main(["--check"]) == 0


def test_numbers_in_the_text_on_depth_are_of_the_results() -> None:
    """Fields are filled from the results; each other number of the template is in them or in the protocol."""
    names = ("depth.template", "depth_protocol.md", "depth.tsv")
    template, *sources = ((ROOT / "docs/results" / name).read_text(encoding="utf-8") for name in names)
    number = re.compile(r"(?<![\d.])\d+\.\d+(?![\d.])")
    said = number.findall(re.sub(r"\{\{.*?\}\}|`[^`]*`", "", template))
    assert said
    assert set(said) - set(number.findall(" ".join(sources))) == set()


# Parameters --------------------------------------------------------------------------------------------------------


def new_entries(model: nn.Module, stock: nn.Module) -> dict[str, list[str]]:
    """Names below a layer or a stack of what ``model`` has and ``stock`` has not, each with its full names."""
    entries: dict[str, list[str]] = {}
    for key in model.state_dict().keys() - stock.state_dict().keys():
        name = re.sub(r"^(encoder|decoder)\.(layers\.\d+\.)?", "", key)
        entries.setdefault(re.sub(r"\.\d+\.", ".I.", name), []).append(key)
    return entries


def check(model: nn.Module, stock: nn.Module, parts: list[Part], options: Mapping[str, Any] = {}) -> None:
    """Every new entry is documented with its shape, its kind and the value it starts from, and nothing else is."""
    trained = dict(model.named_parameters(remove_duplicate=False))
    entries = new_entries(model, stock)
    promised = {parameter.name: parameter for part in parts for parameter in part.parameters}
    assert entries.keys() == promised.keys()
    for name, parameter in promised.items():
        shape = tuple(size_of(size.strip()) for size in parameter.shape.strip("()").split(","))
        for key in entries[name]:
            value: Tensor = model.state_dict()[key]
            assert tuple(value.shape) == shape, key
            assert (key not in trained) == parameter.buffer, key
            if parameter.initial.startswith("drawn"):
                assert value.ndim == 1 or value.unique().numel() == value.numel(), key
            elif parameter.initial.startswith("$`"):
                one_number = value.unique().numel() == 1
                assert one_number or value.ndim > 1, f"{key}: a number or matrix of which the method's test knows more"
            else:
                start = starts_from(parameter, options)
                assert torch.equal(value, torch.full(shape, start)), (
                    f"{key} starts at {value.flatten()[0]}, but its 'initial' says {start}; "
                    "'initial' begins with $`...`$ if the value depends on sizes or depth"
                )


def size_of(text: str) -> int:
    """``7``, ``C``, ``2C``, ``N+1`` and ``G`` in a model of two layers, ``F``, or ``C/H`` and ``H`` with two heads."""
    if text in ("N+1", "G"):  # a group of GTrans has one layer
        return {"N+1": 3, "G": 2}[text]
    if text in ("C/H", "F", "H"):
        return {"C/H": int(generate.WIDTH) // 2, "F": 2 * int(generate.WIDTH), "H": 2}[text]
    return int(text.removesuffix("C") or 1) * (generate.WIDTH if text.endswith("C") else 1)


def starts_from(parameter: NewParameter, options: Mapping[str, Any]) -> float:
    """The documented start: a number, "or `--flag`" where the method sets that option."""
    option = re.match(r"\S+, or `--([a-z-]+)`", parameter.initial)
    if option and option[1].replace("-", "_") in options:
        return float(options[option[1].replace("-", "_")])
    number = re.match(r"[-+.e\d]+(?=[\s,;]|$)", parameter.initial)
    assert number, f"{parameter.name}: 'initial' begins with the value of a new model, not '{parameter.initial}'"
    return float(number[0])


def test_new_parameters_of_a_method_are_those_documented(subtests: pytest.Subtests) -> None:
    for method in METHODS.values():
        with subtests.test(name_of(method)):
            model = generate.tiny_model(method)
            parts = generate.parts_of(method)
            if method.norm_type != "layer_norm":  # declarations are those of LayerNorms; other norms have no bias
                names = tuple(name for name, _ in model.named_parameters())
                parts = [replace(part, parameters=tuple(p for p in part.parameters if has(names, p))) for part in parts]
            check(model, generate.stock_twin(method), parts, method.options)


def has(names: tuple[str, ...], parameter: NewParameter) -> bool:
    """Whether a bias that a part declares is there; everything else has to be."""
    return not parameter.name.endswith(".norm.bias") or any(name.endswith(f".{parameter.name}") for name in names)


def test_new_parameters_of_a_part_are_those_documented(subtests: pytest.Subtests) -> None:
    for part in ADDS_PARAMETERS:
        with subtests.test(name_of(part)):
            # Streams of their own refuse a LayerNorm after the sum.
            norm = METHODS["pre_ln" if part.conflicts is only_branches else "post_ln"]
            model = generate.tiny_model(norm, **{part.axis.value: part.name})
            check(model, generate.stock_twin(norm), [part])


LAYER_NORMS = {
    *(f"encoder.layers.I.{name}_layer_norm" for name in ("self_attn", "final")),
    *(f"decoder.layers.I.{name}_layer_norm" for name in ("self_attn", "encoder_attn", "final")),
}
ABSENT: dict[str, set[str]] = {
    **{name: set() for name in ("post_ln", "pre_ln", "admin")},
    "dsinit_matt": {"decoder.layers.I.self_attn", "decoder.layers.I.self_attn_layer_norm"},
    "rms_norm": {f"{norm}.bias" for norm in LAYER_NORMS | {"encoder.layer_norm", "decoder.layer_norm"}},
    "rezero": LAYER_NORMS,
}


def test_section_names_what_differs_and_joins_what_is_alike() -> None:
    assert generate.own_flags(METHODS["hybrid_ln"]) == "--norm-position post,pre --base-init fairseq"
    lines = generate.method_section(METHODS["admin"]).splitlines()
    assert "Architecture: `admin_transformer`, `--residual admin --base-init xavier`." in lines[1]
    assert [line for line in lines if line.startswith("- New parameter")] == [
        "- New parameter `S_residual.omega_trained`, `(C)`: 0; absent with `--admin-omega frozen`"
    ]
    assert "rate 0.0007, warm-up of 8,000 updates" in "".join(lines)
    # A value that only one stack refuses is no refusal: Pre-LN takes every solver in its encoder.
    residuals = "`admin`, `admin_torch`, `b2t`, `deepnorm`, `keel`, `resi_dual`, `siamese`, `span`"
    assert generate.refused_with(METHODS["pre_ln"]) == [f"`--residual` {residuals}"]
    # It is of two parts of the method.
    assert generate.method_section(METHODS["completep"]).count("- Option `--depth-mup-alpha`") == 1


def test_absent_stock_names() -> None:
    assert {name: set(generate.absent_names(METHODS[name])) for name in ABSENT} == ABSENT


def test_page_says_whether_stock_computes_the_same_without_a_fold() -> None:
    """A constant factor of the stream leaves no trace in the state dict, yet stock computes something else."""
    needs = {"post_ln": False, "ds_init": False, "admin_torch": True, "deepnet": True, "completep": True}
    for name, needed in needs.items():
        assert generate.scales_stream(METHODS[name]) is needed
        assert generate.folds_into_stock(METHODS[name]) == ("yes" if needed else "is stock")
    assert generate.folds_into_stock(METHODS["b2t"]) == "no"


# Records -----------------------------------------------------------------------------------------------------------


FORMULA = r"\$`(.+?)`\$"


def test_every_method_has_its_formula_and_names_its_paper(subtests: pytest.Subtests) -> None:
    address = r"https://(arxiv\.org/abs/\d{4}\.\d{5}|doi\.org/|proceedings\.mlr\.press/)"
    for method in METHODS.values():
        with subtests.test(name_of(method)):
            rule = "`paper` ends in a year and an address of arxiv.org, doi.org or proceedings.mlr.press"
            assert re.search(rf"\b(19|20)\d\d, {address}", method.paper), rule
            assert re.search(FORMULA, method.equation), "no formula"
            text = " ".join([method.equation, *method.departures])
            assert "$" not in re.sub(FORMULA, "", text), "a formula is written $`...`$"


def test_option_is_named_after_its_part_and_has_a_legal_default(subtests: pytest.Subtests) -> None:
    for option in all_options():
        with subtests.test(option.name):
            owners = [part for part in ALL_PARTS if option in part.options]
            prefixes = {name for part in owners for name in (part.name, part.axis.value, part.axis.value.split("_")[0])}
            if option.name not in GENERAL_OPTIONS:
                assert any(option.name.startswith(f"{prefix}_") for prefix in prefixes)
            if option.choices:
                assert option.default in option.choices
            else:
                assert isinstance(option.default, (int, float))


# fairseq -----------------------------------------------------------------------------------------------------------


def test_every_mend_is_listed_with_its_defect() -> None:
    rows = {row[0]: row for row in re.findall(r"\[`(\w+)`\]\((\S+)\) \| (.+?) \| (.+?) \|", generate.patches_table())}
    assert set(rows) == set(patches.MODULES)
    files = (ROOT / "fairseq_plugins" / "patches").glob("*.py")
    assert {path.stem for path in files} - {"__init__"} == set(patches.MODULES)
    for name, path, defect, threads in rows.values():
        assert (ROOT / "docs" / path).resolve() == ROOT / "fairseq_plugins" / "patches" / f"{name}.py"
        assert defect.endswith(".")
        assert threads == "not reported" or re.search(r"\(https://github\.com/facebookresearch/fairseq/", threads)


# Choosing ----------------------------------------------------------------------------------------------------------

TOLD = [line.split("\t") for line in (ROOT / "docs/choosing.tsv").read_text(encoding="utf-8").splitlines()]


def test_each_method_has_a_row_in_the_file() -> None:
    names = [row[0] for row in TOLD[1:]]
    odd = sorted(set(METHODS) ^ set(names))
    assert not odd, f"docs/choosing.tsv has one row for each method; write or remove those of {odd}"
    assert names == list(METHODS), "the rows of docs/choosing.tsv have the order of the registry"
    short = [row[0] for row in TOLD if len(row) != len(TOLD[0])]
    assert not short, f"docs/choosing.tsv: a row has {len(TOLD[0])} cells, some empty, and tabs between; not {short}"
    assert generate.measured(generate.STEPS)["admin"] == "0.98 (0.95 to 1.01)"


def test_a_description_is_one_line_of_the_readme_and_every_statement_has_its_source() -> None:
    for name, what, *statements in TOLD[1:]:
        assert 0 < len(what) <= 72, f"docs/choosing.tsv, {name}: 'what' has 1 to 72 characters, not {len(what)}"
        assert not what.endswith("."), f"docs/choosing.tsv, {name}: 'what' ends without a full stop"
        bare = [statement for statement in statements if statement and not re.search(r"\([^()]+\)$", statement)]
        assert not bare, f"docs/choosing.tsv, {name}: a statement ends with its source in brackets, not {bare}"


def test_what_folds_is_what_the_page_of_methods_says() -> None:
    pytest.importorskip("ctranslate2")
    found = {name: generate.folds_and_exports(method) for name, method in METHODS.items()}
    assert {name for name, (folds, _) in found.items() if folds} == {
        name for name, method in METHODS.items() if not generate.no_fold_reasons(method)
    }
    assert found["rezero"] == (False, True)
    assert found["b2t"] == (False, False)
    assert found["mix_ln"] == (False, False), "with layers of both kinds"
