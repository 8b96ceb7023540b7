"""``fairseq-deep doctor``: every check against a made environment, and the command where fairseq is broken."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fairseq_plugins import patches
from fairseq_plugins.cli import main as command
from fairseq_plugins.doctor import machine, packages, plugin, report
from fairseq_plugins.doctor.finding import Check, Finding, Level

ROOT = Path(__file__).resolve().parents[2]


def worst(findings: Iterable[Finding]) -> Level:
    order = list(Level)
    return max((finding.level for finding in findings), key=order.index)


class TestVersions:
    @pytest.fixture
    def versions(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
        """Installed packages by name; the test changes them."""
        made = {package.name: package.tested or "1.0" for package in packages.PACKAGES}
        made.update({packages.FAIRSEQ: packages.TESTED_FAIRSEQ, "pip": "25.0"})

        def version(name: str) -> str:
            if name not in made:
                raise metadata.PackageNotFoundError(name)
            return made[name]

        monkeypatch.setattr(metadata, "version", version)
        return made

    def finding(self, name: str) -> Finding:
        return next(finding for finding in packages.packages() if finding.about == name)

    def test_tested_versions_are_the_pinned_ones(self) -> None:
        pinned = dict(re.findall(r"^([\w-]+)==([\w.]+)", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE))
        assert {p.name: p.tested for p in packages.PACKAGES if p.tested} == {
            p.name: pinned[p.name] for p in packages.PACKAGES if p.tested
        }
        assert pinned[packages.FAIRSEQ] == packages.TESTED_FAIRSEQ

    def test_minimum_versions_are_those_of_the_package(self) -> None:
        required = dict(re.findall(r'"([\w-]+)>=([\w.]+)"', (ROOT / "setup.py").read_text()))
        known = {package.name: package.minimum for package in packages.PACKAGES if package.name in required}
        assert known == {name: required[name] for name in known}
        assert {"torch", "numpy", "sacrebleu", "sentencepiece", "matplotlib"} <= known.keys()
        assert f'python_requires=">={packages.PYTHON[0][0]}.{packages.PYTHON[0][1]},' in (ROOT / "setup.py").read_text()

    def test_all_as_tested(self, versions: dict[str, str]) -> None:
        assert worst(packages.packages()) is Level.OK
        assert [str(finding.says) for finding in packages.fairseq_distribution()] == ["0.12.3.1"]

    @pytest.mark.parametrize(
        ("name", "version", "level", "says"),
        [
            ("torch", "2.9.1+cu128", Level.ERROR, "2.9.1+cu128 is too old; 2.10 is the oldest that works"),
            ("torch", "2.13.0+cu130", Level.OK, "2.13.0+cu130"),
            ("torch", "2.10.0", Level.OK, "2.10.0 (tested: 2.13.0)"),
            ("hydra-core", "1.0.7", Level.ERROR, "1.0.7 is too old; 1.3.2 is the oldest that works"),
            ("omegaconf", "2.0.6", Level.ERROR, "2.0.6 is too old; 2.3.0 is the oldest that works"),
            ("sacrebleu", "1.5.1", Level.ERROR, "1.5.1 is too old; 2.3.1 is the oldest that works"),
        ],
    )
    def test_other_version(self, versions: dict[str, str], name: str, version: str, level: Level, says: str) -> None:
        versions[name] = version
        assert (self.finding(name).level, self.finding(name).says) == (level, says)

    @pytest.mark.parametrize(("name", "level"), [("scikit-learn", Level.ERROR), ("wandb", Level.NOTE)])
    def test_missing_package(self, versions: dict[str, str], name: str, level: Level) -> None:
        del versions[name]
        assert self.finding(name).level is level
        assert self.finding(name).cure == f"pip install {name}"

    @pytest.mark.parametrize(
        ("python", "level"), [((3, 9, 2), Level.ERROR), ((3, 10, 0), Level.OK), ((3, 14, 0), Level.ERROR)]
    )
    def test_python(self, monkeypatch: pytest.MonkeyPatch, python: tuple[int, ...], level: Level) -> None:
        monkeypatch.setattr(packages.sys, "version_info", python)
        (finding,) = packages.python()
        assert finding.level is level
        assert finding.says.startswith(".".join(map(str, python)))

    @pytest.mark.parametrize(("python", "thread"), [((3, 12, 1), "5012"), ((3, 10, 4), "4858")])
    def test_stock_fairseq(
        self, versions: dict[str, str], monkeypatch: pytest.MonkeyPatch, python: tuple[int, ...], thread: str
    ) -> None:
        del versions[packages.FAIRSEQ]
        versions["fairseq"] = "0.12.2"
        monkeypatch.setattr(packages.sys, "version_info", python)
        (finding,) = packages.fairseq_distribution()
        assert finding.level is Level.ERROR
        assert finding.thread.endswith(f"/{thread}")
        assert "pip install --no-build-isolation fairseq-fixed==0.12.3.1" in finding.cure

    def test_two_fairseqs(self, versions: dict[str, str]) -> None:
        versions["fairseq"] = "0.12.2"
        (finding,) = packages.fairseq_distribution()
        assert finding.level is Level.ERROR
        assert "overwrite each other" in finding.says

    def test_another_release_of_ours(self, versions: dict[str, str]) -> None:
        versions[packages.FAIRSEQ] = "0.13.0"
        assert [finding.level for finding in packages.fairseq_distribution()] == [Level.WARNING]

    @pytest.mark.parametrize(("pip", "levels"), [("24.1", [Level.ERROR, Level.NOTE]), ("24.0", [Level.ERROR])])
    def test_no_fairseq(
        self, versions: dict[str, str], monkeypatch: pytest.MonkeyPatch, pip: str, levels: list[Level]
    ) -> None:
        del versions[packages.FAIRSEQ]
        versions["pip"] = pip
        monkeypatch.setattr(packages, "find_spec", lambda _: None)
        assert [finding.level for finding in packages.fairseq_distribution()] == levels

    def test_source_checkout(self, versions: dict[str, str]) -> None:
        del versions[packages.FAIRSEQ]
        assert [finding.level for finding in packages.fairseq_distribution()] == [Level.WARNING]


Properties = namedtuple("Properties", "name total_memory major minor")
KERNELS = ["sm_75", "sm_80", "sm_90", "compute_90"]


def fake_torch(*gpus: Properties, cuda: Any = "13.0", kernels: Sequence[str] = KERNELS, nccl: bool = True) -> Any:
    return SimpleNamespace(
        __version__="2.13.0",
        version=SimpleNamespace(cuda=cuda, hip=None),
        distributed=SimpleNamespace(is_nccl_available=lambda: nccl),
        cuda=SimpleNamespace(
            is_available=lambda: bool(gpus),
            device_count=lambda: len(gpus),
            get_arch_list=lambda: list(kernels),
            get_device_properties=lambda number: gpus[number],
        ),
    )


class TestGpus:
    @pytest.mark.parametrize(
        ("gpu", "level", "says"),
        [
            (
                Properties("NVIDIA H100", 80 << 30, 9, 0),
                Level.OK,
                "NVIDIA H100, 80 GiB, compute capability 9.0: --bf16 and --fp16",
            ),
            (
                Properties("NVIDIA A10", 24 << 30, 8, 6),
                Level.OK,
                "NVIDIA A10, 24 GiB, compute capability 8.6: --bf16 and --fp16",
            ),
            (
                Properties("Tesla T4", 15 << 30, 7, 5),
                Level.OK,
                "Tesla T4, 15 GiB, compute capability 7.5: --fp16 or --amp; --bf16 is only emulated",
            ),
            (
                Properties("Tesla K80", 12 << 30, 3, 7),
                Level.ERROR,
                "Tesla K80, 12 GiB, compute capability 3.7: this torch has no kernels for it "
                "(sm_75 sm_80 sm_90 compute_90)",
            ),
        ],
    )
    def test_each_kind(self, gpu: Properties, level: Level, says: str) -> None:
        (finding,) = machine.findings_of_gpus(fake_torch(gpu), {}, True)
        assert (finding.level, finding.says) == (level, says)

    def test_pascal_with_an_older_torch(self) -> None:
        torch = fake_torch(Properties("Tesla P100", 16 << 30, 6, 0), kernels=["sm_60"])
        (finding,) = machine.findings_of_gpus(torch, {}, True)
        assert finding.level is Level.NOTE
        assert finding.says.endswith("no gain from --fp16, no --bf16")

    @pytest.mark.parametrize(
        ("capability", "kernels", "has"),
        [
            ((8, 6), ["sm_80"], True),  # same generation
            ((8, 0), ["sm_86"], False),  # newer than the GPU
            ((12, 0), ["sm_90", "compute_90"], True),  # translated when first used
            ((12, 0), ["sm_90"], False),
            ((9, 0), ["sm_90a"], True),
            ((10, 0), ["sm_100"], True),
            ((9, 0), [], True),
        ],
    )
    def test_kernels(self, capability: tuple[int, int], kernels: list[str], has: bool) -> None:
        assert machine.has_kernels(capability, kernels) is has

    def test_two_gpus_without_nccl(self) -> None:
        gpu = Properties("NVIDIA A10", 24 << 30, 8, 6)
        found = list(machine.findings_of_gpus(fake_torch(gpu, gpu, nccl=False), {}, True))
        assert [finding.about for finding in found] == ["GPU 0", "GPU 1", "NCCL"]
        assert worst(found) is Level.WARNING

    @pytest.mark.parametrize(
        ("torch", "environment", "driver", "level", "says"),
        [
            (fake_torch(), {"CUDA_VISIBLE_DEVICES": ""}, True, Level.NOTE, "hidden by CUDA_VISIBLE_DEVICES=''"),
            (fake_torch(cuda=None), {}, True, Level.WARNING, "there is one, but torch 2.13.0 is built without CUDA"),
            (fake_torch(cuda=None), {}, False, Level.NOTE, "none (torch 2.13.0 is built without CUDA)"),
            (fake_torch(), {}, True, Level.WARNING, "torch 2.13.0 (CUDA 13.0) cannot use the GPU of this machine"),
            (fake_torch(), {}, False, Level.NOTE, "none: training needs --cpu"),
        ],
    )
    def test_why_there_is_none(
        self, torch: Any, environment: dict[str, str], driver: bool, level: Level, says: str
    ) -> None:
        (finding,) = machine.findings_of_gpus(torch, environment, driver)
        assert finding.level is level
        assert finding.says.startswith(says)


class TestMachine:
    @pytest.mark.parametrize(
        ("free", "level"), [(50 << 30, Level.OK), (5 << 30, Level.WARNING), (1 << 20, Level.ERROR)]
    )
    def test_disk(self, monkeypatch: pytest.MonkeyPatch, free: int, level: Level) -> None:
        monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
        assert worst(machine.disk()) is level

    @pytest.mark.parametrize(("free", "level"), [(1 << 30, Level.OK), (64 << 20, Level.WARNING)])
    def test_shared_memory(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, level: Level) -> None:
        monkeypatch.setattr(machine, "SHARED_MEMORY", tmp_path)
        monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
        assert worst(machine.shared_memory()) is level

    def test_no_shared_memory(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(machine, "SHARED_MEMORY", tmp_path / "none")
        assert worst(machine.shared_memory()) is Level.NOTE

    @pytest.mark.parametrize(("text", "limit"), [("2147483648\n", 2 << 30), ("max\n", None), (None, None)])
    def test_limit_of_a_container(self, tmp_path: Path, text: Any, limit: Any) -> None:
        path = tmp_path / "memory.max"
        if text is not None:
            path.write_text(text)
        assert machine._container_limit(path) == limit

    @pytest.mark.parametrize(
        ("limit", "says"), [(1 << 30, "1 GiB of memory (limited by the container)"), (None, "memory")]
    )
    def test_memory_of_a_container(self, monkeypatch: pytest.MonkeyPatch, limit: Any, says: str) -> None:
        monkeypatch.setattr(machine, "_container_limit", lambda _: limit)
        (finding,) = machine.processor()
        assert finding.says.endswith(says)

    def test_numpy_of_another_generation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail() -> None:
            raise RuntimeError("Numpy is not available")

        torch = SimpleNamespace(__version__="2.1.0", zeros=lambda _: SimpleNamespace(numpy=fail))
        monkeypatch.setattr(machine, "load_torch", lambda: torch)
        (finding,) = machine.numpy_bridge()
        assert (finding.level, finding.about) == (Level.ERROR, "numpy")
        assert "Numpy is not available" in finding.says

    def test_no_torch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail() -> None:
            raise OSError("libcublas.so.12: cannot open shared object file")

        monkeypatch.setattr(machine, "load_torch", fail)
        (finding,) = machine.numpy_bridge()
        assert finding.level is Level.ERROR
        assert finding.says == "cannot be imported: libcublas.so.12: cannot open shared object file"
        assert list(machine.gpus()) == []

    def test_unsafe_loading(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
        assert "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD" in [finding.about for finding in machine.variables()]
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0")
        assert "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD" not in [finding.about for finding in machine.variables()]

    def test_encoding(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(machine.sys, "stdout", SimpleNamespace(encoding="ascii"))
        assert [finding.about for finding in machine.variables()] == ["encoding"]

    @pytest.mark.parametrize(
        ("whole", "perl", "level"),
        [(True, "/usr/bin/perl", Level.OK), (False, "/usr/bin/perl", Level.WARNING), (True, None, Level.WARNING)],
    )
    def test_moses(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, whole: bool, perl: Any, level: Level) -> None:
        if whole:
            (tmp_path / "scripts" / "tokenizer").mkdir(parents=True)
            (tmp_path / "scripts" / "tokenizer" / "tokenizer.perl").touch()
        monkeypatch.setenv("MOSES", str(tmp_path))
        monkeypatch.setattr(machine.shutil, "which", lambda _: perl)
        assert worst(machine.moses()) is level

    def test_moses_is_not_needed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("MOSES", raising=False)
        assert worst(machine.moses()) is Level.NOTE


class TestPlugin:
    def test_all_patches_are_applied(self) -> None:
        found = {finding.about: finding for finding in plugin.fairseq_patches()}
        assert tuple(found) == patches.MODULES
        assert worst(found.values()) is Level.OK
        assert found["dropped_sentences"].says == "The batcher silently drops the last sentences of a data set."
        assert found["dropped_sentences"].thread.endswith("facebookresearch/fairseq/issues/5036")

    def test_patch_that_is_not_applied(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from fairseq.data import data_utils

        stock = data_utils.batch_by_size
        while hasattr(stock, "__wrapped__"):
            stock = stock.__wrapped__
        monkeypatch.setattr(data_utils, "batch_by_size", stock)
        missing = [finding.about for finding in plugin.fairseq_patches() if finding.level is not Level.OK]
        assert missing == ["dropped_sentences", "short_max_tokens"]
        # Looking does not patch.
        assert data_utils.batch_by_size is stock

    def test_architectures(self) -> None:
        (finding,) = plugin.architectures()
        count, methods = map(int, re.findall(r"\d+", finding.says))
        from fairseq_plugins.core.method import METHODS

        assert methods == len(METHODS)
        assert count > methods

    @pytest.mark.parametrize(("module", "level"), [(module, level) for module, level, _, _ in plugin.EXTENSIONS])
    def test_missing_extension(self, monkeypatch: pytest.MonkeyPatch, module: str, level: Level) -> None:
        monkeypatch.setitem(sys.modules, module, None)
        findings = list(plugin.extensions())
        assert [finding.about for finding in findings if finding.level is level] == [module]

    def test_second_user_directory(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        assert [finding.level for finding in plugin.user_directory()] == [Level.OK]
        (tmp_path / plugin.NAME).mkdir()
        (tmp_path / plugin.NAME / "__init__.py").touch()
        monkeypatch.chdir(tmp_path)
        (finding,) = plugin.user_directory()
        assert finding.level is Level.WARNING
        assert str(tmp_path / plugin.NAME) in finding.says

    def test_link_to_the_same_directory_is_no_second(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / plugin.NAME).symlink_to(ROOT / plugin.NAME)
        monkeypatch.chdir(tmp_path)
        assert [finding.level for finding in plugin.user_directory()] == [Level.OK]


class TestReport:
    @pytest.fixture
    def printed(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
        def run(checks: Sequence[Check], *argv: str) -> tuple[int, str]:
            monkeypatch.setattr(report, "CHECKS", checks)
            code = report.main(argv)
            return code, capsys.readouterr().out

        return run

    @pytest.mark.parametrize(
        ("levels", "code", "last"),
        [
            ([Level.OK, Level.NOTE], 0, "training can start"),
            ([Level.OK, Level.WARNING], 0, "training can start; look at: warning"),
            ([Level.WARNING, Level.ERROR], 1, "training cannot start: error"),
        ],
    )
    def test_answer(self, printed: Any, levels: list[Level], code: int, last: str) -> None:
        checks = [Check("topic", lambda level=level: [Finding(level, level.value, "says")]) for level in levels]
        found, text = printed(checks)
        assert (found, text.splitlines()[-1]) == (code, last)

    def test_json(self, printed: Any) -> None:
        checks = [Check("topic", lambda: [Finding(Level.ERROR, "torch", "broken", "mend it", "https://x")])]
        code, text = printed(checks, "--json")
        assert code == 1
        assert json.loads(text) == {
            "training_can_start": False,
            "findings": [
                {
                    "topic": "topic",
                    "level": "error",
                    "about": "torch",
                    "says": "broken",
                    "cure": "mend it",
                    "thread": "https://x",
                }
            ],
        }

    def test_check_that_fails_is_a_finding(self, printed: Any) -> None:
        def fail() -> Iterable[Finding]:
            raise OSError("no such device")

        fine = Check("topic", lambda: [Finding(Level.OK, "other", "fine")])
        code, text = printed([Check("topic", fail), fine])
        assert code == 0
        assert "this check failed: OSError: no such device" in text
        assert "other" in text

    def test_no_check_of_fairseq_where_it_cannot_be_imported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plugin, "obstacle", lambda: "ImportError: no")
        ran: list[str] = []
        checks = [
            Check("a", lambda: ran.append("a") or []),  # type: ignore[func-returns-value]
            Check("b", lambda: ran.append("b") or [], needs_fairseq=True),  # type: ignore[func-returns-value]
        ]
        assert report.examine(checks) == []
        assert ran == ["a"]

    def test_long_text_is_wrapped(self, printed: Any) -> None:
        _, text = printed([Check("topic", lambda: [Finding(Level.OK, "x", "word " * 60)])])
        assert max(map(len, text.splitlines())) <= report.WIDTH


def test_this_environment_can_train(capsys: pytest.CaptureFixture[str]) -> None:
    """The tests run in it."""
    assert report.main(["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["training_can_start"] is True
    assert {finding["topic"] for finding in found["findings"]} == {check.topic for check in report.CHECKS}


class TestBrokenFairseq:
    """In a separate process that finds a missing or broken fairseq before the installed packages."""

    def run(self, directory: Path, *argv: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": f"{directory}{os.pathsep}{ROOT}"}
        return subprocess.run(
            [sys.executable, "-m", "fairseq_plugins.cli", *argv],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    @pytest.fixture
    def broken(self, tmp_path: Path) -> Path:
        (tmp_path / "fairseq").mkdir()
        (tmp_path / "fairseq" / "__init__.py").write_text(
            "raise ValueError(\"mutable default <class 'CommonConfig'> for field common is not allowed\")\n"
        )
        return tmp_path

    def test_doctor_says_why(self, broken: Path) -> None:
        done = self.run(broken, "doctor", "--json")
        assert (done.returncode, done.stderr) == (1, "")
        content = json.loads(done.stdout)
        errors = [finding for finding in content["findings"] if finding["level"] == "error"]
        assert [(finding["about"], finding["says"]) for finding in errors] == [
            (
                "fairseq",
                "cannot be imported: ValueError: mutable default <class 'CommonConfig'> for field common is "
                "not allowed",
            )
        ]

    @pytest.mark.slow
    def test_other_commands_name_the_doctor(self, broken: Path) -> None:
        done = self.run(broken, "average", "--help")
        assert done.returncode == 2
        assert done.stderr.splitlines() == [
            "error: fairseq cannot be imported (ValueError: mutable default <class 'CommonConfig'> for field common is "
            "not allowed); fairseq-deep doctor says why"
        ]

    def test_unknown_option_is_code_2(self, broken: Path) -> None:
        assert self.run(broken, "doctor", "--jason").returncode == 2


def test_other_commands_name_the_doctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ValueError("mutable default")

    monkeypatch.setattr(command.fairseq_plugins, "register", fail)
    monkeypatch.delitem(sys.modules, "fairseq")  # as where its import has failed
    assert command.main(["average", "--help"]) == 2
    line = "error: fairseq cannot be imported (ValueError: mutable default); fairseq-deep doctor says why\n"
    assert capsys.readouterr().err == line


def test_own_defect_is_not_blamed_on_fairseq(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ImportError("cannot import name 'x' from 'fairseq_plugins.core'")

    monkeypatch.setattr(command.fairseq_plugins, "register", fail)
    monkeypatch.setitem(sys.modules, "fairseq", ModuleType("fairseq"))
    with pytest.raises(ImportError, match="fairseq_plugins"):
        command.main(["average"])
