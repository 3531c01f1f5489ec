"""What a request asks for behind its `?`: numbers within bounds and texts that are not too long, alike at every door."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import parse_qsl

from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.serving.finding import MAX_SEQ

MAX_EVENTS: Final = 10_000
"""Events of one answer."""
MAX_STATES: Final = 256
"""States of one answer."""
MAX_PAYLOAD: Final = 2**20
"""Bytes of a payload that is sent with its event."""


class Arguments:
    """The named values of a query, as it stands in the address; of a name that stands there twice the last one."""

    def __init__(self, query: str) -> None:
        self._values = {name: value.strip() for name, value in parse_qsl(query, keep_blank_values=True)}

    def text(self, name: str, most: int = 200) -> str | None:
        """A text, None when it is not there.  Raises UsageError when it is longer than `most` characters."""
        value = self._values.get(name)
        if value is not None and len(value) > most:
            raise UsageError(f"{name} has {len(value)} characters, {most} are allowed")
        return value

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number.  Raises UsageError when it is none or out of bounds."""
        value = self._values.get(name)
        return default if value is None else _integer(name, value, low, high)

    def integers(self, name: str, high: int, most: int) -> list[int]:
        """Whole numbers from 1 on, with commas between them, sorted.

        Raises UsageError when there is none, or more than `most`.
        """
        parts = (self.text(name, most=20 * most) or "").split(",")
        if parts == [""]:
            raise UsageError(f"{name} is needed", hint=f"one or more numbers with commas: {name}=10,20")
        if len(parts) > most:
            raise UsageError(f"{name} names {len(parts)} events, {most} are allowed")
        return sorted({_integer(name, part, 1, high) for part in parts})


class Portion(NamedTuple):
    """Which events are asked for: up to `limit` behind `after`, of `talk` only those of a conversation; payloads of more than
    `longest` bytes are left out."""

    after: int
    limit: int
    longest: int
    talk: bool


def portion(asked: Arguments) -> Portion:
    """The arguments of `events`.  Raises UsageError."""
    only = asked.text("only") or ""
    if only not in ("", "talk"):
        raise UsageError(f"there is no choice {only!r} of events", hint="only=talk, or leave it out")
    return Portion(
        asked.integer("after", 0, 0, MAX_SEQ),
        asked.integer("limit", 1000, 1, MAX_EVENTS),
        asked.integer("max_payload", 4096, 0, MAX_PAYLOAD),
        only == "talk",
    )


def moments(asked: Arguments) -> list[int]:
    """The argument of `state`: after which events.  Raises UsageError."""
    return asked.integers("at", MAX_SEQ, MAX_STATES)


def moment(asked: Arguments) -> int:
    """The argument of `aftermath`: at which event, 0 for the newest.  Raises UsageError."""
    return asked.integer("at", 0, 0, MAX_SEQ)


def _integer(name: str, value: str, low: int, high: int) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 16 and low <= int(value) <= high):
        raise UsageError(f"{name} must be a whole number from {low} to {high}")
    return int(value)
