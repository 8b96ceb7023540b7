"""Links, anchors and named paths of the documentation lead somewhere, and its formulas can be read."""

import re
from collections.abc import Iterator
from pathlib import Path

from matplotlib.mathtext import MathTextParser

from tests.docs.test_adding_a_method import METHOD, TEST

ROOT = Path(__file__).resolve().parents[2]
NAMED = r"`((?:fairseq_plugins|tests|docs|configs|benchmarks|core|patches)/[\w./]*)`"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> list[str]:
    """Anchors that GitHub gives the headings of ``page``."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text(encoding="utf-8")), flags=re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Path and anchor of every relative link of ``page``."""
    text = re.sub(r"`[^`\n]*`", "code", without_code(page.read_text(encoding="utf-8")))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield path, anchor


def test_links_lead_somewhere() -> None:
    assert {"README.md", "CHANGELOG.md", "methods.md", "architecture.md"} <= {page.name for page in PAGES}
    lost = []
    for page in PAGES:
        for path, anchor in links(page):
            target = (page.parent / path).resolve() if path else page
            there = target.exists() and (not anchor or anchor in anchors(target))
            lost += [] if there else [f"{page.name}: {path}#{anchor}"]
    assert lost == []


def test_a_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    """GitHub shows no cell beyond those of the head."""
    wrong = []
    for page in PAGES:
        for table in re.findall(r"(?:^\|.*\n)+", without_code(page.read_text(encoding="utf-8")), flags=re.MULTILINE):
            bars = [len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()]
            wrong += [f"{page.name}: {table.splitlines()[at]}" for at, count in enumerate(bars) if count != bars[0]]
    assert wrong == []


def test_named_paths_exist() -> None:
    lost = []
    for page in PAGES:
        # Inline code that looks like a path of this repository.
        for word in re.findall(NAMED, without_code(page.read_text(encoding="utf-8"))):
            inside = ROOT / "fairseq_plugins" if word.startswith(("core/", "patches/")) else ROOT
            # NAME stands for what the reader adds; its folder is there.
            path = (inside / word).parent if "NAME" in Path(word).name else inside / word
            lost += [] if word in (METHOD, TEST) or path.exists() else [f"{page.name}: {word}"]
    assert lost == []


def test_formulas_can_be_read() -> None:
    parser, unread = MathTextParser("path"), []
    text = "\n".join(without_code(page.read_text(encoding="utf-8")) for page in PAGES)
    formulas = set(re.findall(r"\$`(.+?)`\$", text, re.DOTALL))
    for formula in formulas:
        try:
            parser.parse(f"${formula}$")
        except ValueError as error:
            unread.append(f"{formula}: {error}")
    assert unread == []
    assert len(formulas) > 200


def test_layout_in_architecture_matches_the_folders() -> None:
    drawing = re.search(r"## Layout\n\n```\n(.*?)```", (ROOT / "docs/architecture.md").read_text(), re.DOTALL)
    assert drawing
    package, _, rest = drawing[1].partition("\nconfigs/")
    words = set(re.findall(r"^ +(?:[\w.]+\.py |\w+/)[\w./ ]*?(?=  |$)", package, re.MULTILINE))
    drawn = {name for line in words for name in line.split()}
    core = {path.name for path in (ROOT / "fairseq_plugins/core").glob("*.py")} - {"__init__.py"}
    folders = {f"{path.parent.name}/" for path in (ROOT / "fairseq_plugins").glob("**/*/__init__.py")}
    top = {path.name for path in (ROOT / "fairseq_plugins").glob("*.py")}
    assert drawn == core | folders | top
    for folder in re.findall(r"^(\w+)/", "configs/" + rest, re.MULTILINE):
        assert (ROOT / folder).is_dir(), folder
    for folder in re.findall(r"(?:^|\s)(\w+)/", rest.partition("tests/")[2]):
        assert (ROOT / "tests" / folder).is_dir(), folder
