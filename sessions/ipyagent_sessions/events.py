"""Events: immutable facts with a contiguous `seq` in their session (requirements R082-R097).

An `Event` is one record of the log.  Its payload stays raw JSON until somebody folds or shows it, so an event of an unknown
type passes through byte for byte.  `encode(event)` is canonical: the same event gives the same bytes whether it is read from
a journal or from a sealed segment, so checksums and the hash that a fork stores can be verified in both.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from ipyagent_sessions.errors import UsageError

SCHEMA_VERSION: Final = 1

TYPES: Final = frozenset(
    {
        "SessionCreated",
        "SessionForked",
        "TaskQueued",
        "TaskStarted",
        "TaskSuspended",
        "TaskInterrupted",
        "TaskResumed",
        "TaskCompleted",
        "TaskFailed",
        "TaskCancelled",
        "ActivityStarted",
        "ActivityProgressed",
        "ActivityCompleted",
        "ActivityFailed",
        "ActivityRetried",
        "ActivityCompensated",
        "MessageAdded",
        "StateChanged",
        "ApprovalRequested",
        "ApprovalResolved",
        "FileWritten",
        "FileRolledBack",
        "EffectDeclared",
        "CheckFailed",
        "CodeGenerated",
        "TestExecuted",
        "ErrorOccurred",
        "CheckpointCreated",
        "RecoveryCompleted",
        "ControlRequested",
        "BudgetExceeded",
        "AlarmRaised",
        "ConfigChanged",
    }
)
"""The closed vocabulary of R088.  A workflow may emit other types; they are written as ignorable."""

ENGINE: Final = "engine"
NULL: Final = Raw(b"null")
EMPTY: Final = Raw(b"{}")


class Event(Struct, frozen=True, omit_defaults=True, gc=False):  # holds no cycle, and there are many
    """One record.  Times are ISO-8601 in UTC with milliseconds and `Z`; `execution_time_ms` is in milliseconds,
    `cpu_s` in seconds, `rss_bytes` in bytes, `cost_usd` in US dollars; a measurement that is not known is None, never 0.
    `parent_event` is the seq of the event that caused this one.  `recorded_at` is None when it equals `timestamp`.
    """

    seq: int
    event_type: str
    timestamp: str
    recorded_at: str | None = None
    task_id: str | None = None
    activity_id: str | None = None
    attempt: int | None = None
    actor: str = ENGINE
    payload: Raw = msgspec.field(default_factory=lambda: EMPTY)
    parent_event: int | None = None
    schema_version: int = SCHEMA_VERSION
    ignorable: bool = False
    agent_version: str | None = None
    execution_time_ms: float | None = None
    cpu_s: float | None = None
    rss_bytes: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)


def encode(event: Event) -> bytes:
    """The canonical JSON of `event`: UTF-8, no line feed, fields in declared order, defaults left out."""
    if event.actor is not ENGINE and event.actor == ENGINE:  # msgspec leaves out what is the default, not what equals it
        event = msgspec.structs.replace(event, actor=ENGINE)
    return _encoder.encode(event)


decode: Final = _decoder.decode
"""The event of canonical or foreign JSON (bytes).  Unknown fields are dropped, missing ones take their defaults.

Raises msgspec.DecodeError or msgspec.ValidationError."""


def digest(event: Event) -> str:
    """sha256 of the canonical bytes, in hex: what a fork stores of the event it starts from."""
    return hashlib.sha256(encode(event)).hexdigest()


def payload_of(event: Event) -> Any:
    """The payload as plain Python data."""
    return msgspec.json.decode(event.payload)


def as_raw(payload: Any) -> Raw:
    """`payload` (JSON-like data or a Struct) as raw JSON, with text that no reader can stand cleaned (`clean`).

    Raises UsageError when it is not JSON-like.
    """
    try:
        body = _encoder.encode(payload)
    except UnicodeEncodeError:
        body = _encoder.encode(_readable(payload))
    except (TypeError, RecursionError) as error:
        raise UsageError(f"the payload of an event must be JSON-like: {error}") from error
    if b"\\u0000" in body:
        body = _encoder.encode(_readable(payload))
    return Raw(body)


def clean(text: str) -> tuple[str, int]:
    """`text` without lone surrogates and NUL, each replaced by U+FFFD, and how many were replaced (R258)."""
    if "\0" not in text and (text.isascii() or _is_utf8(text)):
        return text, 0
    out = "".join("\ufffd" if ch == "\0" or "\ud800" <= ch <= "\udfff" else ch for ch in text)
    return out, sum(a != b for a, b in zip(text, out, strict=True))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def cleaned(value: Any) -> tuple[Any, int]:
    """JSON-like `value` with all its texts cleaned, and how many characters were replaced."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        pairs = [(cleaned(key), cleaned(each)) for key, each in value.items()]
        return {key: each for (key, _), (each, _) in pairs}, sum(n + m for (_, n), (_, m) in pairs)
    if isinstance(value, list | tuple):
        found = [cleaned(each) for each in value]
        return [each for each, _ in found], sum(n for _, n in found)
    return value, 0


TITLE: Final = 200
"""How many characters a title has at most."""


def title(text: str, room: int = 0) -> str:
    """`text` as a title: clean, and cut with a sign where it is longer than `TITLE` without the last `room` characters."""
    text, longest = clean(text)[0], TITLE - room
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _readable(payload: Any) -> Any:
    """The payload with all its texts cleaned; an object says under `replaced_characters` how many were."""
    if isinstance(payload, Struct):
        payload = {f: getattr(payload, f) for f in payload.__struct_fields__}
        payload = {k: msgspec.json.decode(v) if isinstance(v, Raw) else v for k, v in payload.items()}
    done, count = cleaned(payload)
    if count and isinstance(done, dict):
        done["replaced_characters"] = count
    return done


class Stamper:
    """Formats seconds since the epoch as ISO-8601 with milliseconds and `Z` (R089); remembers the last one."""

    def __init__(self) -> None:
        self._millisecond = self._second = -1
        self._text = self._prefix = ""

    def __call__(self, seconds: float) -> str:
        millisecond = round(seconds * 1000)
        if millisecond != self._millisecond:
            second, rest = divmod(millisecond, 1000)
            if second != self._second:
                self._second = second
                self._prefix = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            self._millisecond, self._text = millisecond, f"{self._prefix}.{rest:03d}Z"
        return self._text


def seconds_of(timestamp: str) -> float:
    """Seconds since the epoch of an event's time."""
    return datetime.fromisoformat(timestamp).timestamp()


_UNITS: Final = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def from_document(record: dict[str, Any], *, seq: int, recorded_at: str) -> Event:
    """An event from a record in the nested form of the source documents (B section 6.2; R092), whose example loads unchanged
    and is queryable in SQL.  Part of the public names of this package, for logs that were kept in that form.

    Ids that are not ours (`event_id`, `workflow_id`, `correlation`) and resource texts stay in the payload under
    `document`; "4 GB" becomes bytes, "2 cores" is no time and stays text (R095).  Raises UsageError when a field is
    missing or has the wrong type.
    """
    rest = dict(record)
    hint = "event_type and an ISO-8601 timestamp with its zone are needed"
    try:
        event_type, timestamp = str(rest.pop("event_type")), str(rest.pop("timestamp"))
        when = datetime.fromisoformat(timestamp)
    except (KeyError, ValueError) as error:
        raise UsageError(f"not an event record: {error}", hint=hint) from error
    if when.tzinfo is None:
        raise UsageError(f"not an event record: the timestamp {timestamp} has no zone", hint=hint)
    at = Stamper()(when.timestamp())
    if at != timestamp:
        rest["timestamp"] = timestamp
    payload, metadata = rest.pop("payload", {}), rest.pop("metadata", {})
    if not isinstance(payload, dict) or not isinstance(metadata, dict):
        raise UsageError("not an event record: payload and metadata must be objects")
    activity_id, metadata = rest.pop("activity_id", None), dict(metadata)
    agent_version, execution_time_ms = metadata.pop("agent_version", None), metadata.pop("execution_time_ms", None)
    kept = {**rest, **({"metadata": metadata} if metadata else {})}
    event = Event(
        seq=seq,
        event_type=event_type,
        timestamp=at,
        recorded_at=None if recorded_at == at else recorded_at,
        activity_id=activity_id,
        payload=as_raw({**payload, "document": kept} if kept else payload),
        ignorable=event_type not in TYPES,
        agent_version=agent_version,
        execution_time_ms=execution_time_ms,
        rss_bytes=_bytes_of(metadata.get("resource_usage")),
    )
    try:
        return decode(encode(event))
    except msgspec.DecodeError as error:
        raise UsageError(f"not an event record: {error}") from error


def _bytes_of(usage: Any) -> int | None:
    """The bytes of {"memory": "4 GB"}, None when it does not say."""
    number, _, unit = str(usage.get("memory", "") if isinstance(usage, dict) else "").strip().partition(" ")
    try:
        return int(float(number) * _UNITS[unit.strip().upper()])
    except (KeyError, ValueError):
        return None
