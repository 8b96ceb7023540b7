"""Text, YAML and paths that are hostile, for the tests of every command.

A line of :data:`LINES` is one sentence, whatever it holds.
"""

from collections.abc import Mapping, Sequence

LINES: Mapping[str, str] = {
    "nothing": "",
    "white space": " \t\u00a0\u3000 ",
    "NUL": "eins\0zwei",
    "only NUL": "\0",
    "controls": "eins \x01\x07\x08\x1b[31m zwei \x7f",
    "other ends of lines": "eins\x0bzwei\x0cdrei\x1cvier\x1dfünf\x1esechs\x85sieben",
    "U+2028 and U+2029": "eins\u2028zwei\u2029drei",
    "only U+2028": "\u2028",
    "byte order mark inside": "eins\ufeffzwei \ufeff",
    "right to left": "\u202eeins\u202c \u200fzwei\u200e \u2067drei\u2069",
    "combining": "e\u0301i\u0308ns z\u0316\u0317\u0318wei \u0301",
    "many combining": "e" + "\u0301" * 500,
    "joiners": "👩\u200d👩\u200d👧 eins\u200bzwei\u00adneun",
    "beyond the BMP": "𝔢𝔦𝔫𝔰 🇩🇪 \U0010fffd",
    "no characters": "eins \ufffe \uffff \U0010ffff zwei",
    "Greek": "ένα δύο τρία",
    "Arabic": "واحد اثنان ثلاثة",
    "Hindi": "एक दो तीन।",
    "Chinese": "一二三。四五六！",
    "Thai": "หนึ่งสองสาม",
    "subword marks": "eins@@ zw@@ ei @@ drei@@",
    "pieces": "▁eins ▁ zwei▁drei ▁",
    "special words": "<s> eins </s> zwei <pad> drei <unk>",
    "only the end": "</s>",
    "only the pad": "<pad> <pad>",
    "unknown": "<unk>",
    "other tools' words": "<blank> <mask> </w> madeupword0000 #fairseq:overwrite DOTMULTI",
    "entities": "&amp; &#10; &#124; &lt;s&gt; &apos;",
    "fairseq's output": "H-0\t-0.5\teins",
    "tabs": "eins\tzwei\tdrei",
    "commands": "$(touch executed) `touch executed` ; touch executed | {} %s \\ \\n '\"",
    "a long word": "eins" * 500,
}

LATIN_1 = ("eins\nzwei\nfünf\n".encode("latin-1"), "line 3: not UTF-8 (byte 0xfc)")
"""Bytes that are not text, and where and why they are refused."""

MARK = "\ufeff"
FORMS: Mapping[str, tuple[str, str, str]] = {
    "as on Unix": ("", "\n", "\n"),
    "as on Windows": ("", "\r\n", "\r\n"),
    "without a last end": ("", "\n", ""),
    "with a byte order mark": (MARK, "\n", "\n"),
}
"""How a file begins, how its lines end, and how the last one does."""


PATHS = (
    "with space",
    "it's",
    'a "quote"',
    "$HOME",
    "$(touch executed)",
    "`touch executed`",
    "-dash",
    "--help",
    "äöü 漢字",
    "e\u0301",
    "a;b & c | d > e < f",
    "[a] {b} *?",
    "%s %(message)s {0}",
    "back\\slash\\",
    "#null",
    "~",
    "@a=b!",
)
"""Names of directories."""
EVERY_PATH = "".join(name for name in PATHS if "=" not in name)
"""All of it in one name."""


def sentences(anchor: str) -> list[str]:
    """Every hostile line, with ``anchor`` before, between and after: what is lost or shifted shows in the anchors."""
    return [*(line for hostile in LINES.values() for line in (anchor, hostile)), anchor]


def content(lines: Sequence[str], form: str) -> bytes:
    """A file of these lines, in one of :data:`FORMS`."""
    begin, end, last = FORMS[form]
    return (begin + end.join(lines) + last).encode()
