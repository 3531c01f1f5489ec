"""Whether an event from elsewhere is one that this version could have written: a checksum only says that nobody cut it."""

from __future__ import annotations

from typing import Final

import msgspec

from ipyagent_sessions.events import SCHEMA_VERSION, Event, Stamper, seconds_of
from ipyagent_sessions.payloads import NOTED, SCHEMAS, Payload

_WHOLE: Final = {"attempt": 2**31, "schema_version": 2**15, "rss_bytes": 2**63, "input_tokens": 2**63, "output_tokens": 2**63}
"""Fields that hold whole numbers of at least 0, and below what."""
_MEASURED: Final = {"execution_time_ms": 1e15, "cpu_s": 1e12, "cost_usd": 1e9}
"""Fields that hold a measure of at least 0, and below what: 30,000 years, and a thousand million dollars."""
_decoders: Final[dict[str, msgspec.json.Decoder[Payload]]] = {
    name: msgspec.json.Decoder(kind) for name, kind in (SCHEMAS | NOTED).items()
}


def wrong(event: Event) -> str:
    """What is wrong with an event, empty when nothing is.  What a newer version may have changed is not looked at."""
    for name in ("timestamp", "recorded_at"):
        text = getattr(event, name)
        if text is not None and not is_time(text):
            return f"has the {name} {text[:40]!r}, which is no time in UTC with milliseconds"
    if event.parent_event is not None and not 0 < event.parent_event < event.seq:
        return f"has the parent_event {_short(event.parent_event)}, which does not come before it"
    for name, limit in _WHOLE.items():
        number = getattr(event, name)
        if number is not None and not 0 <= number < limit:
            return f"has the {name} {_short(number)}, which is out of range"
    for name, most in _MEASURED.items():
        measure = getattr(event, name)
        if measure is not None and not 0 <= measure < most:  # also what is no number
            return f"has the {name} {measure}, which is out of range"
    return _payload(event)


def is_time(text: str) -> bool:
    """Whether a text is a time as events have it."""
    try:
        return Stamper()(seconds_of(text)) == text
    except (ValueError, OverflowError, OSError):
        return False


def _payload(event: Event) -> str:
    decoder = _decoders.get(event.event_type)
    if decoder is None or event.schema_version > SCHEMA_VERSION:
        return ""
    try:
        decoder.decode(event.payload)
    except (msgspec.DecodeError, RecursionError) as error:
        return f"has a payload that does not fit its type {event.event_type}: {error}"
    return ""


def _short(number: int) -> str:
    return str(number) if abs(number) < 2**63 else "of more than 63 bits"
