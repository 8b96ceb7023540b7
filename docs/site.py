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
DIRECTIVE = re.compile(r"^<!-- (:::.*?) -->$", re.MULTILINE | re.DOTALL)
"""Directives that mkdocstrings reads; GitHub shows nothing of a comment."""
ROLE = re.compile(r":[a-z]+:<code>(?:~[\w.]+\.)?")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?![a-z]+:|#)([^)\s#]+)[^)\s]*\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Rewrite the formulas, the links and the directives of mkdocstrings of a page, outside of code.

    Markdown would end a paragraph at a line that begins with ``<math>``, so a formula is inside of a span.

    Args:
        markdown: the page as it stands in docs/.
        page: its place.
        config: mkdocs.yml; ``repo_url`` is the address of the repository.
    """
    folder, repository = dirname(page.file.src_uri), config.get("repo_url")

    def link(found: re.Match[str]) -> str:
        path = normpath(join("docs", folder, found[2]))
        if path.startswith("docs/") and path != "docs/results":
            return found[0]
        return f"[{found[1]}]({repository.rstrip('/')}/blob/main/{path})" if repository else f"{found[1]} (`{path}`)"

    def text(part: str) -> str:
        part = DIRECTIVE.sub(lambda directive: f"{directive[1]}\n", part)
        return LINK.sub(link, FORMULA.sub(lambda formula: f"<span>{convert(formula[1])}</span>", part))

    rewritten, end = [], 0
    for code in FENCED.finditer(markdown):
        rewritten += [text(markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join(rewritten) + text(markdown[end:])


def on_page_content(html: str, **_: Any) -> str:
    """Remove the roles of Sphinx before code, and the modules of ``~module.name``, which mkdocstrings leaves.

    Args:
        html: the page as mkdocs rendered it.
    """
    return ROLE.sub("<code>", html)
