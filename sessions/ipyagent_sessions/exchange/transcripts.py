"""Transcripts of other agents into sessions that can be looked at and queried: Claude Code, Codex and Pi, JSON lines.

Each prompt of a person becomes a task, each answer a message with what it used, each call of a tool an activity.  The
session is in replay, as what an archive brings is: nothing of it runs, nothing is added to it, a fork goes on.  The same
file gives the same session; each sub-agent whose lines stand in it has a session of its own.  A line that cannot be used is
left out, and an alarm at its place in the log says which one and why.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from ipyagent_sessions import events as ev
from ipyagent_sessions import folding
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.exchange import claude_code, codex, incoming, pi
from ipyagent_sessions.exchange.draft import appear
from ipyagent_sessions.exchange.retelling import Retelling
from ipyagent_sessions.exchange.spoken import Problem, Spoken, decoded, text
from ipyagent_sessions.log import live, sealing
from ipyagent_sessions.log.files import create_durable, sync_folder
from ipyagent_sessions.log.layout import FORMAT, Layout
from ipyagent_sessions.place import Header
from ipyagent_sessions.session import summarise
from ipyagent_sessions.state import State
from ipyagent_sessions.store import Store

SUFFIX: Final = ".jsonl"
LARGEST: Final = 2**30
"""Bytes of a transcript: it is read into memory."""
_LINE: Final = 64 * 2**20
_LOOKED_AT: Final = 50
"""Lines that are looked at to tell who wrote a file."""
FORMATS: Final = (claude_code, codex, pi)


class Taken(Struct):
    """What an import did.  `known` says that the session was here before, and nothing was done; `sub_agents` are the ids of
    the sessions of sub-agents."""

    session_id: str
    kind: str
    events: int = 0
    tasks: int = 0
    problems: list[Problem] = []
    passed: dict[str, int] = {}
    known: bool = False
    sub_agents: list[str] = []


def bring_in(store: Store, path: Path) -> Taken:
    """Import the transcript at `path`.  Raises UsageError when it is none, or larger than `LARGEST`."""
    body = _content(path)
    lines = list(_lines(body))
    form = _form(path, lines)
    session_id = f"{form.NAME.replace('-', '')}{hashlib.sha256(body).hexdigest()[:12]}"
    if (store.sessions_folder / session_id).exists():
        return Taken(session_id, form.NAME, known=True)
    spoken, *subs = _read(form, lines, ev.Stamper()(path.stat().st_mtime))
    now = ev.Stamper()(store.clock.now())
    ids = [f"{session_id}a{number}" for number in range(1, len(subs) + 1)]
    for sub_id, sub in zip(ids, subs, strict=True):  # the session itself is last: with it, all of the file is here
        with contextlib.suppress(FileExistsError):
            _write(store, sub_id, Retelling(sub, form.NAME, sub_id, f"a sub-agent of {path.name}", now))
    told = Retelling(spoken, form.NAME, session_id, path.name, now)
    try:
        tasks = _write(store, session_id, told)
    except FileExistsError:
        return Taken(session_id, form.NAME, known=True)
    problems = [item for item in spoken.items if isinstance(item, Problem)]
    return Taken(session_id, form.NAME, len(told.events), tasks, problems, spoken.passed, sub_agents=ids)


def _content(path: Path) -> bytes:
    size = incoming.size_of(path)
    if size > LARGEST:
        raise UsageError(f"{path.name} has {size:,} bytes, more than {LARGEST:,}", hint="import a part of it")
    try:
        return path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise incoming.unreadable(path, error) from error


def _lines(body: bytes) -> Iterator[tuple[int, dict[str, Any] | Problem]]:
    for number, line in enumerate(body.split(b"\n"), 1):
        if not line.strip():
            continue
        if len(line) > _LINE:
            yield number, Problem(number, f"a line of {len(line):,} bytes")
            continue
        try:
            found = decoded(line.decode())
        except (ValueError, RecursionError) as error:
            yield number, Problem(number, "nested too deep" if isinstance(error, RecursionError) else f"no JSON: {error}")
            continue
        yield number, found if isinstance(found, dict) else Problem(number, "no JSON object")


def _form(path: Path, lines: list[tuple[int, dict[str, Any] | Problem]]) -> Any:
    """Who wrote the file: the first format that knows one of its first lines.  Raises UsageError."""
    records = [record for _, record in lines if isinstance(record, dict)][:_LOOKED_AT]
    for record in records:
        for form in FORMATS:
            if form.knows(record):
                return form
    if any("event_type" in record for record in records):
        raise UsageError(
            f"{path.name} holds events of ipyagent, written with --jsonl", hint="import the archive that `export` makes"
        )
    raise UsageError(
        f"{path.name} is no transcript that can be read here",
        hint="JSON lines of Claude Code (~/.claude/projects), Codex (~/.codex/sessions) and Pi (~/.pi/agent/sessions) are; "
        "archives end in .zip",
    )


def _read(form: Any, lines: list[tuple[int, dict[str, Any] | Problem]], at: str) -> list[Spoken]:
    """`at` is the time of a line without one, before any that has one."""
    reader = form.Reader()
    for number, record in lines:
        if isinstance(record, Problem):
            reader.problem(record)
            continue
        at = _time(text(record.get("timestamp"))) or at
        reader.take(number, at, record)
    found: list[Spoken] = reader.finished()
    return found


def _time(stamp: str) -> str:
    """A time as events have it, empty for what is none or has no zone."""
    try:
        when = datetime.fromisoformat(stamp)
        return ev.Stamper()(when.timestamp()) if when.tzinfo is not None else ""
    except (ValueError, OverflowError, OSError):
        return ""


def _write(store: Store, session_id: str, told: Retelling) -> int:
    """Make the session, complete or not at all; returns how many tasks it has.  Raises FileExistsError when it is here."""
    if (store.sessions_folder / session_id).exists():
        raise FileExistsError(session_id)
    store.make()
    draft = store.sessions_folder / f".{store.ids()}"  # swept when this process dies
    draft.mkdir()
    try:
        layout, state = Layout(draft), State()
        layout.events.mkdir()
        for event in told.events:
            folding.apply(state, event)
        sealing.seal_whole(layout, told.events, store.disk, session_id=session_id)
        for name, body in told.blobs.items():
            layout.blobs.mkdir(exist_ok=True)
            create_durable(layout.blobs / name, [body])
        header = Header(FORMAT, session_id, told.events[0].timestamp, store=told.kind)
        create_durable(layout.header, [msgspec.json.encode(header)])
        live.write_summary(layout, summarise(session_id, state), store.disk)
        for folder in (layout.root, *([layout.blobs] if told.blobs else [])):
            sync_folder(folder)
        appear(store, draft, session_id)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return state.begun
