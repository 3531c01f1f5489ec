"""The files of one session as one row of the list.

Reads `summary.json`, and for a running task `holder.json` and `live.json`; the log only when there is no summary.  Everything
here blocks and is called in a worker thread.  Nothing raises for a session that cannot be read: its row says so.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from msgspec import Struct

from ipyagent_lab.shapes import Row
from ipyagent_sessions.lifecycle import TaskState
from ipyagent_sessions.log import live
from ipyagent_sessions.log.layout import Layout
from ipyagent_sessions.place import is_id
from ipyagent_sessions.serving import problems
from ipyagent_sessions.serving.following import EMPTY, silent_since
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store

DAMAGED: Final = "damaged"
_CUT: Final = 300
"""Characters kept of a text in a row: what bounds the memory of the list."""


class Entry(Struct):
    """A row with what the server has to know beside it: the state in the log, its seq, and the folder's time (nanoseconds)."""

    row: Row
    logged: str
    seq: int
    stamp: int


def stamps(folder: Path) -> dict[str, int]:
    """The ids of all sessions and when each folder last changed.  Every atomic replacement in a folder changes its time."""
    found: dict[str, int] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_id(entry.name):
                    try:
                        if entry.is_dir():
                            found[entry.name] = entry.stat().st_mtime_ns
                    except OSError:
                        continue  # deleted meanwhile
    except FileNotFoundError:
        pass
    return found


def stamp_of(folder: Path) -> int | None:
    """When a session's folder last changed, None when there is no such folder."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_mtime_ns if stat.S_ISDIR(found.st_mode) else None


def read_entry(store: Store, session_id: str) -> Entry | None:
    """The entry of a session, None when its folder is gone, or was only just made and holds nothing yet."""
    session = store.session(session_id)
    stamp = stamp_of(session.layout.root)
    if stamp is None:
        return None
    try:
        return _entry(session, session.summary(), stamp)
    except Exception as error:  # noqa: BLE001  # damage takes forms that nobody foresaw, and one session never breaks the list
        if _holds_nothing(session.layout):
            return None
        return Entry(Row(session_id, DAMAGED, problem=_problem(error, store)), "", 0, stamp)


def _holds_nothing(layout: Layout) -> bool:
    """Whether there is neither header nor log."""
    try:
        return not layout.header.exists() and not layout.journals() and not layout.segments()
    except FileNotFoundError:
        return True


def _problem(error: Exception, store: Store) -> str:
    if problems.is_known(error):
        return problems.problem_of(error, store.root).message
    return f"it cannot be read ({type(error).__name__})"


def _entry(session: Session, summary: live.Summary, stamp: int) -> Entry:
    # what the folder is called decides, whatever a file in it says
    row = Row(
        session.id,
        summary.state or EMPTY,
        _cut(summary.title),
        summary.task_id,
        _cut(summary.target),
        summary.notebook,
        _cut(summary.reason),
        _cut(summary.detail),
        summary.done,
        summary.total,
        summary.failed,
        summary.needs_you,
        summary.tasks,
        summary.cost_usd,
        summary.input_tokens,
        summary.output_tokens,
        summary.created_at,
        summary.updated_at,
        summary.parent,
        _cut(summary.model),
    )
    if summary.state == TaskState.RUNNING:
        row.state = session.effective_state(summary)
        row.silent_since = silent_since(session.layout) if row.state == TaskState.RUNNING else None
    return Entry(row, summary.state, summary.seq, stamp)


def _cut(text: str) -> str:
    return text if len(text) <= _CUT else text[: _CUT - 1] + "…"
