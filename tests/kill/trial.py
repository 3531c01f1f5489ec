"""One run of the workload, killed again and again until it has ended, and looked at after each death."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import Struct
from tests.kill import looks
from tests.kill.child import Spec
from tests.kill.kernels import Kernel
from tests.kill.nursery import Nursery
from tests.kill.plan import ANY_TIME, WAITING, Death, Pool, Situation
from tests.kill.witness import Witness
from tests.kill.workload import ANSWERS

from ipyagent_sessions.errors import ControlRefused
from ipyagent_sessions.lifecycle import ENDED
from ipyagent_sessions.log import live
from ipyagent_sessions.log.appender import Durability
from ipyagent_sessions.log.reader import Reader
from ipyagent_sessions.payloads import HAPPENED, RUN_AGAIN
from ipyagent_sessions.run import control
from ipyagent_sessions.session import Session
from ipyagent_sessions.state import Approval, State
from ipyagent_sessions.store import Store

KILLED: Final = -9
CHILD_S: Final = 60.0
CHILDREN: Final = 60
"""More children than this in one trial mean that it does not get anywhere."""
HOPELESS: Final = 4
"""So many children one after another that end with the same error."""


class Child(Protocol):
    """A process of a trial, forked or a kernel."""

    def wait(self, timeout: float) -> int | None: ...
    def signal(self, number: int) -> None: ...
    def close(self) -> None: ...


class Happened(Struct, frozen=True):
    """A death that came to pass, and what was under way when it came."""

    row: str
    at: int
    trial: int
    host: str
    activities: int = 0
    irreversible: int = 0
    questions: int = 0
    files: int = 0


class Trial:
    """A store with one run, in `folder`.  `wrong` fills with what must not be, `deaths` with what was done to it."""

    def __init__(
        self,
        number: int,
        seed: int,
        folder: Path,
        nursery: Nursery,
        durability: Durability,
        *,
        kernel: bool = False,
        long_s: float = 0.6,
    ) -> None:
        self.durability: Durability = durability
        self.number, self.seed, self.kernel, self.long_s = number, seed, kernel, long_s
        folder.mkdir(parents=True)
        self.folder = folder
        self.witness = Witness(str(folder / "witness.jsonl"))
        self.rng = random.Random(f"{seed} {number}")
        self.deaths: list[Happened] = []
        self.wrong: list[str] = []
        self.ended: list[str] = []
        self.asked_people = 0
        self._nursery = nursery
        self._pool: Pool | None = None

    # What there is

    def store(self) -> Store:
        return Store(self.folder / "store")

    def session(self) -> Session | None:
        """The session of the run, None while no process has come so far."""
        if not (self.folder / "store" / "store.json").exists():
            return None
        store = self.store()
        found = [s for s in map(store.session, store.session_ids()) if s.layout.header.exists() and s.last_seq() > 1]
        return found[0] if found else None

    def _status(self) -> tuple[Session | None, State | None]:
        session = self.session()
        return session, session.state() if session is not None else None

    # Driving

    def go(self, pool: Pool | None, most: int) -> None:
        """Run it to its end; at most `most` deaths are drawn from `pool` before it is left in peace."""
        self._pool = pool
        for count in range(CHILDREN):
            session, state = self._status()
            if state is not None and state.system_state.status in ENDED:
                break
            death = self._draw(session) if count < most else None
            if death is None or not death.needs_quiet:
                self._answer_at_rest(session, state)
            if self._child(session, death) == KILLED:
                self._after_death()
            elif len(self.ended) >= HOPELESS and len(set(self.ended[-HOPELESS:])) == 1 and "Error" in self.ended[-1]:
                self.wrong.append(f"trial {self.number} does not get on: {self.ended[-1]}")
                break
        else:
            self.wrong.append(f"trial {self.number} does not end; its children said {self.ended[-3:]}")

    def _draw(self, session: Session | None) -> Death | None:
        if self._pool is None:
            return None
        tail = Reader(session.layout).tail() if session is not None else None
        now = Situation(session is None, tail is not None and tail.torn is not None, self.long_s)
        return self._pool.draw(self.rng, now, kernel=self.kernel)

    def _child(self, session: Session | None, death: Death | None) -> int:
        """Start a process that runs the task, and stay with it until it has ended."""
        spec = Spec(
            str(self.folder / "store"),
            self.witness.path,
            self.seed,
            durability=self.durability,
            headless=self.rng.random() < 0.25 and not (death and death.needs_quiet),
            seam=death.seam if death else "",
            at=death.at if death else 1,
            of=death.of if death else "",
        )
        if session is not None and self.rng.random() < 0.5:
            spec.role, spec.session = "resume", session.id
        child: Child
        if death is not None and death.kernel:
            child = kernel = Kernel(self.folder)
        else:
            kernel, child = None, self._nursery.start(spec)
        try:
            if kernel is not None:
                kernel.ready()
                kernel.run(spec)
            status = self._stay(child, death)
        finally:
            child.close()
        if status == KILLED and death is not None:
            self._note_death(death, "kernel" if death.kernel else "child")
        else:
            if death is not None and self._pool is not None:
                self._pool.give_back(death)
            self.ended += [str(n["how"]) for n in self.witness.notes("ended")[-1:]]
            if status != 0:
                self.wrong.append(f"a child of trial {self.number} ended with {status}; see {self._nursery.log}")
        return status

    def _stay(self, child: Child, death: Death | None) -> int:
        """Wait for the child's end, answer what it asks, kill it when its time has come."""
        begun = time.monotonic()
        looked: object = None
        while True:
            status = child.wait(0.004)
            if status is not None:
                return status
            elapsed = time.monotonic() - begun
            if elapsed > CHILD_S:
                self.wrong.append(f"a child of trial {self.number} hung for {CHILD_S:g} s")
                return self._kill(child)
            if death is not None and death.row == ANY_TIME and elapsed >= death.delay:
                return self._kill(child)
            waiting = self._waiting()
            if waiting is None or waiting == looked:
                continue
            looked = waiting
            if death is not None and death.row == WAITING:
                return self._kill(child)
            session, state = self._status()
            if session is not None and state is not None:
                self._answer(session, state, held=True)

    def _kill(self, child: Child) -> int:
        child.signal(9)
        status = child.wait(CHILD_S)
        if status is None:
            raise TimeoutError("a killed process does not end")
        return status

    def _waiting(self) -> object:
        """What changes when somebody asks for an answer; None when nobody does."""
        for path in (self.folder / "store" / "s").glob("*"):
            found = live.read_summary(Session(self.store(), path.name).layout)
            if found is not None and found.needs_you and found.state in ("suspended", "running"):
                return found.seq, found.needs_you
        return None

    # Answering

    def _answer_at_rest(self, session: Session | None, state: State | None) -> None:
        """Sometimes answer while nobody holds the lease."""
        if session is not None and state is not None and self.rng.random() < 0.6:
            self._answer(session, state, held=False)

    def _answer(self, session: Session, state: State, *, held: bool) -> None:
        for approval_id, asked in state.execution_state.approvals.items():
            if asked.answer is None:
                answer = self._truth(asked)
                death = self._pool.draw_door(self.rng, held=held) if self._pool is not None else None
                if death is not None:
                    self._killed_door(session, death, {"approval_id": approval_id, **answer})
                self._ask(session, approval_id, answer)

    def _truth(self, asked: Approval) -> dict[str, Any]:
        """What a person answers who has looked at the world."""
        if asked.kind != "outcome":
            return {"answer": ANSWERS[asked.question], "digest": asked.digest}
        self.asked_people += 1
        happened = {self.witness.happened(i.partition("/")[2]) for i in asked.about}
        if len(happened) > 1:
            self.wrong.append(f"one answer for calls of which some happened and some did not: {asked.about}")
        return {"answer": "approved", "choice": HAPPENED if True in happened else RUN_AGAIN, "digest": asked.digest}

    def _killed_door(self, session: Session, death: Death, answer: dict[str, Any]) -> None:
        spec = Spec(
            str(self.folder / "store"),
            self.witness.path,
            role="door",
            session=session.id,
            seam=death.seam,
            at=death.at,
            answer=answer,
        )
        door = self._nursery.start(spec)
        if self._stay_with_door(door) == KILLED:
            self._note_death(death, "door")
            self._after_death(running=True)
        elif self._pool is not None:
            self._pool.give_back(death)

    def _stay_with_door(self, door: Child) -> int:
        status = door.wait(CHILD_S)
        if status is None:
            self.wrong.append(f"a door of trial {self.number} hung")
            status = self._kill(door)
        return status

    def _ask(self, session: Session, approval_id: str, answer: dict[str, Any]) -> None:
        """Answer from here; whoever holds the lease logs it, and if nobody does, this process."""
        try:
            outcome = control.request(session, "answer", actor="user:harness", approval_id=approval_id, **answer)
            self.witness.note("asked", control=outcome.control_id)
        except ControlRefused as error:
            known = session.state().execution_state.approvals[approval_id]
            if known.answer != answer["answer"] or known.choice != answer.get("choice"):
                self.wrong.append(
                    f"trial {self.number}: {approval_id} was to be {answer} and is {known.answer} {known.choice}: {error}"
                )

    # Looking

    def _note_death(self, death: Death, host: str) -> None:
        session, state = self.look(self._status) or (None, None)
        execution = state.execution_state if state is not None else None
        opened = list(execution.active_activities.values()) if execution is not None else []
        self.deaths.append(
            Happened(
                death.row,
                death.at,
                self.number,
                host,
                len(opened),
                sum(a.effect == "irreversible" for a in opened),
                sum(a.answer is None for a in execution.approvals.values()) if execution is not None else 0,
                len(list(session.layout.root.rglob("*.tmp"))) if session is not None else 0,
            )
        )
        self.witness.note("killed", row=death.row, at=death.at)

    def _after_death(self, *, running: bool = False) -> None:
        found = self.look(lambda: looks.after_death(self.store(), self.witness, self.durability, running=running))
        self.wrong += [f"trial {self.number} after {self.deaths[-1].row} ({self.deaths[-1].at}): {w}" for w in found or ()]

    def look(self, look: Callable[[], Any]) -> Any:
        try:
            return look()
        except looks.UNREADABLE as error:
            self.wrong.append(f"trial {self.number} cannot be read: {type(error).__name__}: {error}")
            return None
