"""What a test of one chosen moment starts from: a store, a witness, and children that work on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace
from tests.kill import looks
from tests.kill.child import Spec
from tests.kill.nursery import Forked, Nursery
from tests.kill.witness import Witness
from tests.kill.workload import ANSWERS, FAULTS

from ipyagent_sessions.errors import ControlRefused
from ipyagent_sessions.run import control
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import wait_until

WAIT_S: Final = 40.0
SEED: Final = 1


class Bench:
    """A store in `folder`, whose witness is in `beside` (by default the same); nothing is away or short in it."""

    def __init__(self, folder: Path, nursery: Nursery, *, beside: Path | None = None) -> None:
        self.folder = folder
        self.witness = Witness(str((beside or folder) / "witness.jsonl"))
        for kind, _ in FAULTS:  # the outages are over: one run comes as far as the first question
            self.witness.note("outage", kind=kind)
        self._nursery = nursery

    @property
    def store(self) -> Store:
        return Store(self.folder / "store")

    def spec(self, **what: Any) -> Spec:
        return replace(Spec(str(self.folder / "store"), self.witness.path, SEED), **what)

    def start(self, **what: Any) -> Forked:
        return self._nursery.start(self.spec(**what))

    def run(self, **what: Any) -> int:
        """Start a child and wait for its end."""
        status = self.start(**what).wait(WAIT_S)
        assert status is not None, "the child hangs"
        return status

    def sessions(self) -> list[Session]:
        """Those that have a task."""
        if not (self.folder / "store" / "store.json").exists():
            return []
        return [s for s in looks.with_header(self.store) if s.state().system_state.task_id is not None]

    def session(self) -> Session:
        (found,) = self.sessions()
        return found

    def waiting(self) -> dict[str, str]:
        """The questions that are open, by approval id."""
        approvals = self.session().state().execution_state.approvals
        return {i: a.question for i, a in approvals.items() if a.answer is None}

    def until_asked(self) -> None:
        wait_until(lambda: self.sessions() and self.waiting(), timeout=WAIT_S, what="an open question")

    def answer(self) -> None:
        """Answer the questions that are open, as the campaign does."""
        for approval_id, question in self.waiting().items():
            session = self.session()
            control.request(
                session,
                "answer",
                actor="user:bench",
                approval_id=approval_id,
                answer=ANSWERS[question],
                digest=session.state().execution_state.approvals[approval_id].digest,
            )

    def finish(self, child: Forked | None = None) -> None:
        """Answer and go on until the task has ended, in `child` as long as it lives."""

        def step() -> bool:
            nonlocal child
            if self.session().state().system_state.ended_at is not None:
                return child is None or child.wait(WAIT_S) is not None
            if child is None or child.wait(0.02) is not None:
                child = self.start(role="resume", session=self.session().id)
            try:
                self.answer()
            except ControlRefused:
                return False
            return False

        wait_until(step, timeout=2 * WAIT_S, what="the end of the task")

    def said(self) -> list[str]:
        """How the children ended, in their own words."""
        return [n["how"] for n in self.witness.notes("ended")]
