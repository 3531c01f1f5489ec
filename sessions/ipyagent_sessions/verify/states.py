"""The state, folded again from the first event, against each checkpoint and the summary.

Behind missing events nothing can be folded; the fold goes on from the next checkpoint that verifies by itself.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Final

from msgspec import Struct

from ipyagent_sessions import folding
from ipyagent_sessions import state as states
from ipyagent_sessions.config import LAST_EVENTS
from ipyagent_sessions.errors import UPDATE, DamageError, IpyagentError, NewerFormat
from ipyagent_sessions.events import Event
from ipyagent_sessions.log import checkpoints, live
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.state import State
from ipyagent_sessions.verify.finding import COPY, Finding, level_of

_SHOWN: Final = ("session_id", "title", "task_id", "state", "tasks", "needs_you", "failed", "cost_usd", "input_tokens")
"""What of a summary is compared with the state at its seq."""


class Rebuilt(Struct):
    """A checkpoint as the log gives it: what `checkpoints.write_again` takes."""

    event: Event
    body: bytes
    recent: list[bytes]


class Fold:
    """Folds the events of a session one after another, and compares on the way."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.state: State | None = State()
        self.findings: list[Finding] = []
        self.wrong: dict[int, Rebuilt] = {}
        self.checked = 0
        self._files = set(checkpoints.sequence(session.layout))
        self._summary = live.read_summary(session.layout)
        self._recent: deque[bytes] = deque(maxlen=LAST_EVENTS)

    def take(self, event: Event, body: bytes) -> None:
        """The next event, and its canonical bytes."""
        own = event.seq >= self.session.first
        if self.state is not None and event.seq != self.state.seq + 1:
            self.state = None  # what is missing is named by who reads the files
        if self.state is not None:
            self._apply(self.state, event)
        if own and event.seq in self._files:
            self._checkpoint(event)
        if own and self.state is not None and self._summary is not None and self._summary.seq == event.seq:
            self._compare_summary(self.state, self._summary)
        self._recent.append(body)

    def _apply(self, state: State, event: Event) -> None:
        try:
            folding.apply(state, event)
        except (NewerFormat, DamageError) as error:
            self.state = None
            means = "the state from there on cannot be folded"
            level = level_of(error)
            todo = error.hint if level == "newer" else COPY
            self.findings.append(Finding(self.session.id, "log", f"event {event.seq}", error.message, means, todo, level))

    def _checkpoint(self, event: Event) -> None:
        layout = self.session.layout
        self._files.discard(event.seq)
        self.checked += 1
        if event.event_type != "CheckpointCreated":
            means = "it may be used all the same, where it holds the state that the log gives"
            self.findings.append(self._finding(event.seq, f"that event is {event.event_type}", means, "delete it"))
            return
        try:
            stored, _ = checkpoints.load(layout, event.seq)
        except NewerFormat as error:
            form = checkpoints.form_of(layout, event.seq)
            if form is not None and form < states.FORM:
                means = "it is not used; the state is folded from the log"
                self._wrong(event, error.message, means, older=True)
            else:
                todo = UPDATE
                self.findings.append(self._finding(event.seq, error.message, "it is not used here", todo, note=True))
            return
        except (DamageError, OSError) as error:
            what = error.message if isinstance(error, IpyagentError) else str(error)
            self._wrong(event, what, "it is not used; the state is folded from the log")
            return
        if self.state is None:
            self.state = stored
        elif states.encode(stored) != states.encode(self.state):
            self._wrong(event, "it differs from the state that the log gives", "a resume from it would go on wrongly")

    def _wrong(self, event: Event, what: str, means: str, *, older: bool = False) -> None:
        if self.state is None:
            self.findings.append(self._finding(event.seq, what, means, "delete it", note=older))
            return
        self.wrong[event.seq] = Rebuilt(event, states.encode(self.state), list(self._recent))
        todo = "upgrade makes it anew" if older else "verify --repair makes it anew"
        self.findings.append(self._finding(event.seq, what, means, todo, note=older, derived=True))

    def _finding(self, seq: int, what: str, means: str, todo: str, *, note: bool = False, derived: bool = False) -> Finding:
        file = f"checkpoints/{checkpoints.path_of(self.session.layout, seq).name}"
        return Finding(self.session.id, file, f"event {seq}", what, means, todo, "note" if note else "damage", derived)

    def end(self, last: int, *, held: bool) -> None:
        """After the last event, `last`."""
        for seq in sorted(self._files):
            if held and seq > last:
                continue
            what = f"the log ends at event {last}" if seq > last else "the log does not hold its event"
            self.findings.append(
                self._finding(seq, what, "it claims what never became durable", "delete it, or restore the log")
            )
        if not held and self.state is not None:
            self._end_of_summary(self.state)

    @property
    def told(self) -> int:
        """The event that the summary was made at, 0 without one."""
        return self._summary.seq if self._summary is not None else 0

    def _compare_summary(self, state: State, found: live.Summary) -> None:
        wanted = summarise(self.session.id, state)
        differs = [name for name in _SHOWN if getattr(found, name) != getattr(wanted, name)]
        if differs:
            told = ", ".join(f"{n}: {getattr(found, n)!r} instead of {getattr(wanted, n)!r}" for n in differs[:3])
            self._bad_summary(f"event {found.seq}", told, "lists show the wrong thing")

    def _end_of_summary(self, state: State) -> None:
        path, found = self.session.layout.summary, self._summary
        status = state.system_state.status
        if found is None:
            there = os.path.lexists(path)
            what = "it cannot be read" if there else "it is missing"
            self._bad_summary("", what, "lists make it from the log, which is slower", note=not there)
        elif found.seq > state.seq:
            self._bad_summary(
                f"event {found.seq}", f"the log ends at event {state.seq}", "lists show what the log does not hold"
            )
        elif found.state != (status.value if status else ""):
            what = f"it says {found.state or 'no task'}, the log says {status or 'no task'} since"
            self._bad_summary(f"event {found.seq}", what, "a crash came before it was written; lists are behind", note=True)

    def _bad_summary(self, place: str, what: str, means: str, *, note: bool = False) -> None:
        if any(f.file == "summary.json" for f in self.findings):
            return
        todo, level = "verify --repair makes it anew", "note" if note else "damage"
        self.findings.append(Finding(self.session.id, "summary.json", place, what, means, todo, level, True))  # type: ignore[arg-type]  # one of two
