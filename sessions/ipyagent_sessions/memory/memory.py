"""The cross-session Store: what one session puts down another one finds (R034).

    memory = Store().memory
    memory.put("preferences/plots", "palette", "viridis")
    memory.put("facts", "rate", {"eur": 1.08}, ttl="7d")
    memory.get("facts", "rate")
    memory.search("preferences", text="viridis")

A namespace is a path of names.  A value is anything that `codec` writes without pickle, up to `LARGEST` bytes; what is larger
belongs into a file.  An entry whose time is over is not found any more, and goes at the next clean-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from ipyagent_sessions import codec
from ipyagent_sessions.clock import Clock, duration
from ipyagent_sessions.config import seconds
from ipyagent_sessions.decoding import from_json
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.events import NULL, Stamper, clean, seconds_of
from ipyagent_sessions.log.files import Disk
from ipyagent_sessions.memory.journal import Journal, Record, Slot

LARGEST: Final = 1 << 20
LONGEST_S: Final = 36_525 * 86_400.0
"""How long an entry may be kept: 100 years."""
_LAST: Final = 253_402_300_799.0
"""The last second that a timestamp holds, that of the year 9999."""
_LONGEST: Final = 300
_NAMES: Final = "names with / between them, as in preferences/plots"


class Item(Struct, frozen=True):
    """An entry.  `at` is when it was put, `expires` when it goes (both ISO-8601 in UTC; the end of the year 9999 for
    what goes later), `by` who put it."""

    namespace: str
    key: str
    value: Any
    at: str
    expires: str | None = None
    by: str = ""


class Outlived(Struct, frozen=True):
    """An entry that may go: `file` says where it lies, `size` its bytes, `why` why, `n` the number of its line."""

    namespace: str
    key: str
    file: str
    size: int
    why: str
    n: int


class Memory:
    """What the sessions of a store share.  Reading takes no lock; any process and thread may write."""

    def __init__(self, folder: Path, clock: Clock, disk: Disk, make_store: Callable[[], None] | None = None) -> None:
        self.folder = folder
        self._clock = clock
        self._journal = Journal(folder, disk, make_store)
        self._stamp = Stamper()

    def __repr__(self) -> str:
        return f"Memory({str(self.folder)!r})"

    def put(
        self, namespace: str, key: str, value: Any, *, ttl: str | float | None = None, by: str = "", write_id: str = ""
    ) -> bool:
        """Keep `value` under `key`, durably.  `ttl` is how long, as seconds or 60s, 2h, 7d, up to 100 years; for good
        without it.

        A `write_id` makes a repetition harmless: it returns False and changes nothing.  Raises UsageError, ConfigError
        for a `ttl` that is no duration, NotSerialisable, PersistenceError, LeaseHeld.
        """
        slot = _slot(namespace, key)
        body = codec.dumps(value)
        if len(body) > LARGEST:
            raise UsageError(
                f"{namespace} {key}: {len(body)} bytes, more than {LARGEST}", hint="put it into a file, and its path here"
            )
        now = self._clock.now()
        expires = None if ttl is None else now + _lifetime(slot, ttl)
        return self._journal.write(
            "put", slot, Raw(body), at=self._stamp(now), expires=expires, by=clean(by)[0], write_id=write_id
        )

    def delete(self, namespace: str, key: str, *, by: str = "", write_id: str = "") -> bool:
        """Remove an entry, durably.  False when there was none, or a deletion of that id was done before."""
        slot = _slot(namespace, key)
        if slot not in self._journal.entries():
            return False
        at = self._stamp(self._clock.now())
        return self._journal.write("delete", slot, NULL, at=at, expires=None, by=by, write_id=write_id)

    def get(self, namespace: str, key: str, default: Any = None) -> Any:
        """The value under `key`, or `default`.  Raises NotSerialisable when its class is not here."""
        found = self.item(namespace, key)
        return default if found is None else found.value

    def item(self, namespace: str, key: str) -> Item | None:
        """The entry under `key`, None when there is none or its time is over."""
        record = self._journal.entries().get(_slot(namespace, key))
        return None if record is None or self._over(record) else self._item(record)

    def keys(self, namespace: str = "") -> list[tuple[str, str]]:
        """(namespace, key) of all entries in `namespace` and below, sorted."""
        return sorted(slot for slot, record in self._alive(namespace) if not self._over(record))

    def search(
        self, namespace: str = "", *, text: str = "", fields: Mapping[str, Any] | None = None, limit: int = 100
    ) -> list[Item]:
        """The entries in `namespace` and below that fit, newest first.

        `text` is looked for in the key and in all texts and numbers of the value, in any case.  `fields` names parts of the
        value by dotted paths, and what they must equal.  Raises UsageError.
        """
        return [self._item(record) for record in self._fitting(namespace, text, fields)[:limit]]

    def entries(self, namespace: str = "", *, text: str = "") -> list[Item]:
        """All that fits, newest first, with values as they are stored (tagged JSON): no class is needed to look at them."""
        return [self._item(record, raw=True) for record in self._fitting(namespace, text, None)]

    def _fitting(self, namespace: str, text: Any, fields: Any) -> list[Record]:
        if not isinstance(text, str):
            raise _refused(text, "text to search for", "a text; all entries fit an empty one")
        if fields is not None and not (isinstance(fields, Mapping) and all(isinstance(path, str) for path in fields)):
            raise _refused(fields, "mapping of paths to values", 'as in fields={"meta.kind": "fact"}')
        wanted = text.casefold()
        found: list[Record] = []
        for (_, key), record in self._alive(namespace):
            data = _plain(record)
            if wanted and wanted not in key.casefold() and not any(wanted in t.casefold() for t in _texts(data)):
                continue
            if fields and any(_field(data, path) != [value] for path, value in fields.items()):
                continue
            found.append(record)
        return sorted(found, key=lambda r: -r.n)

    def problems(self) -> list[str]:
        """What of the files does not verify, by place."""
        return self._journal.problems()

    def set_aside(self) -> list[Path]:
        """The files that were kept because not everything in them could be read."""
        return sorted(self.folder.joinpath("damaged").glob("*"))

    def torn(self) -> str:
        """Where the newest file ends inside a line, empty when it does not."""
        self._journal.entries()
        return f"{self._journal.position}: {self._journal.torn} bytes" if self._journal.torn else ""

    def outlived(self, kept_s: float | None = None) -> list[Outlived]:
        """The entries whose time is over, and those without one that were put more than `kept_s` seconds ago."""
        found: list[Outlived] = []
        for (namespace, key), record in sorted(self._journal.entries().items()):
            why = self._why(record, kept_s)
            if why:
                file = f"memory/{namespace}/{key}"
                found.append(Outlived(namespace, key, file, len(memoryview(record.value)), why, record.n))
        return found

    def forget(self, outlived: Iterable[Outlived]) -> None:
        """Remove entries for good, in one new file, but those that were put anew since.  Raises OSError, LeaseHeld."""
        due = frozenset(o.n for o in outlived)
        if due:
            self._journal.compact(due)

    def _why(self, record: Record, kept_s: float | None) -> str:
        now = self._clock.now()
        if record.expires is not None:
            return f"its time was over at {self._stamp(record.expires)}" if record.expires <= now else ""
        if kept_s is not None and seconds_of(record.at) < now - kept_s:
            return f"put at {record.at}, kept {duration(kept_s)}"
        return ""

    def _alive(self, namespace: str) -> list[tuple[Slot, Record]]:
        prefix = _namespace(namespace) if namespace != "" else ""
        return [
            (slot, record)
            for slot, record in self._journal.entries().items()
            if (not prefix or slot[0] == prefix or slot[0].startswith(f"{prefix}/")) and not self._over(record)
        ]

    def _over(self, record: Record) -> bool:
        return record.expires is not None and record.expires <= self._clock.now()

    def _item(self, record: Record, *, raw: bool = False) -> Item:
        expires = None if record.expires is None else self._stamp(min(record.expires, _LAST))
        value = _plain(record) if raw else codec.loads(record.value)
        return Item(record.ns, record.key, value, record.at, expires, record.by)


def _plain(record: Record) -> Any:
    """The value as it is stored, as JSON-like data; one that is nested too deep for that as its text."""
    try:
        return from_json(record.value)
    except msgspec.DecodeError:
        return bytes(memoryview(record.value)).decode("utf-8", "replace")


def _lifetime(slot: Slot, ttl: str | float) -> float:
    """`ttl` in seconds.  Raises ConfigError for what is no duration, UsageError for more than `LONGEST_S`."""
    lifetime = seconds(ttl, "ttl")
    if lifetime > LONGEST_S:
        raise UsageError(
            f"{' '.join(slot)}: ttl={str(ttl)[:80]} is more than 100 years; timestamps end with the year 9999",
            hint="leave ttl out, and the entry stays for good",
        )
    return lifetime


def _namespace(given: Any) -> str:
    text = _text(given, "namespace", _NAMES)
    if not all(part.strip() for part in text.split("/")):
        raise _refused(text, "namespace", _NAMES)
    return text


def _slot(namespace: Any, key: Any) -> Slot:
    return _namespace(namespace), _text(key, "key", f"a text of 1 to {_LONGEST} characters")


def _text(given: Any, what: str, wanted: str) -> str:
    """A clean text of sensible length.  Raises UsageError for anything else."""
    if not isinstance(given, str) or not 0 < len(given) <= _LONGEST or clean(given)[1]:
        raise _refused(given, what, wanted)
    return given


def _refused(given: Any, what: str, wanted: str) -> UsageError:
    shown = given[:80] if isinstance(given, str) else given
    return UsageError(f"{repr(shown)[:100]} is not a {what}", hint=wanted)


def _texts(data: Any) -> Iterable[str]:
    """The texts and numbers of JSON-like data, and the names of its fields."""
    waiting = [data]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting += (*part, *part.values())
        elif isinstance(part, list):
            waiting += part
        elif part is not None:
            yield str(part)


def _field(data: Any, path: str) -> list[Any]:
    """The part of JSON-like data that a dotted path names, in a list; an empty one when there is none."""
    for name in path.split("."):
        if isinstance(data, dict) and data.get("$") in ("dataclass", "struct", "pydantic"):
            data = data.get("v")
        if not isinstance(data, dict) or name not in data:
            return []
        data = data[name]
    return [data]
