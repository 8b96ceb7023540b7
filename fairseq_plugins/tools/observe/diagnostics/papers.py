"""The papers' figures that need no training: their models, sizes and analyses.

If a paper does not give a size (ReZero's Jacobian, the width of Admin's figure 4), it is small and stated here.
"""

from collections.abc import Mapping
from typing import NamedTuple

SHARED = "--share-all-embeddings"


class Model(NamedTuple):
    """A model of a figure."""

    label: str
    method: str
    flags: str = ""


class PaperFigure(NamedTuple):
    """One figure or table: its files, its number in the paper, its analysis, and the models that are compared.

    ``flags`` are those of every model, and the analysis's own.
    """

    name: str
    shows: str
    analysis: str
    flags: str
    models: tuple[Model, ...]


def _at_depths(layers: tuple[int, ...], flags: str, *models: Model) -> tuple[Model, ...]:
    """Return every model at every depth; ``{}`` in ``flags`` becomes the number of layers."""
    return tuple(
        Model(f"{model.label} {depth}L", model.method, f"{model.flags} {flags.format(depth, depth)}")
        for depth in layers
        for model in models
    )


BOTH = "--encoder-layers {} --decoder-layers {}"
DEEP_6, DEEP_12, DEEP_18 = (f"{BOTH.format(depth, depth)} {SHARED}" for depth in (6, 12, 18))
DROPOUTS = "--dropout 0.1 --attention-dropout 0.1 --activation-dropout 0.1"
WIDTH_256 = (
    "--encoder-embed-dim 256 --encoder-ffn-embed-dim 1024 --decoder-ffn-embed-dim 1024 "
    f"--encoder-attention-heads 4 --decoder-attention-heads 4 {SHARED}"
)
JACOBIAN = (
    "--encoder-embed-dim 64 --encoder-ffn-embed-dim 256 --decoder-ffn-embed-dim 256 --encoder-attention-heads 2 "
    f"--decoder-attention-heads 2 {SHARED} --length 16 --decoder-layers 1"
)
RANDOM, ADAM = "--sentences 8 --length 25 --models 8", "--step adam --deepest 50 --models 2"
TOKENS_3000 = "--sentences 105 --length 29"

POST = Model("Post-LN", "post_ln", "--base-init xavier")
PRE = Model("Pre-LN", "pre_ln", "--base-init xavier")
HYBRID = Model("Post-LN encoder, Pre-LN decoder", "hybrid_ln", "--base-init xavier")
ADMIN = Model("Admin", "admin")
BASE = Model("base", "post_ln", "--base-init xavier_apart")
DS_INIT = Model("DS-Init", "ds_init", "--ds-init-rule released")
TABLE_1 = (BASE, DS_INIT._replace(label="DS-Init as released"), Model("DS-Init, equation 15", "ds_init"))
REZERO = Model("ReZero", "rezero")
B2T_MODELS = (Model("Post-LN", "post_ln"), Model("Pre-LN", "pre_ln"), Model("B2T", "b2t"))
B2T_2023 = Model("B2T as released in 2023", "b2t", "--b2t-init-scale layers")

PAPERS: Mapping[str, tuple[PaperFigure, ...]] = {
    "admin": (
        PaperFigure("admin-figure-3", "Figure 3", "gradient-norm", f"{DEEP_18} {DROPOUTS}", (POST, HYBRID, PRE, ADMIN)),
        PaperFigure("admin-figure-4", "Figure 4, left", "output-change", f"{WIDTH_256} {RANDOM}", (POST, PRE, ADMIN)),
        PaperFigure("admin-figure-4", "Figure 4, right", "output-change", f"{WIDTH_256} {ADAM}", (POST, PRE, ADMIN)),
        PaperFigure("admin-figure-7", "Figure 7, at the start", "dependency", DEEP_6, (POST, PRE)),
        PaperFigure("admin-figure-8", "Figure 8, at the start", "dependency", DEEP_18, (ADMIN, PRE)),
    ),
    "dsinit": (
        PaperFigure(
            "dsinit-figure-1",
            "Figure 1",
            "gradient-norm",
            f"{DROPOUTS} {SHARED}",
            _at_depths((6, 12, 18), BOTH, BASE, DS_INIT),
        ),
        PaperFigure("dsinit-table-1", "Table 1", "gradient-ratios", f"{DEEP_12} {DROPOUTS} {TOKENS_3000}", TABLE_1),
    ),
    "rezero": (
        PaperFigure(
            "rezero-figure-5",
            "Figure 5, before training",
            "jacobian",
            JACOBIAN,
            _at_depths((4, 12, 64), "--encoder-layers {}", POST, PRE, REZERO),
        ),
        PaperFigure("rezero-alpha", "alpha, at the start", "scales", DEEP_12, (REZERO,)),
    ),
    "b2t": (
        PaperFigure(
            "b2t-figure-3", "Figures 3, 4 and 7", "gradient-norm", f"{DEEP_18} --dropout 0.3", (*B2T_MODELS, B2T_2023)
        ),
        PaperFigure("b2t-figure-5", "Figure 5, before training", "similarity", DEEP_6, B2T_MODELS),
    ),
}
"""Figures, keyed by the name that ``--paper`` takes."""
