"""What is too large for a line of the log (`THRESHOLD` bytes of JSON): values of the business state and fields of a workflow's
own events.  It is kept as a blob, as results are, and the line names it.

The state, which is folded without reading files, holds such a value as {"$": "blob", "v": its sha256}.  No value of a person
looks like that: `codec` writes an object with the key "$" in another form.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from ipyagent_sessions import codec, folding
from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.blobs import THRESHOLD, Blobs

_SUFFIX: Final = "_blob"
_LONGEST: Final = 50
_DEEP: Final = codec.DEEPEST - 2 * _LONGEST
"""Parts of a path, and levels of a value: the state holds the one below the other, and must be written whole."""
_ROOM: Final = 8 * 2**20
"""So many bytes of values that were replaced may stay in memory."""


def change(appender: Appender, path: str, value: Any, op: str, blobs: dict[str, bytes]) -> p.StateChanged:
    """The payload that sets or appends `value`; a large one is put into `blobs`.  Raises UsageError for a large goal."""
    if not isinstance(path, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers without a type checker
        raise UsageError(f"the path of a value is a text, not {type(path).__name__}", hint='ctx.set("found.count", 3)')
    if path.count(".") >= _LONGEST:
        raise UsageError(f"the path {path[:40]!r}... has {path.count('.') + 1} parts", hint=f"at most {_LONGEST}")
    packed = codec.dumps(value)
    if codec.deeper(packed, _DEEP):
        raise UsageError(f"the value of {path} is nested deeper than {_DEEP} levels", hint="set a flatter one")
    body, name = appender.put(packed, blobs)
    if name is not None and path == "current_goal":
        raise UsageError(f"{path} has {len(packed):,} bytes", hint=f"at most {THRESHOLD:,}; say it in a sentence")
    return p.StateChanged(path, body, op, name)


def payload(event_type: str, given: dict[str, Any], blobs: dict[str, bytes]) -> dict[str, Any]:
    """The payload of a workflow's own event, its large fields put into `blobs`: `text` becomes `text_blob`.

    Raises UsageError for a field named so already, for one that is not JSON-like, and for a large one of a type that is folded
    into the state.
    """
    out: dict[str, Any] = {}
    for name, value in given.items():
        if str(name).endswith(_SUFFIX):
            raise UsageError(f"{event_type}: {name} ends in {_SUFFIX}, which names a blob", hint="give the field another name")
        body = bytes(memoryview(ev.as_raw(value)))
        if len(body) <= THRESHOLD:
            out[name] = value
        elif folding.is_folded(event_type):
            raise UsageError(
                f"{event_type}: {name} has {len(body):,} bytes", hint=f"at most {THRESHOLD:,} in each field; emit it in parts"
            )
        else:
            out[f"{name}{_SUFFIX}"] = Blobs.name(body)
            blobs[out[f"{name}{_SUFFIX}"]] = body
    return out


class Values:
    """The workflow's own values with the large ones filled in; each is read once."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._read: dict[str, tuple[Any, int]] = {}
        self._held = self._named = 0

    def keep(self, blobs: dict[str, bytes]) -> None:
        """Know what was just set: its blob may not be on disk yet."""
        for name, body in blobs.items():
            self._know(name, body)

    def forget(self, values: Any) -> None:
        """Let go of what `values` do not name any more, once that may be much."""
        if self._held > 2 * self._named + _ROOM:
            here = set(_names(values))
            self._read = {name: known for name, known in self._read.items() if name in here}
            self._held = self._named = sum(size for _, size in self._read.values())

    def filled(self, value: Any) -> Any:
        """Raises DamageError when a blob is missing or damaged."""
        if isinstance(value, list):
            return [self.filled(item) for item in value]
        if not isinstance(value, dict):
            return value
        if value.get("$") != "blob":
            return {key: self.filled(item) for key, item in value.items()}
        name = str(value["v"])
        return self._read[name][0] if name in self._read else self._know(name, self._blobs.read(name))

    def _know(self, name: str, body: bytes) -> Any:
        value = msgspec.json.decode(body)
        if name not in self._read:
            self._held += len(body)
        self._read[name] = value, len(body)
        return value


def _names(value: Any) -> Iterator[str]:
    """The blobs that stand in a value of the state."""
    if isinstance(value, dict) and value.get("$") == "blob":
        yield str(value["v"])
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _names(part)
