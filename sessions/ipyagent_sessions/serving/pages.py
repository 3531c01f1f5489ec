"""What happened in a session, as it is sent: events a page at a time, the state at a point, large payloads."""

from __future__ import annotations

import re
from typing import Any, Final, cast

import msgspec

from ipyagent_sessions import folding
from ipyagent_sessions.errors import NotFound, UsageError
from ipyagent_sessions.events import NULL, Event
from ipyagent_sessions.serving.arguments import Portion
from ipyagent_sessions.serving.following import past
from ipyagent_sessions.serving.problems import TooLarge
from ipyagent_sessions.serving.shapes import EventLine, EventPage
from ipyagent_sessions.session import Session
from ipyagent_sessions.views.card import Card

MAX_ANSWER: Final = 8 * 2**20
MAX_BLOB: Final = 64 * 2**20
_TALK: Final = frozenset(
    {
        "TaskQueued",
        "TaskSuspended",
        "TaskInterrupted",
        "TaskCompleted",
        "TaskFailed",
        "MessageAdded",
        "ActivityRetried",
        "PictureMade",
    }
)
_FIELDS: Final = Event.__struct_fields__
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def page_of(session: Session, asked: Portion) -> EventPage:
    """The events that are asked for, fewer when the answer would grow beyond what one answer may hold.

    A conversation consists of tasks, messages, model requests and tool calls.
    """
    after, limit, longest, talk = asked
    parent = session.header.parent
    lines: list[EventLine] = []
    size = 0
    sizes: dict[str, int | None] = {}
    more, until = False, after
    for event in session.events(after):
        if len(lines) >= limit or size > MAX_ANSWER:
            more = True
            break
        until = event.seq
        if talk and not _is_talk(event):
            continue
        line = line_of(session, event, longest, sizes)
        size += len(memoryview(line.payload)) + 300
        lines.append(line)
    return EventPage(lines, until if more else None, parent.seq if parent is not None else 0, until)


def _is_talk(event: Event) -> bool:
    """Whether an event belongs to the conversation.  A retry does not say of what kind its activity is, so all of them do."""
    if event.event_type in _TALK:
        return True
    if not event.event_type.startswith("Activity"):
        return False
    body = bytes(memoryview(event.payload))
    return b'"kind":"model"' in body or b'"kind":"tool"' in body


def line_of(session: Session, event: Event, longest: int, sizes: dict[str, int | None]) -> EventLine:
    """An event as it is sent.  `sizes` remembers the sizes of blobs."""
    body = memoryview(event.payload)
    values: list[Any] = [getattr(event, name) for name in _FIELDS]
    blobs: dict[str, int | None] = {}
    if b'_blob":"' in bytes(body):
        payload: Any = msgspec.json.decode(event.payload)
        for key, name in cast(dict[str, Any], payload).items() if isinstance(payload, dict) else ():
            if key.endswith("_blob") and isinstance(name, str) and _SHA256.fullmatch(name):
                if name not in sizes:
                    sizes[name] = blob_size(session, name)
                blobs[name] = sizes[name]
    values += [len(body) if len(body) > longest else None, blobs]
    line = EventLine(*values)
    return msgspec.structs.replace(line, payload=NULL) if line.payload_bytes is not None else line


def blob_of(session: Session, name: str) -> bytes:
    """A blob of the session or of an ancestor.  Raises UsageError for what is no name of one, NotFound and TooLarge."""
    if _SHA256.fullmatch(name) is None:
        raise UsageError("that is not the name of a blob", hint="64 hexadecimal digits")
    size = blob_size(session, name)
    if size is None:
        raise NotFound(f"session {session.id} has no blob {name[:12]}")
    if size > MAX_BLOB:
        raise TooLarge(f"blob {name[:12]} has {size} bytes, {MAX_BLOB} are sent", hint="open its file in the store")
    return session.blobs.read(name)


def blob_size(session: Session, name: str) -> int | None:
    """The size of a blob of the session or of an ancestor, None when its file is missing."""
    owner: Session | None = session
    while owner is not None:
        try:
            return (owner.layout.blobs / name).stat().st_size
        except OSError:
            owner = owner.parent
    return None


def cards_at(session: Session, at: list[int]) -> list[Card]:
    """The cards right after each of these events (ascending), folded in one go.

    Raises NotFound for an event that does not exist.
    """
    state = session.state(at[0])
    cards = [past(session.id, state)]
    wanted = iter(at[1:])
    seq = next(wanted, None)
    if seq is None:
        return cards
    for event in session.events(after=at[0], until=at[-1]):
        folding.apply(state, event)
        if event.seq == seq:
            cards.append(past(session.id, state))
            seq = next(wanted, None)
    if seq is not None:
        raise NotFound(f"session {session.id} has no event {seq}", hint=f"it ends at {state.seq}")
    return cards
