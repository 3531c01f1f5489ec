"""Epochs fence: who was taken over while he slept gets nothing acknowledged, and readers ignore what he writes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from ipyagent_sessions.errors import LeaseHeld, LeaseLost
from ipyagent_sessions.log import checkpoints, sealing
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.log.reader import Reader
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import Child, activities

ZOMBIE = """
import os, signal, sys
from ipyagent_sessions.store import Store
from ipyagent_sessions.errors import LeaseLost
from ipyagent_sessions.log.lease import this_process
from ipyagent_sessions.testing import activities

def note(text):
    appender.emit("Noted", {"text": text}, ignorable=True)

appender = Store(sys.argv[1]).session(sys.argv[2]).append(this_process(by="zombie"))
note("acknowledged before the sleep")
appender.acknowledge()
note("in memory when the sleep began")
print("asleep", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
for n in range(3):
    try:
        note("after the sleep")
        appender.acknowledge()
        print("acknowledged", appender.durable_seq, flush=True)
    except LeaseLost as error:
        print("lost", appender.durable_seq, error, flush=True)
appender.checkpoint("manual", "zombie")
activities(appender, 300)
try:
    appender.close(rest=True)
    print("closed", flush=True)
except LeaseLost:
    print("lost at the end", flush=True)
"""


@pytest.fixture
def zombie(store: Store, session: Session) -> Iterator[Child]:
    with Child(ZOMBIE, str(store.root), session.id) as child:
        child.expect("asleep")
        yield child


def take_over(session: Session, me: Holder) -> Appender:
    """Take the session over from a holder that has been silent for a minute."""
    for path in (session.layout.holder, session.layout.live):
        if path.exists():
            os.utime(path, (time.time() - 60, time.time() - 60))
    return session.append(me, force=True)


def texts(session: Session) -> list[str]:
    return [session.payload(e).get("text", "") for e in session.events() if e.event_type == "Noted"]


def let_it_finish(zombie: Child) -> list[str]:
    zombie.wake()
    said = [zombie.line() for _ in range(4)]
    assert zombie.wait() == 0
    return said


def test_a_sleeping_holder_is_not_overrun_without_force(session: Session, me: Holder, zombie: Child) -> None:
    with pytest.raises(LeaseHeld, match="zombie"):
        session.append(me)


def test_a_holder_that_was_heard_of_a_moment_ago_is_not_overrun_with_force_either(session: Session, me: Holder) -> None:
    old = session.append(me)
    with pytest.raises(LeaseHeld):
        session.append(me, force=True)
    old.emit("Noted", {"text": "goes on"}, ignorable=True)
    old.close()
    assert texts(session) == ["goes on"]


@pytest.mark.parametrize("successors", [1, 2, 5])
def test_a_woken_zombie_gets_nothing_acknowledged_however_many_held_the_lease_since(
    session: Session, me: Holder, zombie: Child, successors: int
) -> None:
    appender = take_over(session, me)
    for n in range(successors):
        if n:
            appender.close()
            appender = session.append(me)
        appender.emit("Noted", {"text": f"successor {n}"}, ignorable=True)
        appender.acknowledge()
    said = let_it_finish(zombie)
    assert [line.split()[:2] for line in said] == [["lost", "2"]] * 3 + [["lost", "at"]]
    wanted = ["acknowledged before the sleep", *(f"successor {n}" for n in range(successors))]
    assert texts(session) == wanted
    appender.emit("Noted", {"text": "after"}, ignorable=True)
    appender.close(rest=True)
    assert texts(session) == [*wanted, "after"]
    reader = Reader(session.layout)
    seqs = [e.seq for e in reader.events()]
    assert seqs == list(range(1, len(seqs) + 1))
    assert reader.missing == []


def test_a_zombie_leaves_no_snapshot_and_no_segment_behind(session: Session, me: Holder, zombie: Child) -> None:
    appender = take_over(session, me)
    activities(appender, 40)
    appender.acknowledge()
    before = sealing.sealed_until(session.layout)
    let_it_finish(zombie)
    assert checkpoints.sequence(session.layout) == []
    assert sealing.sealed_until(session.layout) == before == 0
    live = session.state()
    appender.close(rest=True)
    assert session.state() == live
    assert session.state().seq == 82


def test_a_zombie_that_awakes_after_its_log_was_sealed_away_changes_nothing(
    session: Session, me: Holder, zombie: Child
) -> None:
    for n in range(3):
        appender = take_over(session, me) if n == 0 else session.append(me)
        activities(appender, 20)
        appender.close(rest=True)
    before = [(e.seq, e.event_type, bytes(e.payload)) for e in session.events()]
    let_it_finish(zombie)
    assert [(e.seq, e.event_type, bytes(e.payload)) for e in session.events()] == before
    again = session.append(me)
    assert again.state.seq == before[-1][0]
    again.close()


def test_a_taken_over_appender_in_this_process_raises_on_each_door(session: Session, me: Holder) -> None:
    old = session.append(me)
    old.emit("Noted", {"text": "kept"}, ignorable=True)
    old.acknowledge()
    new = take_over(session, me)
    old.emit("Noted", {"text": "ignored"}, ignorable=True)
    for door in (old.acknowledge, old.barrier, old.close):
        with pytest.raises(LeaseLost, match="taken over"):
            door()
    new.emit("Noted", {"text": "new"}, ignorable=True)
    new.close()
    assert texts(session) == ["kept", "new"]


def test_a_fenced_holder_does_not_give_the_new_one_s_lease_away(session: Session, me: Holder) -> None:
    old = session.append(me)
    new = take_over(session, me)
    old.abandon()
    assert session.held()
    with pytest.raises(LeaseHeld):
        session.append(me)
    new.close()


def test_what_a_fenced_flush_wrote_is_not_called_durable(session: Session, me: Holder) -> None:
    old = session.append(me)
    take_over(session, me).close()
    old.checkpoint("manual", "never")
    with pytest.raises(LeaseLost):
        old.acknowledge()
    assert old.durable_seq == 1
    old.abandon()
    assert checkpoints.sequence(session.layout) == []
