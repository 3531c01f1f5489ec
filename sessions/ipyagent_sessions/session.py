"""One session: a durable thread of tasks with one log, read by anybody and written by the holder of its lease.

A session that was forked shares the beginning of its parent's log by reference: its own events continue with the parent's next
seq, and reading the lineage goes through the parent's files.
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from ipyagent_sessions import events as ev
from ipyagent_sessions import folding
from ipyagent_sessions import payloads as p
from ipyagent_sessions.decoding import from_json
from ipyagent_sessions.errors import UPDATE, DamageError, IpyagentError, LeaseHeld, NewerFormat, NotFound, UsageError
from ipyagent_sessions.lifecycle import ENDED, TaskState, effective
from ipyagent_sessions.log import checkpoints, lease, live, segment_reader
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.blobs import Blobs
from ipyagent_sessions.log.layout import FORMAT, Layout
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.log.loading import Loaded, before_damage, read_state
from ipyagent_sessions.log.open_activities import follow
from ipyagent_sessions.log.reader import Reader
from ipyagent_sessions.place import ID, VERSION, Header, Parent, Place
from ipyagent_sessions.state import FORM, State

_STATES: Final = {"", *TaskState}


_WORKSPACE: Final = re.compile(rf"{ID}(/[^/\0]+)*")

PATIENCE_S: Final = 0.5
"""How long a taker waits for a lease that is held: a door needs it for a moment only."""
_FOLDED_AT_ONCE: Final = 200
"""Events that a fork folds to say what its beginning has cost: about a millisecond."""


class Session:
    """A session of a store.  Reading takes no lock and needs no kernel."""

    def __init__(self, place: Place, session_id: str) -> None:
        self.place = place
        self.id = session_id
        self.layout = Layout(place.sessions_folder / session_id)

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    @cached_property
    def header(self) -> Header:
        """What was written when the session was made.  Raises NotFound, DamageError or NewerFormat."""
        self.place.check_lineage(self.id, self._written)
        return self._written

    @cached_property
    def _written(self) -> Header:
        """The header, whatever its ancestors are."""
        try:
            body = self.layout.header.read_bytes().removeprefix(b"\xef\xbb\xbf")
        except FileNotFoundError:
            raise NotFound(f"there is no session {self.id} in {self.place.root}", hint="list them with: ipyagent ls") from None
        try:
            header = from_json(body, Header)
        except msgspec.DecodeError as error:
            raise DamageError(f"session {self.id}: session.json is damaged: {error}", hint="restore it from a copy") from error
        if header.format > FORMAT:
            raise NewerFormat(
                f"session {self.id} has format {header.format}, this version reads up to {FORMAT}",
                hint=UPDATE,
            )
        return header

    @cached_property
    def first(self) -> int:
        """The first seq that is this session's own."""
        return self.header.parent.seq + 1 if self.header.parent else 1

    @cached_property
    def parent(self) -> Session | None:
        """The session this one was forked from."""
        return Session(self.place, self.header.parent.session) if self.header.parent else None

    @cached_property
    def native(self) -> bool:
        """Whether this session and all its ancestors were made in this store.

        What came from elsewhere is in replay: nothing is appended to it, and nothing of it or of its forks is unpickled.
        """
        header = self.header
        return header.store == self.place.id and not header.foreign and (self.parent is None or self.parent.native)

    @cached_property
    def workspace_name(self) -> str | None:
        """The workspace that this session works in, as its header or an ancestor's names it; None where the notebook is."""
        if self.header.workspace is not None:
            return self.header.workspace
        return self.parent.workspace_name if self.parent is not None else None

    @property
    def workspace(self) -> Path | None:
        """The folder of an isolated fork, None for a session that works where the notebook is.

        Raises UsageError when it is gone: what was isolated must not go on in the notebook's folder.
        """
        name = self.workspace_name
        if name is None or not self.native:
            return None
        found = self.place.workspaces_folder / name
        if _WORKSPACE.fullmatch(name) is None or ".." in name.split("/") or not found.is_dir():
            raise UsageError(
                f"the workspace of session {self.id} is not there: {found}", hint="fork its parent again with --isolate"
            )
        return found

    @property
    def in_replay(self) -> bool:
        """Whether it was made elsewhere, so that nothing is added to it; a fork of it is not in replay."""
        return self.header.store != self.place.id

    def refuse_foreign(self) -> None:
        """Raises UsageError for a session that was not made in this store; a fork of it may be written to."""
        if self.in_replay:
            raise UsageError(
                f"session {self.id} was not made in this store: it is in replay, and nothing is added to it",
                hint=f"to go on from it, fork it: fork {self.id}, then resume the fork",
            )

    @cached_property
    def blobs(self) -> Blobs:
        folders: list[Path] = []
        ancestor = self.parent
        while ancestor is not None:
            folders.append(ancestor.layout.blobs)
            ancestor = ancestor.parent
        return Blobs(self.layout.blobs, tuple(folders))

    # Reading

    def events(
        self,
        after: int = 0,
        until: int | None = None,
        *,
        lineage: bool = True,
        missing: list[tuple[int, int]] | None = None,
    ) -> Iterator[ev.Event]:
        """The events with `after` < seq <= `until`, those inherited from ancestors first unless `lineage` is false.

        What is damaged or missing between them is added to `missing`, as pairs of first and last.
        """
        parent = self.header.parent
        if lineage and parent is not None and after < parent.seq and self.parent is not None:
            end = min(parent.seq, until) if until is not None else parent.seq
            yield from self.parent.events(after, end, missing=missing)
        if until is None or until >= self.first:
            reader = Reader(self.layout, self.first)
            yield from reader.events(max(after, self.first - 1), until)
            if missing is not None:
                missing += reader.missing

    def last_seq(self) -> int:
        """The newest seq on disk."""
        return Reader(self.layout, self.first).last_seq()

    def event(self, seq: int) -> ev.Event:
        """The event of that seq.  Raises NotFound, and DamageError when it is damaged or missing."""
        for event in self.events(seq - 1, seq):
            return event
        last = self.last_seq()
        if 0 < seq < last:
            raise DamageError(
                f"session {self.id}: event {seq} is damaged or missing",
                hint=f"ipyagent verify {self.id} says where; restore the file from a copy",
            )
        raise NotFound(f"session {self.id} has no event {seq}", hint=f"it ends at {last}")

    def loaded(self, until: int | None = None) -> Loaded:
        """The state after `until` (default: the end), and how it was found.  Raises DamageError, NewerFormat."""
        parent = self.header.parent
        if parent is not None and self.parent is not None:
            if until is not None and until <= parent.seq:
                return self.parent.loaded(until)
            return read_state(self.layout, self.first, lambda: self._inherited(parent), until)
        return read_state(self.layout, self.first, None, until)

    def _inherited(self, parent: Parent) -> State:
        assert self.parent is not None
        at_fork = self.parent.event(parent.seq)
        if ev.digest(at_fork) != parent.hash:
            raise DamageError(
                f"session {self.id} was forked from {parent.session} at {parent.seq}, and that event has changed",
                hint="restore the parent's files from a copy",
            )
        return self.parent.loaded(parent.seq).state

    def state(self, at: int | None = None) -> State:
        """The state after event `at` (default: the newest).  Raises NotFound when there is no such event."""
        state = self.loaded(at).state
        if at is not None and state.seq != at:
            raise NotFound(f"session {self.id} has no event {at}", hint=f"it ends at {self.last_seq()}")
        return state

    def held(self) -> bool:
        """Whether somebody may append now, as far as can be seen without taking a lock.

        Who holds the lease to change files beside the log runs no task: a lost one is shown as lost meanwhile.
        """
        holder = lease.holding(self.layout)
        return holder is not None and not holder.beside

    def summary(self) -> live.Summary:
        """What a list shows: `summary.json`, with the progress of a running task from `live.json`.

        When the file is missing or of a newer form, or its task was lost, it is made anew from the log.  Raises
        NewerFormat.
        """
        with contextlib.suppress(DamageError, NotFound):
            _ = self._written  # what a newer version wrote is not shown as if this one knew it
        found = live.read_summary(self.layout)
        running = found is not None and found.state == TaskState.RUNNING
        if found is None or found.form > FORM or found.state not in _STATES or (running and not self.held()):
            return summarise(self.id, self.state())
        now = self.live() if running else None
        if now is not None and now.task_id == found.task_id:
            found.done, found.total = now.done, now.total
        return found

    def last_known(self) -> live.Summary | None:
        """What is known of a session that cannot be read to its end: its newest summary, else what the events before the
        damage say.  None when there is neither."""
        found = live.read_summary(self.layout)
        if found is not None and found.form <= FORM and found.state and found.state in _STATES:
            return found
        with contextlib.suppress(IpyagentError, OSError):
            parent = self.header.parent
            start = None if parent is None else functools.partial(self._inherited, parent)
            state = before_damage(self.layout, self.first, start)
            return summarise(self.id, state) if state.seq else found
        return found

    def effective_state(self, summary: live.Summary | None = None) -> str:
        """What a person is shown: the logged state, or "lost" when it says running and nobody holds the lease."""
        found = summary or self.summary()
        if not found.state:
            return "empty"
        return effective(TaskState(found.state), held=found.state != TaskState.RUNNING or self.held())

    def silence(self) -> float | None:
        """Seconds since the holder's last sign of life, once these are more than two heartbeats; None before that.

        Of a running task it means that its process is stopped, or cannot write.
        """
        return lease.silence(self.layout)

    def live(self) -> live.Live | None:
        """What is going on now, None when nothing wrote it yet."""
        return live.read_live(self.layout)

    def checkpoints(self) -> list[checkpoints.Info]:
        """The snapshots that exist, verified."""
        return checkpoints.listing(self.layout)

    def payload(self, event: ev.Event) -> dict[str, Any]:
        """The payload of an event with its blobs filled in: `result_blob` becomes `result`, and so on."""
        body = ev.payload_of(event)
        for key in [k for k in body if k.endswith("_blob") and body[k]]:
            data = self.blobs.read(body[key])
            try:
                body[key.removesuffix("_blob")] = from_json(data)
            except msgspec.DecodeError:
                body[key.removesuffix("_blob")] = data.decode("utf-8", "replace")
        return body  # type: ignore[no-any-return]  # payloads are objects

    # Writing

    def append(self, who: Holder, *, force: bool = False) -> Appender:
        """Take the lease and begin a new epoch.  Raises LeaseHeld, DamageError, and UsageError for an imported session.

        `force` takes over from a holder whose process is stopped; it is fenced from then on.
        """
        self.refuse_foreign()
        age = lease.heartbeat_age(self.layout)
        stale = age is None or age >= 2 * lease.HEARTBEAT
        force = force and stale and self.held()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return Appender.open(
                    self.layout,
                    who,
                    self.loaded,
                    first=self.first,
                    blobs=self.blobs,
                    clock=self.place.clock,
                    disk=self.place.disk,
                    version=VERSION,
                    force=force,
                )
            except LeaseHeld:  # perhaps by a door that only logs a request, or by a task that is just closing
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def fork(self, at: int | None = None, *, direction: str = "", title: str = "", workspace: str | None = None) -> Session:
        """A new session that shares the events up to `at` (default: the newest); this one is not changed.

        `workspace` names one of the store, in which the new session works (`effects.isolation`).

        Writes a header, one event and, where it is known at once, a summary, whatever the length.  Raises NotFound, and
        UsageError when an activity is open at `at`.
        """
        last = self.last_seq()
        seq = last if at is None else at
        if 0 < seq < self.first and self.parent is not None:
            return self.parent.fork(seq, direction=direction, title=title, workspace=workspace)
        self.check_fork(seq)
        self.layout.sync_tail()
        event = self.event(seq)
        point = Parent(self.id, seq, ev.digest(event))
        mine = self.summary()
        named = ev.title(title) or f"{ev.title(mine.title.removesuffix(' (fork)'), len(' (fork)'))} (fork)"
        body = p.SessionForked(self.id, seq, point.hash, ev.clean(direction)[0], named, workspace is not None)
        child_id, first = self.place.new_session(
            "SessionForked", body, notebook=self.header.notebook, parent=point, with_task=True, workspace=workspace
        )
        child = Session(self.place, child_id)
        if seq == last and mine.state in ENDED:
            known = msgspec.structs.replace(
                mine,
                session_id=child_id,
                seq=first.seq,
                title=named,
                created_at=first.timestamp,
                updated_at=first.timestamp,
                run_key="",
                parent=self.id,
            )
            live.write_summary(child.layout, known, self.place.disk)
        elif seq <= _FOLDED_AT_ONCE:  # what a longer history had cost by then is made from the log by who looks
            with contextlib.suppress(DamageError, NewerFormat):
                state = self.loaded(seq).state
                folding.apply(state, first)
                live.write_summary(child.layout, summarise(child_id, state), self.place.disk)
        return child

    def check_fork(self, seq: int) -> None:
        """Raises NotFound, and UsageError when an activity is open at `seq`: there can be no fork there."""
        last = self.last_seq()
        if seq <= 0 or seq > last:
            raise NotFound(f"session {self.id} has no event {seq}", hint=f"it has events 1 to {last}")
        if seq < self.first and self.parent is not None:
            return self.parent.check_fork(seq)
        opened = self.open_activities(seq)
        if opened:
            raise UsageError(
                f"event {seq} lies inside {', '.join(sorted(opened)[:3])}, which had no result yet",
                hint="fork at an event where no activity is open; ipyagent checkpoints lists good ones",
            )
        return None

    def open_activities(self, seq: int) -> set[str]:
        """The ids of the activities that were open right after `seq`.  Reads one row group or the tail, at any length."""
        opened: set[str] = set()
        for segment in self.layout.segments():
            if segment.first <= seq <= segment.last:
                return segment_reader.opened_after(segment, seq)
        sealed = max((s.last for s in self.layout.segments()), default=self.first - 1)
        if sealed >= self.first:
            opened = self.open_activities(sealed)
        for event in Reader(self.layout, self.first).events(after=sealed, until=seq):
            follow(opened, event.event_type, event.activity_id)
        return opened


def summarise(session_id: str, state: State) -> live.Summary:
    """The summary of a state.  A fork in which nothing happened yet has no run key: the same cell goes on with its parent."""
    system, run = state.system_state, state.execution_state
    untouched = bool(state.lineage) and state.seq == state.lineage[-1][1] + 1
    needs = sum(a.answer is None for a in run.approvals.values())
    return live.Summary(
        session_id,
        state.seq,
        state.title or system.title or system.target,
        state.notebook,
        state.created_at,
        state.updated_at,
        system.task_id,
        system.target,
        "" if untouched else system.run_key,
        system.status.value if system.status else "",
        system.reason,
        system.detail,
        run.done,
        run.total,
        run.failed,
        needs,
        state.begun,
        round(state.cost_usd, 6),
        state.input_tokens,
        state.output_tokens,
        state.lineage[-1][0] if state.lineage else None,
        system.model,
        system.kind,
        FORM,
    )
