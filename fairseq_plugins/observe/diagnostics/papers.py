"""The papers' figures that need no training: their models, sizes and analyses.

If a paper does not give a size (ReZero's Jacobian, the width of Admin's figure 4), it is small and stated here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fairseq_plugins.errors import UserError, unknown_name

SHARED = "--share-all-embeddings"


def depths(layers: int) -> str:
    """Return flags for ``layers`` layers in both stacks."""
    return f"--encoder-layers {layers} --decoder-layers {layers}"


@dataclass(frozen=True)
class Model:
    """A model of a figure."""

    label: str
    method: str
    flags: str = ""


@dataclass(frozen=True)
class PaperFigure:
    """One figure or table.

    Attributes:
        name: name of its files.
        shows: its number in the paper.
        analysis: its analysis.
        flags: flags of every model, including the analysis's own settings.
        models: the models that are compared.
    """

    name: str
    shows: str
    analysis: str
    flags: str
    models: tuple[Model, ...]


XAVIER = "--base-init xavier"
XAVIER_APART = "--base-init xavier_apart"
POST = Model("Post-LN", "post_ln", XAVIER)
PRE = Model("Pre-LN", "pre_ln", XAVIER)
ADMIN = Model("Admin", "admin")
WIDTH_256 = (
    "--encoder-embed-dim 256 --encoder-ffn-embed-dim 1024 --decoder-ffn-embed-dim 1024 "
    f"--encoder-attention-heads 4 --decoder-attention-heads 4 {SHARED}"
)
DROPOUTS = "--dropout 0.1 --attention-dropout 0.1 --activation-dropout 0.1"
B2T_MODELS = (Model("Post-LN", "post_ln"), Model("Pre-LN", "pre_ln"), Model("B2T", "b2t"))
JACOBIAN = (
    f"--encoder-embed-dim 64 --encoder-ffn-embed-dim 256 --decoder-ffn-embed-dim 256 --encoder-attention-heads 2 "
    f"--decoder-attention-heads 2 {SHARED} --length 16 --decoder-layers 1"
)

PAPERS: Mapping[str, tuple[PaperFigure, ...]] = {
    "admin": (
        PaperFigure(
            "admin-figure-3",
            "Figure 3",
            "gradient-norm",
            f"{depths(18)} {DROPOUTS} {SHARED}",
            (POST, Model("Post-LN encoder, Pre-LN decoder", "hybrid_ln", XAVIER), PRE, ADMIN),
        ),
        PaperFigure(
            "admin-figure-4-random",
            "Figure 4, left",
            "output-change",
            f"{WIDTH_256} --sentences 8 --length 25 --models 8",
            (POST, PRE, ADMIN),
        ),
        PaperFigure(
            "admin-figure-4-adam",
            "Figure 4, right",
            "output-change",
            f"{WIDTH_256} --step adam --deepest 50 --models 2",
            (POST, PRE, ADMIN),
        ),
        PaperFigure("admin-figure-7", "Figure 7, at the start", "dependency", f"{depths(6)} {SHARED}", (POST, PRE)),
        PaperFigure("admin-figure-8", "Figure 8, at the start", "dependency", f"{depths(18)} {SHARED}", (ADMIN, PRE)),
    ),
    "dsinit": (
        PaperFigure(
            "dsinit-figure-1",
            "Figure 1",
            "gradient-norm",
            f"{DROPOUTS} {SHARED}",
            tuple(
                Model(f"{label} {layers}L", method, f"{flags} {depths(layers)}")
                for layers in (6, 12, 18)
                for label, method, flags in (
                    ("base", "post_ln", XAVIER_APART),
                    ("DS-Init", "ds_init", "--ds-init-rule released"),
                )
            ),
        ),
        PaperFigure(
            "dsinit-table-1",
            "Table 1",
            "gradient-ratios",
            f"{depths(12)} {DROPOUTS} {SHARED} --sentences 105 --length 29",
            (
                Model("base", "post_ln", XAVIER_APART),
                Model("DS-Init as released", "ds_init", "--ds-init-rule released"),
                Model("DS-Init, equation 15", "ds_init"),
            ),
        ),
    ),
    "rezero": (
        PaperFigure(
            "rezero-figure-5",
            "Figure 5, before training",
            "jacobian",
            JACOBIAN,
            tuple(
                Model(f"{label} {layers}L", method, f"{flags} --encoder-layers {layers}")
                for layers in (4, 12, 64)
                for label, method, flags in (
                    ("Post-LN", "post_ln", XAVIER),
                    ("Pre-LN", "pre_ln", XAVIER),
                    ("ReZero", "rezero", ""),
                )
            ),
        ),
        PaperFigure(
            "rezero-alpha", "alpha, at the start", "scales", f"{depths(12)} {SHARED}", (Model("ReZero", "rezero"),)
        ),
    ),
    "b2t": (
        PaperFigure(
            "b2t-figure-3",
            "Figures 3, 4 and 7",
            "gradient-norm",
            f"{depths(18)} --dropout 0.3 {SHARED}",
            (*B2T_MODELS, Model("B2T as released in 2023", "b2t", "--b2t-init-scale layers")),
        ),
        PaperFigure("b2t-figure-5", "Figure 5, before training", "similarity", f"{depths(6)} {SHARED}", B2T_MODELS),
    ),
}
"""By the name that ``--paper`` takes."""


def find(name: str) -> tuple[PaperFigure, ...]:
    """Return the figures of a paper.

    Raises:
        UserError: there is no paper of that name.
    """
    if name not in PAPERS:
        raise UserError(unknown_name("paper", name, PAPERS))
    return PAPERS[name]
