"""Allowed imports inside the package: methods build on core, core knows no method, nothing needs the command."""

import ast
import itertools
import re
import shutil
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import fairseq_plugins
from fairseq_plugins import process
from fairseq_plugins.core.method import METHODS
from tests import processes, toy
from tests.representatives import slow_but

PACKAGE = Path(fairseq_plugins.__file__).parent
SETUP = PACKAGE.parent / "setup.py"
MAY_IMPORT: dict[str, set[str]] = {
    **dict.fromkeys(("sums", "wrapping"), set()),
    "core": {"wrapping"},
    "methods.shared": {"core"},
    "methods": {"core", "methods.shared"},
    "training": {"core", "wrapping"},
    "search": {"core", "wrapping"},
    "checkpoints": {"checkpoints.differences", "checkpoints.provenance", "core"},
    "checkpoints.differences": {"checkpoints.provenance", "core"},
    "checkpoints.provenance": set(),
    "patches": {"checkpoints.differences", "checkpoints.provenance", "core", "sums", "wrapping"},
    "": {"core", "methods", "patches", "search", "training"},
    **dict.fromkeys(("tools.unigram_entropy", "tools.plots", "tools.workers"), set()),
    "tools.decoder": {"search"},
    "tools": {"tools.observe.guard", "tools.observe.recorder"},
    "tools.text": {"sums", "tools.workers"},
    "tools.scoring": {"tools.text"},
    "tools.observe.recorder": {"core", "wrapping"},
    "tools.observe.guard": {"core", "tools.observe.recorder", "tools.unigram_entropy", "wrapping"},
    "tools.observe.diagnostics": {"checkpoints", "core", "tools.observe.recorder", "tools.pipeline", "tools.plots"},
    "tools.pipeline": {
        *("checkpoints", "checkpoints.provenance", "core", "search", "sums", "tools.decoder"),
        *("tools.observe.recorder", "tools.scoring", "tools.text", "tools.unigram_entropy"),
        "training",
    },
    "tools.translator": {
        *("", "checkpoints", "checkpoints.provenance", "core", "search", "sums"),
        *("tools.decoder", "tools.pipeline", "tools.text", "tools.workers"),
    },
    "tools.demo": {"core", "tools.pipeline", "tools.scoring"},
    "tools.cli": {"tools.pipeline", "tools.text", "wrapping"},
}
"""Legal imports of each part ("" is the package) besides its own and :data:`BASE`; only ``tools`` names ``tools``."""
BASE = {"errors", "files", "integrity", "lines", "options", "process", "processor", "records", "tables"}
MAY_IMPORT |= dict.fromkeys(BASE, set())
FIRST = {
    "fairseq.models": "import fairseq.models; fairseq.models.ARCH_MODEL_REGISTRY",
    "a method": "import fairseq_plugins.methods.admin, fairseq_plugins.core.method; fairseq_plugins.methods.admin",
    "fairseq_cli.train": "import fairseq_cli.train; fairseq_cli.train.main",
    "settings": "from fairseq_plugins.search.settings import GenerationConfigWithForm",
    # Python would not see that each of two threads waits for the other.
    "torch in a thread": """
import faulthandler, threading, time
faulthandler.dump_traceback_later(120, exit=True)
thread = threading.Thread(target=lambda: __import__("torch"))
thread.start()
time.sleep(0.05)
import fairseq.models
thread.join()
""",
    "after an import that failed": """
sys.modules["hydra"] = None
try:
    import fairseq
except ImportError:
    del sys.modules["hydra"]
import fairseq.models
executed.clear()
""",
}
"""First statements of a program."""


def part_of(module: str) -> str:
    """``core`` for ``fairseq_plugins.core.layers``, and the empty string for the package itself."""
    names = module.split(".")[1:]
    longest_first = (".".join(names[:length]) for length in range(len(names), 0, -1))
    return next((part for part in longest_first if part in MAY_IMPORT), "")


def imports(tree: ast.AST, module: str = "fairseq_plugins.module") -> Iterator[str]:
    """Full names of the package's own modules (or of names in them) that ``tree``, the text of ``module``, imports."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: -node.level] if node.level else []
            names = [".".join([*above, *filter(None, [node.module]), alias.name]) for alias in node.names]
        yield from (name for name in names if name.split(".")[0] == "fairseq_plugins")


def test_every_import_goes_down() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        legal = MAY_IMPORT[part_of(module)] | BASE | {part_of(module)}
        names = imports(ast.parse(path.read_text(encoding="utf-8")), module)
        assert [name for name in names if part_of(name) not in legal] == [], module


def modules() -> dict[str, Path]:
    paths = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in paths.items()}


def test_no_imports_form_a_circle() -> None:
    """Imports inside functions and imports for types count, since both would hide a circle."""
    known = modules()
    uses: dict[str, set[str]] = {}
    for name, path in known.items():
        module = f"{name}.__init__" if path.stem == "__init__" else name
        found = imports(ast.parse(path.read_text(encoding="utf-8")), module)
        uses[name] = {each if each in known else each.rpartition(".")[0] for each in found} - {name}
    TopologicalSorter(uses).prepare()


WITHOUT_TOOLS = """\
import sys
from fairseq_cli import generate, train
for method in {methods!r}:
    sys.argv = ["fairseq-train", *{train!r}, "--arch", f"{{method}}_transformer", "--save-dir", method]
    train.cli_main()
    sys.argv = ["fairseq-generate", *{generate!r}, "--path", f"{{method}}/checkpoint_last.pt", "--results-path", method]
    generate.cli_main()
    assert open(f"{{method}}/generate-test.txt").read().count("H-") == 60, method
assert not any(name.startswith("fairseq_plugins.tools") for name in sys.modules)
print(sys.modules["fairseq_plugins"].__file__)
"""


@pytest.mark.parametrize("methods", [["admin"], pytest.param([*METHODS], marks=pytest.mark.slow)])
def test_without_the_tools_every_method_trains_and_generates(methods, toy_data, tmp_path) -> None:
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=shutil.ignore_patterns("tools", "__pycache__", "configs"))
    data = [str(toy_data), "--user-dir", PACKAGE.name]
    train = [*data, *toy.TINY_MODEL, *toy.RECIPE, "--max-update", "1", "--disable-validation"]
    generate = [*data, "--cpu", "--beam", "1", "--max-len-b", "5"]
    output = run(WITHOUT_TOOLS.format(methods=methods, train=train, generate=generate), tmp_path)
    assert output.splitlines()[-1] == str(tmp_path / PACKAGE.name / "__init__.py")


def test_no_method_imports_another() -> None:
    for path in (PACKAGE / "methods").glob("*.py"):
        if path.stem != "__init__":
            assert [name for name in imports(ast.parse(path.read_text())) if part_of(name) == "methods"] == []


def run(program: str, place: Path = PACKAGE.parent) -> str:
    ended = processes.python("-c", program, cwd=place)
    assert ended.code == 0, ended.errors
    return ended.output


def test_what_needs_no_fairseq_imports_neither_it_nor_torch() -> None:
    """They take seconds, and fairseq would log as it likes."""
    names = [*(f"fairseq_plugins.{name}" for name in process.COMMANDS), *fairseq_plugins.WITHOUT_FAIRSEQ]
    program = (
        "import importlib, sys\n"
        "from fairseq_plugins import Translator\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        "    assert not {'fairseq', 'torch'} & sys.modules.keys(), name\n"
    )
    run(program)


COUNTED = """
from collections import Counter
from importlib.machinery import SourceFileLoader
executed, execute = Counter(), SourceFileLoader.exec_module
def counted(loader, module):
    executed[module.__name__] += 1
    execute(loader, module)
SourceFileLoader.exec_module = counted
"""


@pytest.mark.parametrize("first", slow_but(("a method",), FIRST))
def test_whatever_is_imported_first_finds_fairseq_patched_and_all_methods(first: str) -> None:
    """And no module is made twice, so that everything has the same one."""
    program = (
        f"{COUNTED}import fairseq_plugins, sys\n{FIRST[first]}\n"
        "assert not {'sklearn', 'scipy'} & sys.modules.keys(), 'fairseq was not patched before'\n"
        "from fairseq.models import ARCH_MODEL_REGISTRY\n"
        "from fairseq import options\n"
        "from fairseq_plugins.core.method import METHODS\n"
        "from fairseq_plugins.search.settings import GenerationConfigWithForm\n"
        "assert options.GenerationConfig is GenerationConfigWithForm\n"
        "print(len(METHODS), 'admin_transformer' in ARCH_MODEL_REGISTRY, max(executed.values(), default=1))\n"
    )
    assert run(program) == f"{len(METHODS)} True 1\n"


def test_what_registering_imports_is_named() -> None:
    """Else a program that imports such a module first would register in the middle of it."""
    program = (
        "import sys\n"
        "from fairseq_plugins import Translator, register\n"
        "before = set(sys.modules)\n"
        "register()\n"
        "print(*(name for name in set(sys.modules) - before if name.startswith('fairseq_plugins.')))\n"
    )
    parts = {part_of(name) for name in run(program).split()} - BASE - {"sums", "wrapping"}
    needing = tuple(f"{each}." for each in fairseq_plugins.NEED_FAIRSEQ)
    named = {part for part in parts if f"{part}.".startswith(needing)}
    assert parts - named == {"checkpoints", "checkpoints.provenance", "tools", "tools.unigram_entropy"}


def test_every_package_that_is_imported_is_declared() -> None:
    """``fairseq_cli`` and ``fairseq`` are of one distribution, ``yaml`` of PyYAML."""
    keywords = [node for node in ast.walk(ast.parse(SETUP.read_text())) if isinstance(node, ast.keyword)]
    said = {each.arg: ast.literal_eval(each.value) for each in keywords if str(each.arg).endswith("_require")}
    said |= {each.arg: ast.literal_eval(each.value) for each in keywords if each.arg == "install_requires"}
    requirements = [*said["install_requires"], *itertools.chain(*said["extras_require"].values())]
    declared = {re.split("[=<>~]", requirement)[0].lower() for requirement in requirements}
    distributions = packages_distributions()
    missing = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names = [node.module]
            for name in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"fairseq_plugins"}:
                owners = {owner.lower().replace("_", "-") for owner in distributions.get(name, [name])}
                if not owners & declared:
                    missing[name] = path.relative_to(PACKAGE)
    assert missing == {}
