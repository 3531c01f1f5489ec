"""Commands that carry a session to another place and back."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.exchange import atif, lines, notebook, otel, pack, transcripts, unpack
from ipyagent_sessions.exchange.archive import SUFFIX
from ipyagent_sessions.log.files import sync_file, temporary_beside
from ipyagent_sessions.session import Session
from ipyagent_sessions.textsafe import plain
from ipyagent_sessions.views import formats
from ipyagent_sessions.views.shown import Shown

_TOLD: Final = {
    "notebook": "a notebook of its story",
    "jsonl": "its events, one a line",
    "atif": "an ATIF trajectory",
    "otel": "spans of OpenTelemetry",
}
_SHOWN: Final = 10
KINDS: Final[dict[str, str]] = {"notebook": ".ipynb", "jsonl": ".jsonl", "atif": ".atif.json", "otel": ".otlp.jsonl"}


def export(door: Door, options: argparse.Namespace) -> Shown:
    """Write a session to a file: an archive for another store, or its story in another form."""
    session = door.session(options.id)
    kind = next((name for name in KINDS if getattr(options, name)), "archive")
    path = _target(door, options.file, f"{session.id}{KINDS.get(kind, SUFFIX)}")
    if kind == "archive":
        pack.export(session, path)
        told = f"open it elsewhere with: {door.prefix} import {path.name}"
    else:
        _write(path, WRITERS[kind](session), door)
        told = _TOLD[kind]
    size = path.stat().st_size
    return Shown(
        f"exported {session.id} to {path} ({formats.size(size)}); {told}",
        None,
        {"session_id": session.id, "file": str(path), "kind": kind, "bytes": size},
    )


def bring_in(door: Door, options: argparse.Namespace) -> Shown:
    """Import an archive or the transcript of another agent; the session is in replay here."""
    path = door.folder / Path(options.file).expanduser()
    if path.suffix == transcripts.SUFFIX:
        return _transcript(door, path)
    done = unpack.bring_in(door.store, path)
    data = {"session_id": done.session_id, "new": done.new, "known": done.known, "grown": done.grown, "events": done.events}
    told = [f"{name} was shorter here: {count} events were added to it" for name, count in done.grown.items()]
    if done.session_id in done.known:
        told.insert(0, f"{done.session_id} is here already, with the same content")
    if not done.new:
        return Shown("\n".join(told), None, data)
    also = [session_id for session_id in done.new if session_id != done.session_id]
    if done.session_id in done.new:
        told.insert(0, f"imported {done.session_id} ({done.events} events); it is in replay, and nothing of it runs")
    told += [f"with the part of its ancestors that it needs: {', '.join(also)}"] if also else []
    told += [
        f"look at it with: {door.prefix} replay {done.session_id}; go on from it with: {door.prefix} fork {done.session_id}"
    ]
    return Shown("\n".join(told), None, data)


def _transcript(door: Door, path: Path) -> Shown:
    done = transcripts.bring_in(door.store, path)
    data = {**msgspec.to_builtins(done), "problems": [f"line {found.line}: {found.what}" for found in done.problems]}
    if done.known:
        return Shown(f"{path.name} is here already, as {done.session_id}", None, data)
    tasks = f"{done.tasks} task{'' if done.tasks == 1 else 's'}"
    told = [f"imported {done.session_id} from {done.kind}: {done.events} events, {tasks}; nothing of it runs"]
    told += [f"  {plain(line, 200)}: left out" for line in data["problems"][:_SHOWN]]
    more = len(done.problems) - _SHOWN
    told += [f"  and {more} more lines, each an alarm in the log"] if more > 0 else []
    passed = ", ".join(f"{plain(kind, 40)} {count}" for kind, count in sorted(done.passed.items())[:_SHOWN])
    told += [f"lines that hold no part of the conversation: {passed}"] if passed else []
    told += [f"its sub-agents have sessions of their own: {', '.join(done.sub_agents[:_SHOWN])}"] if done.sub_agents else []
    told += [f"look at it with: {door.prefix} replay {done.session_id}"]
    return Shown("\n".join(told), None, data)


def _target(door: Door, wanted: str | None, name: str) -> Path:
    """The file to write.  Raises UsageError for one that exists."""
    path = door.folder / (Path(wanted).expanduser() if wanted else name)
    path = path / name if path.is_dir() else path
    if path.exists():
        raise UsageError(f"{path} exists", hint="name another file, or remove it first")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}")
    return path


def _write(path: Path, pieces: Iterable[bytes], door: Door) -> None:
    temporary = temporary_beside(path)
    try:
        with open(temporary, "wb") as file:
            file.writelines(pieces)
            file.flush()
            sync_file(file.fileno())
        door.store.disk.publish(temporary, path, what="export")
    finally:
        temporary.unlink(missing_ok=True)


def _notebook(session: Session) -> list[bytes]:
    import nbformat

    return [nbformat.writes(notebook.notebook(session)).encode(), b"\n"]


def _atif(session: Session) -> list[bytes]:
    return [json.dumps(atif.trajectory(session), indent=2, ensure_ascii=False).encode(), b"\n"]


WRITERS: Final[dict[str, Callable[[Session], Iterable[bytes]]]] = {
    "notebook": _notebook,
    "jsonl": lines.lines,
    "atif": _atif,
    "otel": otel.lines,
}
