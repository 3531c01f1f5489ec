"""What runs in a process that is going to be killed: a holder of the lease, or a door that asks something of one.

The engine is the real one.  Only its sizes are changed, so that journals are rotated and sealed and snapshots taken all the
time, and two calls are watched: what `Journal.flush` promised by returning is noted as acknowledged, by seq and checksum.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from tests.kill.witness import Trap, Witness
from tests.kill.workload import errands

from ipyagent_sessions.config import CheckpointPolicy
from ipyagent_sessions.errors import IpyagentError
from ipyagent_sessions.log import appender, checkpoints, journal, lease, scribe, sealing
from ipyagent_sessions.log.appender import Durability
from ipyagent_sessions.log.lease import this_process
from ipyagent_sessions.run import control, outage, pulse, ticker, triggers
from ipyagent_sessions.run.launch import Origin, launch, resume_task
from ipyagent_sessions.run.task import RunOptions
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FaultyDisk, wait_until

HEARTBEAT_S: Final = 0.3
CHILD_S: Final = 90.0
"""Seconds after which a child gives up by itself."""

_SIZES: Final[tuple[tuple[Any, str, Any], ...]] = (
    (journal, "SEAL_EVENTS", 16),
    (journal, "SEAL_BYTES", 24 * 1024),
    (sealing, "SEGMENT_EVENTS", 12),
    (appender, "REST_EVENTS", 24),
    (scribe, "WINDOW", 0.03),
    (triggers, "MATERIALISE_S", 0.02),
    (triggers, "VOLUME", 30),
    (checkpoints, "KEEP_UNNAMED", 2),
    (ticker, "TICK_S", 0.02),
    (pulse, "_LIVE_S", 0.1),
    (pulse, "HEARTBEAT", HEARTBEAT_S),
    (lease, "HEARTBEAT", HEARTBEAT_S),
    (outage, "_FIRST_S", 0.01),
)


_APPEND, _FLUSH = journal.Journal.append, journal.Journal.flush


class Spec(Struct, omit_defaults=True):
    """What a child is to do.  `seam` and `at` say where it kills (or stops) itself; `seam` may also be one of `PLACES`,
    and those of an irreversible effect count only the activity `of`.
    With `gate` it waits until a file of that name exists, so that several can begin together."""

    store: str
    world: str
    seed: int = 0
    role: Literal["same call", "resume", "take over", "door"] = "same call"
    session: str | None = None
    durability: Durability = "sync"
    headless: bool = False
    seam: str = ""
    at: int = 1
    signal: int = int(signal.SIGKILL)
    kernel: str | None = None
    answer: dict[str, Any] = {}
    of: str = ""
    gate: str = ""


TORN: Final = "inside journal write"
INTENT: Final = "before irreversible effect"
EFFECT: Final = "after irreversible effect"
PLACES: Final = (TORN, INTENT, EFFECT)


class KillingDisk(FaultyDisk):
    """Also kills in the middle of a write, so that a part of it is on the disk."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self._tear = spec.at if spec.seam == TORN else 0
        if spec.seam and spec.seam not in PLACES:
            # to this thread: a stop that any thread may take comes to this one some instructions later
            self.do(spec.seam, lambda: signal.pthread_kill(threading.get_ident(), spec.signal), at=spec.at)

    def append(self, fd: int, data: bytes) -> None:
        self._tear -= 1
        if self._tear == 0:
            os.write(fd, data[: max(1, len(data) * 2 // 3)])
            os.kill(os.getpid(), signal.SIGKILL)
        super().append(fd, data)


def main(spec: Spec) -> str:
    """Do what `spec` says; returns how it ended, if it does."""
    witness = Witness(spec.world)
    witness.note("opened", role=spec.role)
    if spec.seam in (INTENT, EFFECT):
        Witness.after = Trap("begin" if spec.seam == INTENT else "effect", spec.of, spec.at)
    shrink()
    _watch(witness)
    try:
        ended = _door(spec) if spec.role == "door" else _hold(spec, witness)
    except IpyagentError as error:
        ended = f"{type(error).__name__}: {error}"
    witness.note("ended", how=ended)
    return ended


def main_of(text: str) -> str:
    """`main` of a spec as JSON: what a kernel is told to run."""
    return main(msgspec.json.decode(text, type=Spec))


def shrink() -> None:
    """Make the engine's sizes and times small, in this process."""
    for module, name, value in _SIZES:
        setattr(module, name, value)


def _hold(spec: Spec, witness: Witness) -> str:
    store = Store(spec.store, disk=KillingDisk(spec))
    options = RunOptions(
        spec.durability,
        actor="user:harness",
        headless=spec.headless,
        policy=CheckpointPolicy(events=("external_api_called",)),
        recover=2,
    )
    origin = Origin("errands.ipynb", "c1", this_process(kernel=spec.kernel, by="campaign"))
    if spec.role == "same call":
        handle = launch(store, errands, (spec.seed, spec.world), options=options, origin=origin).handle
    else:
        assert spec.session is not None
        if spec.gate:
            wait_until(lambda: os.path.exists(spec.gate), timeout=CHILD_S, what="the gate")
        handle = resume_task(
            store.session(spec.session), errands, options=options, origin=origin, take_over=spec.role == "take over"
        )
    assert handle is not None
    witness.note("holds", session=handle.session.id)
    if not handle.wait(CHILD_S):
        return "hung"
    if handle.trouble is not None:
        return f"{type(handle.trouble).__name__}: {handle.trouble}"
    assert handle.outcome is not None
    return f"{handle.outcome.state}: {handle.outcome.reason or handle.outcome.error or ''}"


def _door(spec: Spec) -> str:
    assert spec.session is not None
    session = Store(spec.store, disk=KillingDisk(spec)).session(spec.session)
    control.request(session, "answer", actor="user:door", **spec.answer)
    return "answered"


def _watch(witness: Witness) -> None:
    """Note what each flush has made durable, after it has returned."""
    waiting: list[tuple[int, bytes]] = []
    lock = threading.Lock()

    def watched_append(self: journal.Journal, seq: int, line: bytes, blobs: dict[str, bytes] | None = None) -> None:
        with lock:
            waiting.append((seq, line))
        _APPEND(self, seq, line, blobs)

    def watched_flush(self: journal.Journal) -> None:
        _FLUSH(self)
        with lock:
            done = [w for w in waiting if w[0] <= self.durable_seq]
            waiting[: len(done)] = []
        if done:
            witness.note("acked", session=self.file.path.parent.name, events=[_line(seq, line) for seq, line in done])

    for name, function in (("append", watched_append), ("flush", watched_flush)):
        setattr(journal.Journal, name, function)


def _line(seq: int, line: bytes) -> list[Any]:
    event = msgspec.json.decode(line)
    return [seq, event["c"], event["event_type"], event.get("activity_id")]
