"""A mistake of the user under stock fairseq-hydra-train: one line and exit code 2."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml
from fairseq.dataclass.configs import OptimizationConfig
from hydra._internal import utils as hydra_utils
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fairseq_plugins.errors import UserError
from fairseq_plugins.patches import hydra_traces


def finished(status: JobStatus, value: object) -> JobReturn:
    job = JobReturn(overrides=[], status=status)
    job.return_value = value
    return job


def test_a_user_error_ends_in_its_line_and_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    job = finished(JobStatus.FAILED, UserError(["first", "second"]))
    with pytest.raises(SystemExit) as end:
        _ = job.return_value
    assert end.value.code == 2
    assert capsys.readouterr().err == "error: first\nerror: second\n"


def test_other_errors_and_results_are_hydras(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyError):
        _ = finished(JobStatus.FAILED, KeyError("x")).return_value
    assert finished(JobStatus.COMPLETED, 7).return_value == 7
    # Hydra itself raises the user's mistake, too, into the handler that prints a trace.
    monkeypatch.setattr(JobReturn, "return_value", hydra_traces.STOCK_RESULT)
    with pytest.raises(UserError):
        _ = finished(JobStatus.FAILED, UserError("first")).return_value


def misspelt_in_schema() -> None:
    OmegaConf.merge(OmegaConf.structured(OptimizationConfig), {"max_updat": 3})


def misspelt_in_file() -> None:
    config = OmegaConf.create({"model": {"encoder_layers": 1}})
    OmegaConf.set_struct(config, True)
    OmegaConf.update(config, "model.encoder_layrs", 3)


def of_another_kind() -> None:
    OmegaConf.merge(OmegaConf.structured(OptimizationConfig), {"max_update": "abc"})


def with_a_tag() -> None:
    yaml.safe_load("a: 1\nb: !!python/object/apply:os.getcwd []\n")


def number_for_list() -> None:
    try:
        OmegaConf.structured(OptimizationConfig).lr = 0.001
    except OmegaConfBaseException as error:
        raise HydraException(f"Error merging override lr=0.001\n{error}") from error


def refused_by_hydra() -> None:
    raise HydraException("Error parsing override 'foo'\nmissing EQUAL")


LINES: dict[Callable[[], None], str] = {
    misspelt_in_schema: "unknown setting 'max_updat' (did you mean 'max_update'?)",
    misspelt_in_file: (
        "unknown setting 'model.encoder_layrs' (did you mean 'encoder_layers'?); "
        "+model.encoder_layrs=VALUE adds one that the YAML file leaves out"
    ),
    of_another_kind: "Value 'abc' of type 'str' could not be converted to Integer; full_key: max_update",
    with_a_tag: (
        "<unicode string>: line 2: could not determine a constructor for the tag "
        "'tag:yaml.org,2002:python/object/apply:os.getcwd'"
    ),
    number_for_list: "lr is a list of values: give lr=[0.001]",
    refused_by_hydra: "Error parsing override 'foo'; missing EQUAL",
}


def test_what_is_wrong_with_a_configuration_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    for mistake in LINES:
        with pytest.raises(SystemExit) as end:
            hydra_utils.run_and_report(mistake)
        assert end.value.code == 2
        said[mistake] = capsys.readouterr().err
    assert said == {mistake: f"error: {line}\n" for mistake, line in LINES.items()}


def test_who_asks_hydra_for_the_trace_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(HydraException):
        hydra_utils.run_and_report(refused_by_hydra)
