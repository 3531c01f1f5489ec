"""The payload of an event as its Struct."""

from __future__ import annotations

from typing import Any

import msgspec

from ipyagent_sessions import payloads as p
from ipyagent_sessions.decoding import from_json
from ipyagent_sessions.errors import DamageError
from ipyagent_sessions.events import Event


def parsed(event: Event) -> Any:
    """The payload of `event` as its Struct from `payloads`.  Raises DamageError when it does not fit."""
    try:
        return from_json(event.payload, p.SCHEMAS[event.event_type])
    except msgspec.DecodeError as error:
        raise DamageError(f"the payload of event {event.seq} does not fit its type {event.event_type}: {error}") from error
