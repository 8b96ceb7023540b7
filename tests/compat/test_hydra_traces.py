"""A mistake of the user under stock fairseq-hydra-train: one line and exit code 2."""

from __future__ import annotations

import pytest
from hydra.core.utils import JobReturn, JobStatus

from fairseq_plugins.compat import hydra_traces
from fairseq_plugins.errors import UserError


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


def test_other_errors_and_results_are_hydras() -> None:
    with pytest.raises(KeyError):
        _ = finished(JobStatus.FAILED, KeyError("x")).return_value
    assert finished(JobStatus.COMPLETED, 7).return_value == 7


def test_stock_raises_it_into_the_handler_that_prints_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    mended = JobReturn.__dict__["return_value"]
    assert isinstance(mended, hydra_traces._ResultOrExit)
    monkeypatch.setattr(JobReturn, "return_value", mended.stock)
    with pytest.raises(UserError):
        _ = finished(JobStatus.FAILED, UserError("first")).return_value
