"""What happened: events, the state at a point, and large payloads."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec

from ipyagent_lab.errors import TooLarge
from ipyagent_lab.follow import past
from ipyagent_lab.routes.base import MAX_SEQ, Handler, checked_id, route
from ipyagent_lab.shapes import EventLine, EventPage, States
from ipyagent_sessions import folding
from ipyagent_sessions.errors import NotFound, UsageError
from ipyagent_sessions.events import NULL, Event
from ipyagent_sessions.session import Session
from ipyagent_sessions.views.card import Card

MAX_EVENTS: Final = 10_000
MAX_ANSWER: Final = 8 * 2**20
MAX_BLOB: Final = 64 * 2**20
MAX_STATES: Final = 256
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


class EventsHandler(Handler):
    """GET sessions/{id}/events"""

    @route("read")
    async def get(self, session_id: str) -> None:
        after, limit = self.integer("after", 0, 0, MAX_SEQ), self.integer("limit", 1000, 1, MAX_EVENTS)
        longest = self.integer("max_payload", 4096, 0, 2**20)
        only = self.text("only") or ""
        if only not in ("", "talk"):
            raise UsageError(f"there is no choice {only!r} of events", hint="only=talk, or leave it out")
        session = await self.service.session(checked_id(session_id))
        await self.reply(await self.service.read(lambda: page_of(session, after, limit, longest, talk=only == "talk")))


class StateHandler(Handler):
    """GET sessions/{id}/state"""

    @route("read")
    async def get(self, session_id: str) -> None:
        at = self.integers("at", MAX_SEQ, MAX_STATES)
        session = await self.service.session(checked_id(session_id))
        await self.reply(States(await self.service.read(lambda: cards_at(session, at))))


class BlobHandler(Handler):
    """GET sessions/{id}/blobs/{name}"""

    @route("read")
    async def get(self, session_id: str, name: str) -> None:
        if _SHA256.fullmatch(name) is None:
            raise UsageError("that is not the name of a blob", hint="64 hexadecimal digits")
        session = await self.service.session(checked_id(session_id))

        def look() -> bytes:
            size = blob_size(session, name)
            if size is None:
                raise NotFound(f"session {session.id} has no blob {name[:12]}")
            if size > MAX_BLOB:
                raise TooLarge(f"blob {name[:12]} has {size} bytes, {MAX_BLOB} are sent", hint="open its file in the store")
            return session.blobs.read(name)

        body = await self.service.read(look)
        # whatever it holds, a browser shows it as text or saves it, and runs nothing of it
        self.set_status(HTTPStatus.OK)
        self.set_attachment_header(f"{name[:12]}.txt")
        self.set_header("Content-Security-Policy", "default-src 'none'; sandbox")
        await self.finish(body, set_content_type="text/plain; charset=utf-8")


def page_of(session: Session, after: int, limit: int, longest: int, *, talk: bool = False) -> EventPage:
    """Up to `limit` events behind `after`, fewer when the answer would grow beyond what one answer may hold.

    With `talk` only those that a conversation consists of: tasks, messages, model requests and tool calls.
    """
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
