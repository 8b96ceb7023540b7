"""The example of docs/adding_a_method.md works: in a copy of the package that gets the file, the line and the test."""

import re
import shutil
from pathlib import Path

import pytest

from tests import processes

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "adding_a_method.md"
METHOD, TEST = "fairseq_plugins/methods/laurel.py", "tests/methods/test_laurel.py"
"""The files that it tells the reader to write."""
RUN = """
import runpy, sys
import pytest

code = pytest.main(["-q", "-p", "no:cacheprovider", sys.argv[1]])
sys.argv = ["docs/generate.py"]
try:
    runpy.run_path("docs/generate.py", run_name="__main__")
except SystemExit as end:
    code = code or end.code
sys.exit(code)
"""


def files() -> dict[str, str]:
    """The files of the page: a path in code and a colon, then a Python block."""
    found = re.findall(r"`([\w/]+\.py)`[^\n`]*:\n\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return dict(found)


@pytest.mark.slow
def test_example_runs_as_the_page_says(tmp_path: Path) -> None:
    assert list(files()) == [METHOD, TEST]
    ignore = shutil.ignore_patterns("__pycache__", "corpus")
    shutil.copytree(ROOT / "fairseq_plugins", tmp_path / "fairseq_plugins", ignore=ignore)
    for folder in ("docs", "configs", "benchmarks/results"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.png"))
    for folder in ("methods", "recorded"):
        (tmp_path / "tests" / folder).mkdir(parents=True)
    tools = ("conftest", "composing", "models")
    for name in ("README.md", "pyproject.toml", "tests/recorded/launches.tsv", *(f"tests/{tool}.py" for tool in tools)):
        shutil.copy(ROOT / name, tmp_path / name)
    for name, text in files().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    imports = tmp_path / "fairseq_plugins/methods/__init__.py"
    text = imports.read_text(encoding="utf-8")
    assert text.count("    ds_init,\n") == 1
    imports.write_text(text.replace("    ds_init,\n", "    ds_init,\n    laurel,\n"), encoding="utf-8")

    # Here, where the imported module exists, the linter can tell whose it is.
    linted = processes.python("-m", "ruff", "check", METHOD, TEST, cwd=tmp_path)
    assert linted.code == 0, linted.output
    ended = processes.python("-c", RUN, TEST, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert ended.code == 0, ended.output + ended.errors
    assert "4 passed" in ended.output
    methods = (tmp_path / "docs/methods.md").read_text(encoding="utf-8")
    assert "\n## LAuReL-RW\n" in methods
    assert "- New parameter `S_residual.alpha`, `(1)`: 1, or" in methods
    assert "| `laurel` |" in methods
