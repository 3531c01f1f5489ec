"""Recorded results as a notebook shows them: text, tables, pictures.

Nothing is built from what is recorded: no class is looked up, nothing is unpickled, and text is never HTML.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
from typing import TYPE_CHECKING, Any, Final

from ipyagent_sessions.errors import IpyagentError, NotFound
from ipyagent_sessions.events import Event, payload_of
from ipyagent_sessions.session import Session
from ipyagent_sessions.textsafe import plain_lines
from ipyagent_sessions.views import html as html_view
from ipyagent_sessions.views import text as text_view

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST: Final = 20_000
"""Characters of a text that are shown."""
ROWS: Final = 50
_PICTURES: Final = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}
_INDEX: Final = "__index_level_0__"
"""How Arrow calls the index of a frame that has no name."""
_TABLES: Final = ("pandas.", "polars.", "pyarrow.")
_LARGEST_PICTURE: Final = 10 * 2**20


class Value:
    """A recorded result.  `bundle` holds it by MIME type, as Jupyter wants it."""

    def __init__(self, bundle: dict[str, str]) -> None:
        self.bundle = bundle

    def __repr__(self) -> str:
        return self.bundle["text/plain"]

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return self.bundle


def value(session: Session, activity_id: str) -> Value:
    """The newest recorded result of an activity of the session.  Raises NotFound."""
    found = None
    for event in session.events():
        if event.activity_id == activity_id and event.event_type == "ActivityCompleted":
            found = event
    if found is None:
        raise NotFound(f"session {session.id} has no result of {activity_id!r}", hint="`log` lists the activities")
    return of_event(session, found)


def picture(session: Session, seq: int) -> Value:
    """The picture that a tool made at event `seq`.  Raises NotFound."""
    event = session.event(seq)
    if event.event_type != "PictureMade":
        raise NotFound(f"event {seq} of session {session.id} is of type {event.event_type}, not a picture")
    try:
        return Value(_bytes(session.blobs.read(str(payload_of(event).get("blob")))))
    except IpyagentError as error:
        return Value({"text/plain": f"the picture cannot be read: {error.message}"})


def of_event(session: Session, event: Event) -> Value:
    """The result that an event carries."""
    try:
        return Value(bundle(session.payload(event).get("result")))
    except IpyagentError as error:
        return Value({"text/plain": f"the result cannot be read: {error.message}"})


def bundle(packed: Any) -> dict[str, str]:
    """A value in the tagged form of `codec`, by MIME type; `text/plain` is always there."""
    tag = packed.get("$") if isinstance(packed, dict) else None
    body = _decoded(packed.get("v")) if isinstance(packed, dict) and tag is not None else b""
    if tag in ("bytes", "bytearray") and body:
        return _bytes(body)
    if tag == "text" and body:
        return {"text/plain": _short(body.decode("utf-8", "replace"))}
    if isinstance(tag, str) and tag.startswith(_TABLES) and body:
        table = _table(body)
        if table is not None:
            return table
    if isinstance(packed, str):
        return {"text/plain": _short(packed)}
    rows = _rows(packed)
    if rows is not None:
        columns, cells = rows
        return {"text/plain": text_view.table(columns, cells), "text/html": html_view.table(columns, cells)}
    return {"text/plain": _short(as_text(packed, indent=1))}


def _bytes(body: bytes) -> dict[str, str]:
    for magic, mime in _PICTURES.items():
        if body.startswith(magic) and len(body) <= _LARGEST_PICTURE:
            return {"text/plain": f"a picture of {len(body)} bytes", mime: base64.b64encode(body).decode()}
    return {"text/plain": f"{len(body)} bytes"}


def _table(body: bytes) -> dict[str, str] | None:
    """The first rows of an Arrow stream."""
    import pyarrow as pa

    from ipyagent_sessions.history.result import Result

    try:
        with pa.ipc.open_stream(io.BytesIO(body)) as reader:
            batches: list[pa.RecordBatch] = []
            for batch in reader:
                batches.append(batch)
                if sum(b.num_rows for b in batches) > ROWS:
                    break
            shown = Result(_indexed(pa.Table.from_batches(batches, reader.schema)))
    except (pa.ArrowException, OSError, ValueError):
        return None
    return {"text/plain": shown.text(ROWS), "text/html": shown.html(ROWS)}


def _indexed(table: pa.Table) -> pa.Table:
    """A frame's index without a name as its first column, as pandas shows it; left out where it only counts the rows."""
    if _INDEX not in table.column_names:
        return table
    index, rest = table[_INDEX], table.drop_columns([_INDEX])
    if index.to_pylist() == list(range(table.num_rows)):
        return rest
    return rest.add_column(0, "", index)


def _rows(packed: Any) -> tuple[list[str], list[list[Any]]] | None:
    """Columns and cells of a list of alike flat objects, None for anything else."""
    if not isinstance(packed, list) or not packed or not all(isinstance(row, dict) and row for row in packed):
        return None
    columns = list(packed[0])
    if "$" in columns or any(list(row) != columns for row in packed):
        return None
    if any(isinstance(cell, dict | list) for row in packed for cell in row.values()):
        return None
    return columns, [list(row.values()) for row in packed[:ROWS]]


def as_text(packed: Any, indent: int | None = None) -> str:
    """Tagged data as JSON for a person; an older version may have kept what is nested too deep for that."""
    try:
        return json.dumps(_untagged(packed), indent=indent, ensure_ascii=False)
    except RecursionError:
        return "<nested too deep to be shown>"


def _untagged(packed: Any) -> Any:
    """Tagged data as a person reads it: what a dataclass or tuple holds, without the name of its kind."""
    if isinstance(packed, list):
        return [_untagged(item) for item in packed]
    if not isinstance(packed, dict):
        return packed
    tag, held = packed.get("$"), packed.get("v")
    if tag is None:
        return {key: _untagged(item) for key, item in packed.items()}
    if tag == "dict" and isinstance(held, list):
        return [_untagged(pair) for pair in held]
    if isinstance(held, str) and len(held) > 200:
        return f"<{tag}, {len(held)} characters>"
    return _untagged(held)


def _decoded(text: Any) -> bytes:
    if not isinstance(text, str):
        return b""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _short(text: str) -> str:
    cut = f"\n... {len(text) - LONGEST} more characters" if len(text) > LONGEST else ""
    return plain_lines(text[:LONGEST]) + cut
