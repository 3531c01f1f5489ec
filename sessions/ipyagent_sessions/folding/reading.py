"""The payload of an event as its Struct."""

from __future__ import annotations

from typing import Any

import msgspec

from ipyagent_sessions import payloads as p
from ipyagent_sessions.decoding import reading
from ipyagent_sessions.errors import DamageError
from ipyagent_sessions.events import Event

_readers = {name: reading(cls) for name, cls in p.SCHEMAS.items()}


def parsed(event: Event) -> Any:
    """The payload of `event` as its Struct from `payloads`.  Raises DamageError when it does not fit."""
    try:
        return _readers[event.event_type](event.payload)
    except msgspec.DecodeError as error:
        raise DamageError(f"the payload of event {event.seq} does not fit its type {event.event_type}: {error}") from error
