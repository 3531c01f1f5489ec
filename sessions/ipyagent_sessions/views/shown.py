"""What a command returns: something to look at, in text and HTML, and the data behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipyagent_sessions.textsafe import plain_lines
from ipyagent_sessions.views import html as html_view
from ipyagent_sessions.views import text as text_view


class Shown:
    """`str()` is the text, made harmless line by line; `html` the static HTML.

    `data` is what a program wants: JSON-like, or the object itself.
    """

    def __init__(self, text: str, html: str | None = None, data: Any = None) -> None:
        self.text = plain_lines(text)
        self.html = html if html is not None else html_view.pre(self.text)
        self.data = data

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html

    def __str__(self) -> str:
        return self.text


class Table(Shown):
    """Rows under headings; `width` bounds a cell's text in columns.

    `data` is a list of objects: what is shown, or, where texts for people would hide numbers and times, what is given.
    """

    def __init__(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[Any]],
        *,
        right: Sequence[str] = (),
        empty: str = "nothing",
        note: str = "",
        width: int = 60,
        data: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        data = [dict(zip(columns, row, strict=True)) for row in rows] if data is None else list(data)
        numeric = frozenset(right)
        if not rows:
            super().__init__(empty, None, data)
            return
        text = text_view.table(columns, rows, right=numeric, width=width)
        html = html_view.table(columns, rows, right=numeric)
        super().__init__(f"{text}\n{note}" if note else text, html + (html_view.pre(note) if note else ""), data)
