"""The study of ``docs/results/depth_protocol.md``: one recipe for all methods; the study finds each its rate."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recipes.common import Config, Noted, Recipe, Settings, merged, size, small

UPDATES = 3000
RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results" / "depth.tsv"
RATES = (5e-4, 1e-3, 2e-3, 4e-3)
UNTUNED = Noted([1e-3], "the rates of this file have not all been tried yet")

DEPTH = Recipe(
    corpus="Tatoeba, German to English: 160,000 sentence pairs",
    data="scripts/prepare_tatoeba.sh",
    source="of this project, docs/results/depth_protocol.md",
    settings=merged(
        small("de", "en", interval=25, batch=1000, between=125, kept=3),
        {
            "lr_scheduler": {"_name": "polynomial_decay", "warmup_updates": 250, "total_num_update": UPDATES},
            "optimization": {"max_update": UPDATES, "lr": [1e-3], "clip_norm": 1.0},
        },
    ),
    model={**size(64, 128, 4), "dropout": 0.1, "share_all_embeddings": True},
    gpus=1,
    update_freq=1,
)
NO_WARM_UP: Settings = {"lr_scheduler": {"warmup_updates": 0}}
METHODS = ("pre_ln", "post_ln", "admin", "b2t", "ds_init", "deepnet", "rezero", "t_fixup", "denseformer", "resi_dual")
NEWER = (
    *("ode", "pcformer", "siamese_norm", "hyper_connections", "mhc", "attention_residuals", "value_residual"),
    *("scale_norm", "cosine_attention", "gated_attention", "layer_scale", "gtrans", "completep"),
)
MUON: Settings = {"optimizer": {"_name": "muon"}}
DEPTHS = ((6, 6), (18, 18))
AS_PUBLISHED = {
    **dict.fromkeys(DEPTHS, (*METHODS, *NEWER)),
    (36, 12): ("pre_ln", "rezero", "t_fixup", "ds_init", "denseformer"),
}
"""By depth, the methods that are trained with the warm-up of their papers."""
PUBLISHED_WITHOUT_WARM_UP = {"rezero": DEPTHS, "t_fixup": tuple(AS_PUBLISHED)}
"""With the depths at which they are trained with the warm-up of the others, too."""
LONG_WARM_UP: Settings = {"lr_scheduler": {"warmup_updates": 1000}}
WITH_LONG_WARM_UP = ("pre_ln", "admin", "b2t", "ds_init", "post_ln")
OTHER_BASE_INIT = {"pre_ln": "xavier", "rezero": "xavier", "admin": "fairseq", "ds_init": "fairseq"}
SEPARATE_TABLES = {"share_all_embeddings": False, "share_decoder_input_output_embed": True}
WIDE = size(104, 208, 4)
WIDE_METHODS = ("pre_ln", "admin", "denseformer", "hyper_connections", "rezero", "t_fixup")


def configs() -> Iterator[tuple[str, Config]]:
    """Every method at every depth, those without warm-up also with it, Pre-LN also with Muon, and the wide models."""
    for (encoder, decoder), names in AS_PUBLISHED.items():
        for name in names:
            own = NO_WARM_UP if name in PUBLISHED_WITHOUT_WARM_UP else {}
            yield _config(name, f"{name}_{encoder}e{decoder}d", encoder, decoder, own)
    for name, depths in PUBLISHED_WITHOUT_WARM_UP.items():
        for encoder, decoder in depths:
            remarks = ("With the warm-up of the other methods; its paper has none.",)
            yield _config(name, f"{name}_warm_up_{encoder}e{decoder}d", encoder, decoder, remarks=remarks)
    for encoder, decoder in DEPTHS:
        remarks = ("Muon for the matrices of the layers, Adam for the rest.",)
        yield _config("pre_ln", f"pre_ln_muon_{encoder}e{decoder}d", encoder, decoder, MUON, remarks=remarks)
    for name in WIDE_METHODS:
        remarks = ("As many parameters as width 64 has at 18-18.",)
        own = NO_WARM_UP if name in PUBLISHED_WITHOUT_WARM_UP else {}
        yield _config(name, f"{name}_wide_6e6d", 6, 6, own, model=WIDE, remarks=remarks)
    yield from _changed()


def _changed() -> Iterator[tuple[str, Config]]:
    """Models at 18-18 that differ from a method's by one setting, at the rate of that method."""
    for name in WITH_LONG_WARM_UP:
        yield _variant(name, "warm_up_1000", "Warm-up of 1,000 updates.", own=LONG_WARM_UP)
    for name, base_init in OTHER_BASE_INIT.items():
        remark = f"Starts from base_init {base_init} instead of its own."
        yield _variant(name, "base_init", remark, model={"base_init": base_init})
    yield _variant("rezero", "separate_tables", "The encoder has an embedding of its own.", model=SEPARATE_TABLES)


def _variant(name: str, change: str, remark: str, own: Settings | None = None, **more: Any) -> tuple[str, Config]:
    """A method at 18-18 with one change, at the rate of the method."""
    without = f"{name}_18e18d"
    remarks = (remark, f"The rate is that of {without}.")
    own = merged(NO_WARM_UP if name in PUBLISHED_WITHOUT_WARM_UP else {}, own or {})
    return _config(name, f"{name}_{change}_18e18d", 18, 18, own, rated=without, remarks=remarks, **more)


def _config(
    name: str, file: str, encoder: int, decoder: int, own: Settings | None = None, rated: str = "", **more: Any
) -> tuple[str, Config]:
    own = merged(own or {}, {"optimization": {"lr": rate_of(rated or file)}})
    return f"tatoeba_de_en/{file}", Config(DEPTH, name, encoder, decoder, settings=own, **more)


def rate_of(file: str) -> Noted:
    """The rate of the sweep with the lowest validation loss; those above the range have no full training."""
    with open(RESULTS, encoding="utf-8", newline="") as stream:
        lines = [line for line in csv.DictReader(stream, delimiter="\t") if line["config"] == file]
    losses = {float(line["rate"]): float(line["valid"] or "inf") for line in lines if line["stage"] == "sweep"}
    losses = {rate: loss for rate, loss in losses.items() if rate in RATES}
    if set(losses) != set(RATES):
        return UNTUNED
    best = min(sorted(losses), key=lambda rate: losses[rate])
    learnt = losses[best] < float("inf")
    return Noted(
        [best], "the best of the sweep in docs/results/depth.tsv" if learnt else "no rate of the sweep has learnt"
    )
