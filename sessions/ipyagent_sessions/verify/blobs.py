"""Blobs: those that events name and that are not there, those whose bytes changed, those that nothing names."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from ipyagent_sessions.errors import IpyagentError
from ipyagent_sessions.events import TYPES, Event
from ipyagent_sessions.session import Session
from ipyagent_sessions.verify.finding import COPY, Finding

_CODED: Final = re.compile(rb'_blob"\s*:\s*"([0-9a-f]{64})"')
_OTHERS: Final = {
    "FileWritten": re.compile(rb'"(?:before|after)"\s*:\s*"([0-9a-f]{64})"'),
    "FileRolledBack": re.compile(rb'"before"\s*:\s*"([0-9a-f]{64})"'),
    "PictureMade": re.compile(rb'"blob"\s*:\s*"([0-9a-f]{64})"'),
}
_NAME: Final = re.compile(r"[0-9a-f]{64}")


def named_by(event: Event) -> Iterator[str]:
    """The blobs that an event of ours names; what a workflow emits under names of its own is its own affair."""
    yield from coded_by(event)
    other = _OTHERS.get(event.event_type)
    if other is not None:
        yield from _found(other, event)


def coded_by(event: Event) -> Iterator[str]:
    """Those in fields that end in `_blob`: parts of the payload, which are JSON or text."""
    if event.event_type in TYPES:
        yield from _found(_CODED, event)


def _found(pattern: re.Pattern[bytes], event: Event) -> Iterator[str]:
    return (match[1].decode() for match in pattern.finditer(bytes(event.payload)))


def folders(session: Session) -> list[Path]:
    """Where a session's blobs may lie: its own folder, then those of its ancestors."""
    found, ancestor = [session.layout.blobs], session.parent
    with contextlib.suppress(IpyagentError, OSError):  # an ancestor that cannot be opened is named as such
        while ancestor is not None:
            found.append(ancestor.layout.blobs)
            ancestor = ancestor.parent
    return found


def check(session: Session, named: dict[str, int], *, held: bool) -> tuple[int, list[Finding]]:
    """How many blobs were read, and what is wrong.  `named` says by which seq each blob was first named."""
    found: list[Finding] = []
    sound, count = set[str](), 0
    places = folders(session)
    for path in _files(places[0]):
        count += 1
        try:
            wrong = "" if digest(path) == path.name else "its bytes do not match its name, which is their sha256"
        except OSError as error:
            wrong = f"it cannot be read: {error.strerror or error}"
        if wrong:
            found.append(_bad(session, path.name, named, wrong))
        else:
            sound.add(path.name)
    for name, seq in named.items():
        if (
            name not in sound
            and not any(_holds(folder, name) for folder in places[1:])
            and not os.path.lexists(places[0] / name)
        ):
            found.append(
                Finding(
                    session.id,
                    f"blobs/{name}",
                    f"event {seq}",
                    "it is missing",
                    "what the event refers to is lost; the event itself is whole",
                    f"{COPY}, or run the activity again with resume --redo",
                )
            )
    if not held:
        found += [_unnamed(session, name) for name in sorted(sound - named.keys())]
    return count, found


def digest(path: Path) -> str:
    """The sha256 of a file, read piece by piece."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(folder: Path) -> Iterable[Path]:
    return sorted(p for p in folder.iterdir() if _NAME.fullmatch(p.name)) if folder.is_dir() else ()


def _holds(folder: Path, name: str) -> bool:
    path = folder / name
    with contextlib.suppress(OSError):
        return path.is_file() and digest(path) == name
    return False


def _bad(session: Session, name: str, named: dict[str, int], what: str) -> Finding:
    used = name in named
    return Finding(
        session.id,
        f"blobs/{name}",
        f"event {named[name]}" if used else "",
        what,
        "what the event refers to is lost" if used else "no event of this session names it",
        COPY,
        "damage" if used else "note",
    )


def _unnamed(session: Session, name: str) -> Finding:
    means = "left by a crash, or by events that never became durable; forks may name it"
    return Finding(session.id, f"blobs/{name}", "", "no event names it", means, "nothing", "note")
