"""Hook of mkdocs: formulas become MathML; a link out of docs/ becomes its text and its path in the repository.

``make docs`` fails where a formula cannot be read, or where a link or an anchor leads nowhere.
"""

from __future__ import annotations

import re
from posixpath import dirname, join, normpath
from typing import Any

from latex2mathml.converter import convert

FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r"\$`(.+?)`\$", re.DOTALL)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?![a-z]+:|#)([^)\s#]+)[^)\s]*\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the formulas and the links of a page, outside of code.

    Args:
        markdown: the page as it stands in docs/.
        page: its place.
    """
    folder = dirname(page.file.src_uri)

    def link(found: re.Match[str]) -> str:
        path = normpath(join("docs", folder, found[2]))
        return found[0] if path.startswith("docs/") else f"{found[1]} (`{path}`)"

    def text(part: str) -> str:
        return LINK.sub(link, FORMULA.sub(lambda formula: convert(formula[1]), part))

    rewritten, end = [], 0
    for code in FENCED.finditer(markdown):
        rewritten += [text(markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join(rewritten) + text(markdown[end:])
