"""Several processes give the same result as one, in order, and end with their parent."""

import os
import signal
import subprocess
import sys
import time
from itertools import count, product
from pathlib import Path
from typing import NoReturn

import pytest

from fairseq_plugins.errors import UserError
from fairseq_plugins.tools import workers
from tests.processes import ends, python


def test_the_order_is_kept() -> None:
    for processes, lines in product((1, 3), (0, 1, 7, 100)):
        text = [str(number) for number in range(lines)]
        mapped = workers.map_lines(lambda: "{}!".format, text, processes, at_once=2)
        assert list(mapped) == [line + "!" for line in text]


def test_a_corpus_without_end_can_be_begun() -> None:
    mapped = workers.map_lines(lambda: str.upper, (f"line {number}" for number in count()), 2, at_once=2)
    assert [next(mapped) for _ in range(3)] == ["LINE 0", "LINE 1", "LINE 2"]
    mapped.close()


def test_what_was_read_before_an_error_is_done() -> None:
    def lines():
        yield from map(str, range(10))
        raise UserError("no line 10")

    for processes in (1, 2):
        done: list[str] = []
        with pytest.raises(UserError, match="^no line 10$"):
            done.extend(workers.map_lines(lambda: str.upper, lines(), processes, at_once=3))
        assert done == [str(number) for number in range(10)]


def test_a_mistake_in_a_worker_and_a_killed_worker() -> None:
    def refuse(*lines: str) -> NoReturn:
        raise UserError(f"no model for {len(lines)}")

    with pytest.raises(UserError, match="^no model for 1$"):
        list(workers.map_lines(lambda: refuse, ["a"], 2))
    with pytest.raises(UserError, match="^no model for 0$"):
        list(workers.map_lines(refuse, ["a"], 2))
    with pytest.raises(UserError, match=r"^a worker process ended .*: was it killed, or the memory full\?$"):
        list(workers.map_lines(lambda: lambda line: os.kill(os.getpid(), signal.SIGKILL), ["a"], 2))


GARBAGE = """
import gc, os
from fairseq_plugins.tools.workers import map_lines

class Engine:
    def __del__(self):
        print("ended in", os.getpid() == PARENT, flush=True)

PARENT = os.getpid()
gc.disable()
engine = Engine()
engine.itself = engine
del engine
print(*map_lines(lambda: lambda line: f"{line} {gc.collect() >= 0}", ["a"], 2), flush=True)
gc.collect()
"""


def test_what_the_parent_has_let_go_of_ends_in_the_parent() -> None:
    """An engine of CTranslate2 waits for its threads when it ends, and a worker does not have them."""
    assert python("-W", "ignore", "-c", GARBAGE).output == "a True\nended in True\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has died")
def test_a_worker_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, sys, time\n"
        "from fairseq_plugins.tools.workers import map_lines\n"
        "def work(line):\n"
        "    pathlib.Path(sys.argv[1], str(os.getpid())).touch()\n"
        "    time.sleep(600)\n"
        "list(map_lines(lambda: work, ['a'], 2))\n"
    )
    script = tmp_path / "fairseq-deep.py"  # this name tells the package that it need not load fairseq
    script.write_text(program)
    pids = tmp_path / "pids"
    pids.mkdir()
    parent = subprocess.Popen([sys.executable, str(script), str(pids)], env={**os.environ, "PYTHONPATH": os.getcwd()})
    while not any(pids.iterdir()):
        assert parent.poll() is None
        time.sleep(0.05)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    [worker] = [int(file.name) for file in pids.iterdir()]
    assert ends(worker)
