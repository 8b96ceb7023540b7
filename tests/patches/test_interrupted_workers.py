"""Workers of fairseq-preprocess leave Ctrl-C to the process that has started them."""

from __future__ import annotations

import multiprocessing
import signal
from types import ModuleType

import pytest
from fairseq import binarizer
from fairseq.data import dictionary


@pytest.mark.parametrize("module", [binarizer, dictionary])
def test_a_worker_ignores_interrupts(module: ModuleType) -> None:
    with module.Pool(processes=1) as pool:
        assert pool.apply(signal.getsignal, (signal.SIGINT,)) == signal.SIG_IGN
    with multiprocessing.Pool(processes=1) as pool:
        assert pool.apply(signal.getsignal, (signal.SIGINT,)) == signal.default_int_handler
