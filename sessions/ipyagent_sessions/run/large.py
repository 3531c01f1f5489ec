"""What is too large for a line of the log (`THRESHOLD` bytes of JSON): values of the business state and fields of a workflow's
own events.  It is kept as a blob, as results are, and the line names it.

The state, which is folded without reading files, holds such a value as {"$": "blob", "v": its sha256}.  No value of a person
looks like that: `codec` writes an object with the key "$" in another form.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ipyagent_sessions import codec, folding
from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.blobs import THRESHOLD, Blobs

_SUFFIX: Final = "_blob"


def change(appender: Appender, path: str, value: Any, op: str, blobs: dict[str, bytes]) -> p.StateChanged:
    """The payload that sets or appends `value`; a large one is put into `blobs`.  Raises UsageError for a large goal."""
    packed = codec.dumps(value)
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
        self._read: dict[str, Any] = {}

    def keep(self, blobs: dict[str, bytes]) -> None:
        """Know what was just set: its blob may not be on disk yet."""
        self._read.update((name, msgspec.json.decode(body)) for name, body in blobs.items())

    def filled(self, value: Any) -> Any:
        """Raises DamageError when a blob is missing or damaged."""
        if isinstance(value, list):
            return [self.filled(item) for item in value]
        if not isinstance(value, dict):
            return value
        if value.get("$") != "blob":
            return {key: self.filled(item) for key, item in value.items()}
        name = str(value["v"])
        if name not in self._read:
            self._read[name] = msgspec.json.decode(self._blobs.read(name))
        return self._read[name]
