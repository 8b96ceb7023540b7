"""A mistake of the user under stock fairseq-hydra-train: one line and exit code 2."""

from __future__ import annotations

import pytest
from hydra.core.utils import JobReturn, JobStatus

from fairseq_plugins.errors import UserError
from fairseq_plugins.patches import hydra_traces


def finished(status: JobStatus, value: object) -> JobReturn:
    job = JobReturn(overrides=[], status=status)
    job.return_value = value
    return job


def test_a_user_error_ends_in_its_lines_and_code_2_and_all_else_is_hydras(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = finished(JobStatus.FAILED, UserError(["first", "second"]))
    with pytest.raises(SystemExit) as end:
        _ = failed.return_value
    assert end.value.code == 2
    assert capsys.readouterr().err == "error: first\nerror: second\n"
    with pytest.raises(KeyError):
        _ = finished(JobStatus.FAILED, KeyError("x")).return_value
    assert finished(JobStatus.COMPLETED, 7).return_value == 7
    # Hydra itself raises the user's mistake, too, into the handler that prints a trace.
    monkeypatch.setattr(JobReturn, "return_value", hydra_traces.STOCK_RESULT)
    with pytest.raises(UserError):
        _ = finished(JobStatus.FAILED, UserError("first")).return_value
