"""A holder that is stopped, taken over and woken again: its lines are ignored and it promises nothing more (R253)."""

from __future__ import annotations

import signal

import psutil
import pytest
from tests.kill import looks
from tests.kill.bench import WAIT_S, Bench
from tests.kill.child import HEARTBEAT_S
from tests.kill.looks import Reference
from tests.kill.nursery import Forked

from ipyagent_sessions import payloads
from ipyagent_sessions.errors import LeaseHeld
from ipyagent_sessions.log import lease
from ipyagent_sessions.log.format import Damage, scan
from ipyagent_sessions.log.lease import this_process
from ipyagent_sessions.testing import wait_until

pytestmark = pytest.mark.timeout(180)
SLEEPS = ("before journal write", "after journal write", "before journal sync", "after journal sync")


@pytest.fixture(autouse=True)
def short_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "HEARTBEAT", HEARTBEAT_S)


def asleep(bench: Bench, seam: str, at: int) -> Forked:
    """A holder that has stopped at a seam, and has been silent for two heartbeats."""
    child = bench.start(seam=seam, at=at, signal=int(signal.SIGSTOP))
    wait_until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_STOPPED, timeout=WAIT_S, what="the holder stops")
    layout = bench.session().layout
    wait_until(lambda: _silent(lease.heartbeat_age(layout)), timeout=WAIT_S, what="two heartbeats pass")
    return child


def _silent(age: float | None) -> bool:
    """Whether a holder counts as stopped; one that stopped before its first heartbeat has none."""
    return age is None or age > 2 * HEARTBEAT_S


def wake(bench: Bench, child: Forked) -> int:
    """Let it go on to its end; returns how many notes there were before."""
    before = len(bench.witness.notes())
    child.signal(signal.SIGCONT)
    assert child.wait(WAIT_S) == 0
    return before


@pytest.mark.parametrize("seam", SLEEPS)
def test_what_a_woken_holder_writes_is_ignored_and_nothing_of_it_is_acknowledged(
    bench: Bench, seam: str, reference: Reference
) -> None:
    zombie = asleep(bench, seam, 14)
    session = bench.session()
    with pytest.raises(LeaseHeld, match=f"pid {zombie.pid} on"):
        session.append(this_process(by="no force"))
    cut = session.last_seq() + 1
    appender = session.append(this_process(by="taker"), force=True)
    appender.emit("AlarmRaised", payloads.AlarmRaised("test", "written by the new holder"))
    appender.barrier()
    log = list(session.events())

    before = wake(bench, zombie)

    woken = [n for n in bench.witness.notes()[before:] if n["pid"] == zombie.pid]
    assert [n["how"].partition(":")[0] for n in woken if n["w"] == "ended"] == ["lease lost"]
    assert [n for n in woken if n["w"] in ("acked", "effect")] == []
    assert list(session.events()) == log
    old = [j for j in session.layout.journals() if j.epoch < appender.epoch]
    written = [i[1].seq for j in old for i in scan(j.path.read_bytes(), j.path.name) if not isinstance(i, Damage)]
    if seam == "before journal write":
        assert max(written) >= cut, "the zombie wrote nothing, so that nothing was ignored"
    appender.close()
    bench.finish()
    assert looks.at_end(bench.store, bench.witness, "sync", reference) == []


@pytest.mark.parametrize("at", [8, 20, 32])
def test_a_task_that_was_taken_over_goes_on_to_its_end_beside_the_woken_holder(
    bench: Bench, at: int, reference: Reference
) -> None:
    zombie = asleep(bench, "before journal sync", at)
    session = bench.session()

    taker = bench.start(role="take over", session=session.id)
    wait_until(lambda: sum(n["w"] == "holds" for n in bench.witness.notes()) == 2, timeout=WAIT_S, what="the take-over")
    wake(bench, zombie)
    bench.finish(taker)

    assert any(how.startswith("lease lost") for how in bench.said())
    assert any(how.startswith("completed") for how in bench.said())
    assert looks.repeated_effects(bench.witness) == []
    assert [w for w in looks.at_end(bench.store, bench.witness, "sync", reference) if "executed again" not in w] == []
