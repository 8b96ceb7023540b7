"""Speech to text under fairseq's ``speech_to_text`` task: as stock where it is stock, and every method."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.tasks.speech_to_text import SpeechToTextTask
from torch import Tensor

from fairseq_plugins.core.calibration import Calibrated
from fairseq_plugins.core.speech_to_text import SPEECH_TO_TEXT, DeepS2TTransformerModel
from fairseq_plugins.errors import UserError
from tests.models import methods_of, speech, tiny
from tests.representatives import slow_but
from tests.speech_to_text import audio
from tests.toy import losses_of

UPDATES = 10
METHODS = methods_of(DeepS2TTransformerModel)
"""Every method, and the model without one."""


# The layers are those of translation; this family's own are its front end and its way through the encoder's layers.
@pytest.mark.parametrize("method", slow_but(("admin", "dlcl", "realformer"), METHODS))
def test_every_method_learns_and_transcribes(speech_data: Path, tmp_path: Path, method: str) -> None:
    arch = method + SPEECH_TO_TEXT.suffix
    losses, state = losses_of(
        SpeechToTextTask, lambda: audio.train(speech_data, tmp_path, arch, "--max-update", str(UPDATES))
    )
    settings = state["cfg"]["model"]
    assert all(map(math.isfinite, losses))
    assert sum(losses[-3:]) < sum(losses[:3])
    assert {type(value) for value in settings.values()} <= {str, int, float, bool, type(None)}
    assert settings["input_feat_per_channel"] == audio.FEATURES
    checkpoint = tmp_path / "checkpoint_last.pt"
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    assert all(float(one.calibrated) == 1.0 for one in model.modules() if isinstance(one, Calibrated))
    assert sorted(audio.transcribe(speech_data, checkpoint, tmp_path)) == list(range(audio.SIZES["test"]))


def test_what_stands_behind_a_sentence_does_not_matter() -> None:
    """For the layers of every method; stock's convolutions do reach across the end of a shorter sentence."""
    silence = torch.zeros(2, 7, dtype=torch.bool)
    silence[1, 4:] = True
    wrong = []
    for method in METHODS:
        encoder = tiny(method + SPEECH_TO_TEXT.suffix).eval().encoder
        x, noise = torch.randn(7, 2, 16), torch.randn(3, 16)
        with torch.no_grad():
            quiet = encoder.run_layers(x, silence, [], False)
            x[4:, 1] = noise
            loud = encoder.run_layers(x, silence, [], False)
        same = all(torch.allclose(quiet[:n, i], loud[:n, i], atol=1e-5) for i, n in enumerate((7, 4)))
        wrong += [] if same and not torch.allclose(quiet[4:, 1], loud[4:, 1], atol=1e-2) else [method]
    assert wrong == []


def saved(path: Path, arch: str, **values: Any) -> dict[str, Tensor]:
    weights = tiny(arch, seed=7, **values).state_dict()
    torch.save({"model": weights, "args": None, "cfg": None}, path)
    return weights


@pytest.fixture
def no_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoints of these tests hold weights alone, which fairseq's upgrade of old settings does not expect."""
    monkeypatch.setattr(checkpoint_utils, "_upgrade_state_dict", lambda state: state)


@pytest.mark.usefixtures("no_upgrade")
@pytest.mark.parametrize("arch", ["pre_ln", "t_fixup", "ds_init"])
def test_a_pretrained_encoder_is_loaded_behind_the_initialisation(tmp_path: Path, arch: str) -> None:
    weights = saved(tmp_path / "asr.pt", f"{arch}_s2t_transformer")
    model = tiny(f"{arch}_s2t_transformer", load_pretrained_encoder_from=str(tmp_path / "asr.pt"))
    for name, value in model.state_dict().items():
        if not name.endswith("_float_tensor"):
            same = torch.equal(value, weights[name])
            assert same or name.startswith("decoder."), name
    assert not torch.equal(model.decoder.embed_tokens.weight, weights["decoder.embed_tokens.weight"])


@pytest.mark.usefixtures("no_upgrade")
def test_a_plain_encoder_stays_as_it_was_trained_under_admin(tmp_path: Path) -> None:
    weights = saved(tmp_path / "asr.pt", "post_ln_s2t_transformer")
    model = tiny("admin_s2t_transformer", load_pretrained_encoder_from=str(tmp_path / "asr.pt"))
    model.train()
    model(*speech().inputs)
    plain = tiny("post_ln_s2t_transformer")
    plain.load_state_dict(weights)
    features, lengths = speech()[:2]
    with torch.no_grad():
        ours, stock = (one.eval().encoder(features, lengths)["encoder_out"][0] for one in (model, plain))
    assert torch.allclose(ours, stock, atol=1e-6)
    decoder = [one for one in model.decoder.modules() if isinstance(one, Calibrated)]
    assert all(float(one.calibrated) == 1.0 for one in decoder)
    assert decoder[-1].omega_profiled.min() > 1.0, "the decoder has seen the batch"


def test_a_checkpoint_does_not_look_for_the_pretrained_encoder_again(speech_data: Path, tmp_path: Path) -> None:
    checkpoint = audio.train(speech_data, tmp_path / "asr", "b2t_s2t_transformer", "--max-update", "2")
    flags = ("--load-pretrained-encoder-from", str(checkpoint), "--max-update", "2")
    second = audio.train(speech_data, tmp_path / "st", "b2t_s2t_transformer", *flags)
    checkpoint.unlink()
    assert torch.load(second, weights_only=True)["cfg"]["model"]["load_pretrained_encoder_from"] is None
    assert len(audio.transcribe(speech_data, second, tmp_path)) == audio.SIZES["test"]


@pytest.mark.usefixtures("no_upgrade")
def test_an_encoder_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "asr.pt", "pre_ln_s2t_transformer", encoder_layers=2)
    for path, words in (
        ("asr.pt", "its encoder does not match this model: .*transformer_layers.2"),
        ("absent.pt", "no such file"),
    ):
        with pytest.raises(UserError, match=f"--load-pretrained-encoder-from .*{path}: {words}") as caught:
            tiny("pre_ln_s2t_transformer", load_pretrained_encoder_from=str(tmp_path / path))
        assert all("\n" not in problem for problem in caught.value.problems)
