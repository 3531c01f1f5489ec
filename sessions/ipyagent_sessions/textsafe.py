"""Text of models, tools and files, made harmless for a terminal.

Control characters move a cursor or forge lines, and bidirectional overrides make text read differently from what it is
(CVE-2021-42574).  Here they become visible escapes.  HTML is escaped by whoever writes HTML.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def plain(text: str, width: int | None = None) -> str:
    """`text` in one line, with controls, bidi overrides and isolates, and lone surrogates as escapes like `\\x1b`.

    With `width` it is cut to that many terminal columns; a cut text ends in "…".
    """
    if width is not None and len(text) > width:
        text = text[: width + 1]  # escapes only make it longer
    safe = _UNSAFE.sub(_escape, text)
    return safe if width is None or display_width(safe) <= width else _cut(safe, width)


def plain_lines(text: str) -> str:
    """`text` with its line breaks kept and each line made harmless: for what leaves by a terminal or a cell."""
    return "\n".join(plain(line) for line in text.split("\n"))


def json_lines(text: str) -> str:
    """The same for JSON text: harmless, and equal data to whoever parses it."""
    return "\n".join(_UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", line) for line in text.split("\n"))


def display_width(text: str) -> int:
    """How many columns of a terminal `text` takes: wide characters two, combining ones none."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return _SHORT.get(match[0]) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def _columns(ch: str) -> int:
    if unicodedata.category(ch) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(ch) in ("W", "F") else 1


def _cut(text: str, width: int) -> str:
    room = width - 1
    for i, ch in enumerate(text):
        room -= _columns(ch)
        if room < 0:
            return text[:i] + "…"
    return text
