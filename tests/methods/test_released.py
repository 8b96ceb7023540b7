"""Numbers that the authors' released code has computed, with weights that a formula gives.

Their modules ran in float64 on the same batch, at the revisions that the pages of the methods name: whole models of
ScaleNorm + FixNorm and of QKNorm, encoders of ODE Transformer, PCformer and GTrans, the block of LayerScale, and the
attentions of gated attention and ResFormer without rotations. A missing colon of ODE Transformer was added. A decoder
that is not theirs has no numbers here.
"""

import zlib
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.models import tiny

WHOLE = {"ode_function": "layer"}
LOG_PROBABILITIES: tuple[tuple[str, dict[str, Any], list[float]], ...] = (
    ("scale_norm", {}, [-4.159851, -4.249742, -3.837376, -4.041794, -4.04946, -3.516643]),
    ("scale_norm", {"reparam": "plain"}, [-4.259343, -4.384306, -3.874173, -4.105296, -4.149718, -3.477802]),
    ("cosine_attention", {}, [-4.61997, -4.515496, -5.078091, -4.73623, -4.387979, -3.329834]),
)
"""Log-probabilities of the first sentence's next words, in nats."""
ENCODED: tuple[tuple[str, dict[str, Any], list[float]], ...] = (
    ("ode", WHOLE, [1.136314, 0.458026, -0.78633, -0.510046, -0.181921, 0.849301]),
    ("ode", {**WHOLE, "ode_coefficients": "trained"}, [1.02416, 0.276141, -0.736899, -0.280221, 0.030577, 0.862801]),
    ("ode_rk4", WHOLE, [1.208969, 0.460829, -0.792286, -0.545585, -0.216406, 0.86009]),
    ("pcformer", {"pcformer_function": "layer"}, [1.923599, 0.840122, -1.187089, -1.93265, -0.611359, 0.892128]),
    (
        "pcformer",
        {"pcformer_function": "layer", "pcformer_order": "4"},
        [1.958311, 0.835023, -1.188828, -1.96366, -0.608453, 0.887002],
    ),
    ("gtrans", {"gtrans_group": 2, "encoder_layers": 4}, [1.737838, 0.020699, -0.844839, 0.026462, 0.181349, 0.87115]),
    ("layer_scale", {}, [1.469351, 0.050106, -0.772245, -0.226648, 0.113782, 0.91462]),
    ("gated_attention", {}, [1.718933, -0.154513, -0.718831, -0.182955, 0.211685, 0.878419]),
    ("gated_attention", {"gated_by": "head"}, [1.22233, 0.130841, -0.819614, 0.138178, 0.406748, 0.724247]),
    ("value_residual", {}, [1.90817, -0.18254, -0.668329, 0.116422, -0.096526, 0.794631]),
)
"""The first six dimensions of the second sentence's first position on top of the encoder."""
WORDS = 44
BATCH = (
    torch.tensor([[4, 4, 4, 31, 21, 12, 30], [13, 29, 15, 38, 23, 1, 1], [40, 8, 4, 18, 19, 33, 30]]),
    torch.tensor([7, 5, 7]),
    torch.tensor([[2, 35, 10, 36, 22, 21], [2, 18, 14, 14, 35, 8], [2, 23, 6, 17, 1, 1]]),
)
"""Source, its lengths and the shifted target, with the pads on the right, as in some of the released code."""


def filled(arch: str, **options: Any) -> Any:
    """A model whose every parameter is a sine of the places in it; gains and gates are near 1."""
    values = {"source": WORDS, "target": WORDS, "share_all_embeddings": True, "dropout": 0.0}
    model = tiny(f"{arch}_transformer", **values, **options).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            places = torch.arange(1, parameter.numel() + 1, dtype=torch.float64)
            waves = 0.4 * torch.sin((1 + zlib.crc32(name.encode()) % 89 / 89) * places).view(parameter.shape)
            parameter.copy_(waves + float(parameter.dim() == 1 and not name.endswith("bias")))
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                module.weight[module.padding_idx].zero_()
    return model


def close(found: Tensor, released: list[float]) -> None:
    """To the six decimals that are written down; the attentions take the softmax in float32."""
    assert found.tolist() == pytest.approx(released, abs=2e-6)


@pytest.mark.parametrize(("arch", "options", "released"), LOG_PROBABILITIES)
def test_log_probabilities(arch: str, options: dict[str, Any], released: list[float]) -> None:
    words = torch.cat([BATCH[2][0, 1:], torch.tensor([2])])
    close(filled(arch, **options)(*BATCH)[0][0].log_softmax(dim=-1)[range(6), words], released)


@pytest.mark.parametrize(("arch", "options", "released"), ENCODED)
def test_encoded_sentences(arch: str, options: dict[str, Any], released: list[float]) -> None:
    encoded = filled(arch, **options).encoder(*BATCH[:2])["encoder_out"][0]
    close(encoded[0, 1, :6], released)
