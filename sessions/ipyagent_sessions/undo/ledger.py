"""The effects ledger: from the events of a session to what it did to the world (R115, R171).

Pure: it looks at no file.  What it cannot know it calls unknown, never done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from ipyagent_sessions import folding
from ipyagent_sessions.decoding import from_json
from ipyagent_sessions.errors import DamageError
from ipyagent_sessions.events import TYPES, Event
from ipyagent_sessions.payloads import NOT_RUN

Standing = Literal["done", "failed", "running", "unknown", "compensated", "rolled back"]


class Effect(Struct):
    """One thing that was done, or may have been.

    `what` is file, command (a process that a tool started), call (of a tool), request (to a model), activity, or the word with
    which an activity declared it (row); `name` is its path, command line, activity or the name declared.  `state` is done;
    failed (it ended with an error: what it did before that is not known); running; unknown (it started and left no result);
    compensated; or rolled back.  `activity` is the activity it belongs to.
    Checksums are of a file after and before; `before` and `after` name the blobs of what it held, where they are kept;
    `restorable` says that the file can be brought back to what it held before; `settled` is the event that told its end.
    """

    seq: int
    at: str
    what: str
    name: str
    state: Standing
    effect: str
    task_id: str | None = None
    activity: str | None = None
    tool: str = ""
    checksum: str | None = None
    before_checksum: str | None = None
    before: str | None = None
    after: str | None = None
    size: int | None = None
    restorable: bool = False
    note: str = ""
    settled: int | None = None

    @property
    def whole(self) -> bool:
        """Whether this is an activity, a call or a request itself, and not a thing that one did."""
        return self.name == self.activity


class _Start(Struct):
    name: str = ""
    kind: str = "step"
    effect: str = "none"


class _End(Struct):
    name: str = ""
    kind: str = "step"
    error_type: str = ""
    error: str = ""
    aborted: bool = False
    still_running: bool = False
    ok: bool = True
    answer: str = ""
    choice: str | None = None


class _File(Struct):
    path: str = ""
    checksum: str | None = None
    size: int | None = None
    before: str | None = None
    before_checksum: str | None = None
    after: str | None = None
    tool: str = ""
    undoes: list[int] = []


class _Declared(Struct):
    what: str = ""
    name: str = ""
    note: str = ""


class _Process(Struct):
    pid: int = 0
    started: float = 0.0
    command: str = ""
    stopped: bool = False


_KINDS: Final = {"model": "request", "tool": "call"}
TAKEN: Final = frozenset({"file", "command", "call", "activity"})
"""Words that an activity cannot declare an effect with: the ledger finds these by itself."""


def ledger(events: Iterable[Event], *, running: bool = False) -> list[Effect]:
    """The effects that `events` (of a session, from its first one) tell of, oldest first.

    `running` says that somebody works on the newest task now: what is open there is running, not unknown.  Raises NewerFormat
    for an event that may tell of an effect and is not known here, DamageError for one that cannot be read.
    """
    built = _Ledger()
    for event in events:
        folding.check(event)
        take = _TAKES.get(event.event_type)
        if take is not None:
            _take(built, take, event)
    return built.told(running=running)


def _take(built: _Ledger, take: Callable[[_Ledger, Event], None], event: Event) -> None:
    """Take an event in; one of a workflow's own under the name of a tool's note tells of no effect.  Raises DamageError."""
    try:
        take(built, event)
    except msgspec.DecodeError as error:
        if event.event_type in TYPES:
            what = f"the payload of event {event.seq} does not fit its type {event.event_type}: {error}"
            raise DamageError(what, hint="ipyagent verify says more") from error


class _Ledger:
    """The effects so far.  An activity is known by its id and the number of its task: in a fork that task has another id."""

    def __init__(self) -> None:
        self.found: list[Effect] = []
        self._episode = 0
        self._calls: dict[tuple[int, str], Effect] = {}
        self._by_seq: dict[int, Effect] = {}
        self._files: dict[int, Effect] = {}
        self._processes: dict[tuple[int, float], Effect] = {}
        self._dropped: set[int] = set()
        self._parts: list[tuple[Effect, Effect | None]] = []

    def told(self, *, running: bool) -> list[Effect]:
        open_ones = {id(effect) for (episode, _), effect in self._calls.items() if episode == self._episode}
        for effect in self.found:
            if running and effect.state == "unknown" and id(effect) in open_ones:
                effect.state = "running"
        for part, whole in self._parts:
            if part.state == "unknown" and whole is not None:  # a part is as certain as the call that it belongs to
                undone = whole.state == "compensated" and part.what in ("file", "command")  # not by that: each has its own
                part.state = "done" if undone else whole.state
        return [effect for effect in self.found if effect.seq not in self._dropped]

    def queued(self, event: Event) -> None:
        self._episode += 1

    def started(self, event: Event) -> None:
        body = from_json(event.payload, _Start)
        if body.effect == "none" or body.kind == "stage" or event.activity_id is None:
            return
        known = self._calls.get((self._episode, event.activity_id))
        if known is not None and known.state == "unknown":  # another attempt of the same call
            self._dropped.discard(known.seq)
            self._by_seq[event.seq] = known
            return
        made = Effect(
            event.seq,
            event.timestamp,
            _KINDS.get(body.kind, "activity"),
            event.activity_id,
            "unknown",
            body.effect,
            event.task_id,
            event.activity_id,
            body.name if body.kind == "tool" else "",
        )
        self._calls[self._episode, event.activity_id] = self._by_seq[event.seq] = made
        self.found.append(made)

    def completed(self, event: Event) -> None:
        if (known := self._call(event)) is not None:
            known.state, known.note, known.settled = "done", "", event.seq

    def failed(self, event: Event) -> None:
        known = self._call(event)
        if known is None:
            return
        body = from_json(event.payload, _End)
        if body.error_type == NOT_RUN:
            self._dropped.add(known.seq)
        elif not body.aborted:
            known.state = "unknown" if body.still_running else "failed"
            known.note, known.settled = f"{body.error_type}: {body.error}", event.seq

    def compensated(self, event: Event) -> None:
        known = self._call(event)
        if known is not None:
            body = from_json(event.payload, _End)
            known.state = "compensated" if body.ok else known.state
            known.note = "" if body.ok else f"undoing it failed: {body.error}"

    def written(self, event: Event) -> None:
        self._wrote(event, from_json(event.payload, _File))

    def generated(self, event: Event) -> None:
        body = from_json(event.payload)
        listed = body.get("files_generated") if isinstance(body, dict) else None
        for file in listed if isinstance(listed, list) else []:
            if isinstance(file, dict) and "path" in file:
                self._wrote(event, _File(str(file["path"]), _text(file.get("checksum"))))

    def _wrote(self, event: Event, body: _File) -> None:
        whole = self._by_seq.get(event.parent_event or -1) if body.tool else None
        made = Effect(
            event.seq,
            event.timestamp,
            "file",
            body.path,
            "unknown" if whole is not None else "done",
            "idempotent",
            event.task_id,
            event.activity_id if whole is None else whole.activity,
            body.tool,
            body.checksum,
            body.before_checksum,
            body.before,
            body.after,
            body.size,
            bool(body.tool) and (body.before is not None or body.before_checksum is None),
        )
        self._files[event.seq] = made
        self._parts.append((made, whole))
        self.found.append(made)

    def rolled_back(self, event: Event) -> None:
        for seq in from_json(event.payload, _File).undoes:
            if seq in self._files:
                self._files[seq].state = "rolled back"

    def declared(self, event: Event) -> None:
        body = from_json(event.payload, _Declared)
        whole = self._by_seq.get(event.parent_event or -1)
        parts = [part for part, of in self._parts if of is whole and (part.what, part.name) == (body.what, body.name)]
        if parts:  # another attempt of the same
            parts[0].note = body.note
            return
        effect = whole.effect if whole is not None else "irreversible"
        made = Effect(event.seq, event.timestamp, body.what, body.name, "unknown", effect, event.task_id, note=body.note)
        if whole is not None:
            made.activity, made.tool = whole.activity, whole.tool
        self._parts.append((made, whole))
        self.found.append(made)

    def process_started(self, event: Event) -> None:
        body = from_json(event.payload, _Process)
        whole = self._by_seq.get(event.parent_event or -1)
        made = Effect(event.seq, event.timestamp, "command", body.command, "unknown", "irreversible", event.task_id)
        if whole is not None:
            made.activity, made.tool = whole.activity, whole.tool
        self._processes[body.pid, body.started] = made
        self._parts.append((made, whole))
        self.found.append(made)

    def process_ended(self, event: Event) -> None:
        body = from_json(event.payload, _Process)
        made = self._processes.get((body.pid, body.started))
        if made is not None:
            made.state, made.note = ("failed", "stopped before its end") if body.stopped else ("done", "")

    def _call(self, event: Event) -> Effect | None:
        return self._calls.get((self._episode, event.activity_id or ""))


_TAKES: Final = {
    "TaskQueued": _Ledger.queued,
    "ActivityStarted": _Ledger.started,
    "ActivityCompleted": _Ledger.completed,
    "ActivityFailed": _Ledger.failed,
    "ActivityCompensated": _Ledger.compensated,
    "FileWritten": _Ledger.written,
    "CodeGenerated": _Ledger.generated,
    "FileRolledBack": _Ledger.rolled_back,
    "EffectDeclared": _Ledger.declared,
    "ProcessStarted": _Ledger.process_started,
    "ProcessEnded": _Ledger.process_ended,
}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def still_there(effects: Iterable[Effect], after: int = 0) -> list[Effect]:
    """Those begun or told after event `after` that nothing has undone, each once: requests to a model leave nothing, and a
    call whose files, commands or declared effects are listed is told by them."""
    listed = [e for e in effects if (e.settled or e.seq) > after and not (e.what == "request" and e.whole)]
    told = {(e.task_id, e.activity) for e in listed if not e.whole}
    return [
        e
        for e in listed
        if e.state not in ("compensated", "rolled back") and not (e.whole and (e.task_id, e.activity) in told)
    ]


def line(effect: Effect) -> str:
    """One line for a person."""
    if effect.what in ("file", "command"):
        text = f"{effect.what} {effect.name}"
    else:
        text = f"{effect.effect} {effect.what} {effect.name}"
    return text if effect.state == "done" else f"{text} ({effect.state}{': ' + effect.note if effect.note else ''})"
