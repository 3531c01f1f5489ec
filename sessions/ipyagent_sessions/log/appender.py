"""The one who may append: lease, journal, and the state folded as events are written.

    appender = Appender.open(layout, who, load, ...)     # a new epoch begins
    appender.emit("TaskStarted", payload, task_id=...)   # folded and in memory
    appender.acknowledge()                               # durable as the mode promises
    appender.barrier()                                   # durable in every mode: before a model request, before an effect
    appender.close()

`acknowledge` and `barrier` raise PersistenceError when the disk refuses and LeaseLost when a newer holder exists.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, Literal

from msgspec import Raw

from ipyagent_sessions import events as ev
from ipyagent_sessions import folding
from ipyagent_sessions import payloads as p
from ipyagent_sessions import state as states
from ipyagent_sessions.clock import Clock
from ipyagent_sessions.config import LAST_EVENTS
from ipyagent_sessions.errors import DamageError, LeaseLost, PersistenceError
from ipyagent_sessions.log import checkpoints, lease, sealing, witnesses
from ipyagent_sessions.log.blobs import THRESHOLD, Blobs
from ipyagent_sessions.log.checksum import PREFIX
from ipyagent_sessions.log.files import Disk
from ipyagent_sessions.log.format import line_of
from ipyagent_sessions.log.journal import Journal
from ipyagent_sessions.log.layout import JournalFile, Layout
from ipyagent_sessions.log.lease import Holder, Lease
from ipyagent_sessions.log.loading import Loaded, mend_tail
from ipyagent_sessions.log.scribe import Scribe, Work
from ipyagent_sessions.log.setbacks import Setbacks
from ipyagent_sessions.state import State

Durability = Literal["sync", "async", "exit"]

RISK: Final[dict[str, str]] = {
    "sync": "every result is on disk before the next step sees it",
    "async": "a crash may lose the last 0.2 s of effect-free steps",
    "exit": "a crash loses everything since the last effect, approval or pause",
}
"""What each mode risks, in the words shown beside progress (R042)."""

REST_EVENTS: Final = 512
SNAPSHOT_BYTES: Final = 16 * 2**20
"""From so many bytes of snapshots that wait to be written on, those that nobody asked for are left out."""


class Appender:
    """The holder's side of a session's log.  Safe to use from several threads.

    `scrub`, when it is set, takes secrets out of the JSON of payloads and of what becomes a blob.  `trouble` is what the work
    behind the scenes ran into last, None once a flush has worked since; `setbacks` are the alarms that it gives rise to.
    """

    def __init__(
        self, layout: Layout, held: Lease, loaded: Loaded, first: int, blobs: Blobs, clock: Clock, disk: Disk, version: str
    ) -> None:
        self.layout = layout
        self.lease = held
        self.loaded = loaded
        self.state = loaded.state
        self.found_seq = loaded.state.seq
        self.blobs = blobs
        self.clock = clock
        self.disk = disk
        self.durability: Durability = "sync"
        self.trouble: Exception | None = None
        self.setbacks = Setbacks(lambda: self._journal.refused, loaded.state.alarms)
        self.scrub: Callable[[bytes], bytes] | None = None
        self.listeners: list[Callable[[ev.Event], None]] = []
        self.keep_last = LAST_EVENTS
        self._snapshot_bytes = 0
        self._snapshots: checkpoints.Known = {}
        self._first = first
        self._version = version
        self._stamp = ev.Stamper()
        self._lock = threading.RLock()
        self._recent: deque[bytes] = deque(maxlen=1000)
        self._journal = Journal(layout, held, self.state.seq + 1, blobs, disk, self._rotated)
        try:
            held.announce()
        except BaseException:
            self._journal.close()
            raise
        self._scribe = Scribe(self._window, lambda: self._journal.pending > 0, self._noticed)

    @classmethod
    def open(
        cls,
        layout: Layout,
        who: Holder,
        load: Callable[[], Loaded],
        *,
        first: int,
        blobs: Blobs,
        clock: Clock,
        disk: Disk,
        version: str,
        force: bool = False,
    ) -> Appender:
        """Begin a new epoch: take the lease, mend the tail, load the state, create the journal.

        Raises LeaseHeld, DamageError when events are missing that no later checkpoint covers, or at the end, and
        PersistenceError when the disk refuses the new journal.
        """
        held = lease.acquire(layout, who, now=clock.now(), force=force)
        try:
            held.sign(disk)
            torn = None if force else mend_tail(layout, held.epoch, disk)
            layout.sync_tail()
            loaded = load()
            _refuse_shorter(layout, loaded.state)
            appender = cls(layout, held, loaded, first, blobs, clock, disk, version)
        except BaseException as error:
            held.release()
            if isinstance(error, OSError):
                raise PersistenceError(
                    f"the log of session {layout.root.name} could not be opened: {error.strerror or error}",
                    hint="free some space or mend the disk; reading works meanwhile",
                ) from error
            raise
        try:
            if torn is not None:
                told = f"{torn.length} bytes of an unfinished event were cut from {torn.file} and kept in damaged/"
                appender.emit("AlarmRaised", p.AlarmRaised("torn_tail", told))
            lease.forget_older(layout, held.epoch)
            with contextlib.suppress(OSError):  # leftovers cost space and nothing else
                checkpoints.clean_unfinished(layout)
        except BaseException:
            appender.abandon()
            raise
        return appender

    @property
    def epoch(self) -> int:
        return self.lease.epoch

    @property
    def first(self) -> int:
        """The first seq that is the session's own."""
        return self._first

    @property
    def durable_seq(self) -> int:
        """The newest seq that is on disk."""
        return self._journal.durable_seq

    @property
    def backlog_full(self) -> bool:
        return self._journal.backlog_full

    def emit(
        self,
        event_type: str,
        payload: p.Payload | dict[str, Any] | Raw,
        *,
        task_id: str | None = None,
        activity_id: str | None = None,
        attempt: int | None = None,
        actor: str = "engine",
        parent: int | None = None,
        ignorable: bool = False,
        blobs: dict[str, bytes] | None = None,
        timestamp: float | None = None,
        execution_time_ms: float | None = None,
        cpu_s: float | None = None,
        rss_bytes: int | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cost_usd: float | None = None,
    ) -> ev.Event:
        """Append an event: folded into `state` and in memory, not yet durable.

        `timestamp` (seconds since the epoch) says when it happened, if not now; what was measured is as in `events.Event`.
        """
        raw = payload if isinstance(payload, Raw) else ev.as_raw(payload)
        if self.scrub is not None:
            raw = Raw(self.scrub(bytes(memoryview(raw))))
        with self._lock:
            at = recorded = self._stamp(self.clock.now())
            if timestamp is not None:
                at = self._stamp(timestamp)
            event = ev.Event(
                self.state.seq + 1,
                event_type,
                at,
                None if at == recorded else recorded,
                task_id,
                activity_id,
                attempt,
                actor,
                raw,
                parent,
                ev.SCHEMA_VERSION,
                ignorable,
                self._version,
                execution_time_ms,
                cpu_s,
                rss_bytes,
                input_tokens,
                output_tokens,
                cost_usd,
            )
            line = line_of(event)
            folding.apply(self.state, event)
            self._journal.append(event.seq, line, blobs)
            self._recent.append(line)
        if self.durability != "exit":
            self._scribe.soon()
        for listener in self.listeners:
            listener(event)
        return event

    @contextlib.contextmanager
    def frozen(self) -> Generator[State, None, None]:
        """The state, while no event is taken into it: for a short look from another thread."""
        with self._lock:
            yield self.state

    def put(self, body: bytes, blobs: dict[str, bytes]) -> tuple[Raw, str | None]:
        """`body` as an inline value, or null and the name of the blob that will be written with the event."""
        if self.scrub is not None:
            body = self.scrub(body)
        if len(body) <= THRESHOLD:
            return Raw(body), None
        name = Blobs.name(body)
        blobs[name] = body
        return ev.NULL, name

    def acknowledge(self) -> None:
        """Make what was appended durable as the mode promises: now (sync), or when the backlog is full (async, exit)."""
        if self.durability == "sync" or self._journal.backlog_full:
            self._journal.flush()
            self.trouble = None

    def barrier(self) -> None:
        """Make everything appended so far durable, in every mode."""
        self._journal.flush()
        self.trouble = None

    def checkpoint(
        self, trigger: str, label: str = "", *, materialise: bool = True, actor: str = "engine", task_id: str | None = None
    ) -> ev.Event:
        """Append `CheckpointCreated`; with `materialise` its snapshot is written by the scribe once the event is durable."""
        with self._lock:
            cause = self.state.seq or None
            body_of = p.CheckpointCreated(trigger, label)
            event = self.emit("CheckpointCreated", body_of, actor=actor, task_id=task_id, parent=cause)
            if materialise:
                body = states.encode(self.state)
                self._snapshot_bytes += len(body)
                recent = [b"{" + line[PREFIX:-1] for line in list(self._recent)[-self.keep_last - 1 : -1]]
                self._scribe.later("snapshot", lambda: self._write_snapshot(event, body, trigger, label, recent))
        return event

    @property
    def snapshots_behind(self) -> bool:
        """Whether more snapshots wait to be written than memory should hold."""
        return self._snapshot_bytes >= SNAPSHOT_BYTES

    def _write_snapshot(self, event: ev.Event, body: bytes, trigger: str, label: str, recent: list[bytes]) -> None:
        with self._lock:
            self._snapshot_bytes -= len(body)
        if self._journal.durable_seq < event.seq:
            self.barrier()
        checkpoints.write(
            self.layout,
            event.seq,
            body,
            label=label,
            trigger=trigger,
            at=event.timestamp,
            last_events=recent,
            disk=self.disk,
            known=self._snapshots,
        )
        checkpoints.prune(self.layout, self._snapshots)

    def rest(self) -> None:
        """Give back what only writing needs; the next flush takes it again."""
        self._journal.rest()

    def close(self, *, rest: bool = False) -> None:
        """Flush, finish the scribe's work, give the lease back.  With `rest` the tail is sealed, small segments are merged,
        and no journal stays but the newest, empty one.

        Raises PersistenceError or LeaseLost when what was appended could not be made durable; the lease is released all the
        same.
        """
        try:
            self.barrier()
            self._scribe.stop()
            self._tell_setbacks()
        finally:
            self._scribe.stop()
            try:
                much = self.durable_seq - sealing.sealed_until(self.layout) >= REST_EVENTS
                if (rest or much) and not self.lease.fenced():
                    self._seal_at_rest()
                    self._tell_setbacks()
            finally:
                self._journal.close()
                self.lease.release()

    def abandon(self) -> None:
        """Let go without writing anything more: for a holder that was fenced.  What was not flushed is dropped."""
        self._scribe.stop()
        self._journal.close()
        self.lease.release()

    def _tell_setbacks(self) -> None:
        """Log what failed since somebody last asked for it."""
        alarms = self.setbacks.take()
        for alarm in alarms:
            self.emit("AlarmRaised", alarm, task_id=self.state.system_state.task_id)
        if alarms:
            with contextlib.suppress(PersistenceError, LeaseLost):  # all that was done is on disk, only this is not
                self.barrier()

    def _seal_at_rest(self) -> None:
        try:
            self._journal.rotate()
            sealing.seal(self.layout, self.durable_seq, self.epoch, self._first, self.disk)
            sealing.merge_small(self.layout, self.epoch, self.disk)
            sealing.remove_sealed_journals(self.layout, sealing.sealed_until(self.layout))
        except (OSError, DamageError) as error:
            self._noticed("sealing", error)

    def _rotated(self, full: JournalFile) -> None:
        until = self._journal.durable_seq
        self._scribe.later("sealing", lambda: self._seal(until))

    def _seal(self, until: int) -> None:
        if not self.lease.fenced():  # the log, and what is sealed of it, is the newer holder's business
            sealing.seal(self.layout, until, self.epoch, self._first, self.disk)

    def _window(self) -> None:
        if self._journal.pending and self.durability != "exit":
            self.barrier()

    def _noticed(self, work: Work, error: Exception) -> None:
        self.trouble = error
        self.setbacks.add(work, error)


def _refuse_shorter(layout: Layout, state: State) -> None:
    """Raise DamageError when the log ends before what was on disk: who went on would do again what is not in it any more."""
    later = witnesses.later(layout, witnesses.look(layout), state.seq, state.updated_at)
    if later:
        name, seq = max(later.items(), key=lambda told: told[1])
        raise DamageError(
            f"the log of session {layout.root.name} ends at event {state.seq}, and {name} tells of event {seq}",
            hint=f"restore its last journal from a copy; or go on from what is left, without what came after it: "
            f"ipyagent fork {layout.root.name}",
        )
