"""A session's events as JSON, one a line: for any program that reads logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ipyagent_sessions.errors import DamageError
from ipyagent_sessions.events import Event, payload_of
from ipyagent_sessions.session import Session


def told(session: Session, until: int | None = None) -> Iterator[tuple[str, Event]]:
    """The events of a session in order, those that it inherited first, each with the id of the session that holds it."""
    parent, point = session.parent, session.header.parent
    if parent is not None and point is not None:
        yield from told(parent, point.seq)
    for event in session.events(until=until, lineage=False):
        yield session.id, event


def payload(session: Session, event: Event) -> dict[str, Any]:
    """The payload with what was kept as a blob filled in; one that cannot be read stays a name."""
    try:
        return session.payload(event)
    except DamageError:
        return payload_of(event)  # type: ignore[no-any-return]  # payloads are objects


def lines(session: Session) -> Iterator[bytes]:
    """The events as lines of JSON: the fields of the view `events`, in UTF-8, each with its line feed."""
    for origin, event in told(session):
        record = {
            "event_id": f"{origin}:{event.seq}",
            "session_id": origin,
            **{name: getattr(event, name) for name in event.__struct_fields__},
            "recorded_at": event.recorded_at or event.timestamp,
            "payload": payload(session, event),
        }
        yield msgspec.json.encode(record) + b"\n"
