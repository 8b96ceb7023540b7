"""``fairseq-deep hydra-train``: it trains with paths as a user writes them, and a mistake is one line with code 2."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from fairseq.dataclass.configs import OptimizationConfig
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fairseq_plugins.tools.cli.hydra_train import configuration_error, run_job
from fairseq_plugins.tools.cli.stock import USER_DIR
from tests import processes, toy
from tests.refusals import refused

SIZES = {"layers": 1, "embed_dim": 8, "ffn_embed_dim": 8, "attention_heads": 1}
CONFIG = {
    "common": {"cpu": True, "seed": 3, "log_format": "none"},
    "checkpoint": {"save_dir": "saved", "no_epoch_checkpoints": True},
    "dataset": {"num_workers": 0, "max_tokens": 400, "disable_validation": True},
    "optimization": {"max_update": 2, "lr": [0.001]},
    # Relative, as a user writes it.
    "task": {"_name": "translation", "data": "data-bin", "source_lang": "de", "target_lang": "en"},
    "criterion": {"_name": "cross_entropy"},
    "optimizer": {"_name": "adam"},
    "lr_scheduler": {"_name": "fixed"},
    "model": {
        "_name": "deep_transformer",
        **{f"{stack}_{name}": size for stack in ("encoder", "decoder") for name, size in SIZES.items()},
    },
}
MISTAKES = {
    "+model.encoder_lyers=3": "unknown setting 'encoder_lyers' (did you mean 'encoder_layers'?)",
    "+common.seed=-1": "Could not append to config. An item is already at 'common.seed'.; ",
    "task.data=nowhere": "No such file or directory: nowhere",
}
"""An override of Hydra's, and how the line about it begins."""


@pytest.mark.slow
def test_hydra_train(tmp_path: Path) -> None:
    """In processes of their own, since Hydra keeps state that outlives a run."""
    toy.binarise(tmp_path)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    words = ("-m", "fairseq_plugins.tools.cli", "hydra-train", "--config-dir", ".", "--config-name", "tiny")
    path = {"cwd": tmp_path, "PYTHONPATH": str(Path(USER_DIR).parent)}
    for override, line in MISTAKES.items():
        ended = processes.python(*words, override, **path)
        assert (ended.code, ended.error.startswith(f"error: {line}")) == (2, True), ended.errors
    assert processes.python(*words, **path).code == 0
    saved = torch.load(tmp_path / "saved" / "checkpoint_last.pt", weights_only=True)
    assert saved["cfg"]["model"]["_name"] == "deep_transformer"
    assert saved["cfg"]["common"]["user_dir"] == USER_DIR


UNFINISHED: dict[str, dict[str, object]] = {
    "unknown model._name 'admin_transfromer' (did you mean 'admin_": {"model": {"_name": "admin_transfromer"}},
    "unknown optimizer._name 'adma' (did you mean 'adam": {"optimizer": {"_name": "adma"}},
    "unknown criterion._name 'cross_entrpy' (did you mean 'cross_entropy'?)": {"criterion": "cross_entrpy"},
    "unknown task._name 'transaltion' (did you mean 'translation'": {"task": {"_name": "transaltion"}},
    "unknown group of settings 'optimisation' (did you mean 'optimization'?)": {"optimisation": {"lr": [1]}},
    "model._name is not set": {"model": "???"},
    "criterion._name is not set; fairseq-train has 'cross_entropy' by default": {"criterion": None},
    "lr_scheduler._name is not set; fairseq-train has 'fixed' by default": {"lr_scheduler": None},
    "task.data is missing": {"task": {"data": "???"}, "model": {"_name": "admin_transformer"}},
    "fairseq-deep gives fairseq its own user directory": {"common": {"user_dir": "mine"}},
}
"""How the line begins about what a YAML file has."""


def test_an_unfinished_configuration_is_refused() -> None:
    for line, more in UNFINISHED.items():
        config = OmegaConf.create({"common": {"user_dir": None}, **more})
        assert refused(run_job, lambda cfg: pytest.fail("the job ran"), config).startswith(line)


@pytest.mark.parametrize(
    ("mode", "chdir", "returns"),
    [(RunMode.RUN, None, True), (RunMode.RUN, True, False), (RunMode.MULTIRUN, None, False)],
)
def test_directory_of_the_job(mode, chdir, returns, tmp_path, monkeypatch):
    runtime = SimpleNamespace(mode=mode, job=SimpleNamespace(chdir=chdir), runtime=SimpleNamespace(cwd=USER_DIR))
    monkeypatch.setattr(HydraConfig, "initialized", lambda: True)
    monkeypatch.setattr(HydraConfig, "get", lambda: runtime)
    monkeypatch.chdir(tmp_path)
    config = OmegaConf.create({"common": {"user_dir": None}})
    where = run_job(lambda cfg: (Path.cwd(), cfg.common.user_dir), config)
    assert where == (Path(USER_DIR) if returns else tmp_path, USER_DIR)


def misspelt_in_file() -> None:
    config = OmegaConf.create({"model": {"encoder_layers": 1}})
    OmegaConf.set_struct(config, True)
    OmegaConf.update(config, "model.encoder_layrs", 3)


def number_for_list() -> None:
    try:
        OmegaConf.structured(OptimizationConfig).lr = 0.001
    except OmegaConfBaseException as error:
        raise HydraException(f"Error merging override lr=0.001\n{error}") from error


LINES: dict[Callable[[], object], str | None] = {
    lambda: OmegaConf.merge(OmegaConf.structured(OptimizationConfig), {"max_updat": 3}): (
        "unknown setting 'max_updat' (did you mean 'max_update'?)"
    ),
    misspelt_in_file: (
        "unknown setting 'model.encoder_layrs' (did you mean 'encoder_layers'?); "
        "+model.encoder_layrs=VALUE adds one that the YAML file leaves out"
    ),
    lambda: OmegaConf.merge(OmegaConf.structured(OptimizationConfig), {"max_update": "abc"}): (
        "Value 'abc' of type 'str' could not be converted to Integer; full_key: max_update"
    ),
    lambda: yaml.safe_load("a: 1\nb: !!python/object/apply:os.getcwd []\n"): (
        "<unicode string>: line 2: could not determine a constructor for the tag "
        "'tag:yaml.org,2002:python/object/apply:os.getcwd'"
    ),
    number_for_list: "lr is a list, even of one value: lr=[0.001]",
    lambda: {}["ours"]: None,
}


def test_what_is_wrong_with_a_configuration_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for mistake, line in LINES.items():
        with pytest.raises(Exception) as caught:  # noqa: PT011  (its kind is Hydra's choice)
            mistake()
        told = configuration_error(caught.value)
        assert (told and str(told)) == line
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # asks for the trace
    assert configuration_error(HydraException("Error parsing override 'foo'")) is None
