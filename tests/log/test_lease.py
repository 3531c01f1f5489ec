"""One writer at a time: the lease, who is named, and when it is free again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import LeaseHeld
from ipyagent_sessions.log import lease, live
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.log.loading import Loaded
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import Child, wait_until

HOLD = """
import sys, time
from ipyagent_sessions.store import Store
from ipyagent_sessions.log.lease import this_process
appender = Store(sys.argv[1]).session(sys.argv[2]).append(this_process(by="the other kernel"))
appender.emit("Noted", {}, ignorable=True)
appender.acknowledge()
print("holding", flush=True)
"""

RACE = """
import sys
from ipyagent_sessions.store import Store
from ipyagent_sessions.errors import LeaseHeld
from ipyagent_sessions.log.lease import this_process
session = Store(sys.argv[1]).session(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
try:
    appender = session.append(this_process())
except LeaseHeld as error:
    print("held", error, flush=True)
else:
    print("won", flush=True)
    sys.stdin.readline()
    appender.close()
"""


@pytest.fixture
def holder(store: Store, session: Session) -> Iterator[Child]:
    with Child(HOLD + "time.sleep(600)", str(store.root), session.id) as child:
        child.expect("holding")
        yield child


def test_the_second_process_is_told_who_holds_the_session(session: Session, me: Holder, holder: Child) -> None:
    with pytest.raises(LeaseHeld, match=f"the other kernel .pid {holder.pid} on ") as raised:
        session.append(me)
    assert "approve work from here" in raised.value.hint
    assert session.held()
    assert [e.event_type for e in session.events()] == ["SessionCreated", "Noted"], "reading needs no lease"


def test_a_second_appender_in_the_same_process_is_refused_too(session: Session, me: Holder) -> None:
    appender = session.append(me)
    with pytest.raises(LeaseHeld, match=rf"pid {os.getpid()}"):
        session.append(me)
    appender.close()
    session.append(me).close()


def test_the_holder_is_named_while_it_still_reads_its_log(
    session: Session, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals: list[LeaseHeld] = []
    whole = Session.loaded

    def read(of: Session) -> Loaded:
        with pytest.raises(LeaseHeld, match=rf"pid {os.getpid()} on ") as raised:
            lease.acquire(of.layout, me, now=0.0)
        refusals.append(raised.value)
        return whole(of)

    monkeypatch.setattr(Session, "loaded", read)
    session.append(me).close()
    assert len(refusals) == 1


def test_of_a_holder_without_a_name_it_is_not_said_that_it_is_silent(
    session: Session, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_NAMED_S", 0.0)
    session.layout.live.write_bytes(b"{}")  # of one who is gone
    os.utime(session.layout.live, (1.0, 1.0))
    held = lease.acquire(session.layout, me, now=0.0)
    with pytest.raises(LeaseHeld, match="held by another process;") as raised:
        lease.acquire(session.layout, me, now=0.0)
    assert "--take-over" not in raised.value.hint
    held.release()


def test_who_changes_files_beside_the_log_is_named_and_no_task_is_said_to_go_on(session: Session, me: Holder) -> None:
    with lease.held(session.layout, "delete", now=0.0, disk=session.place.disk):
        with pytest.raises(LeaseHeld, match=rf"is held by delete .pid {os.getpid()} on ") as raised:
            session.append(me)
        assert raised.value.hint == "try again when it is done"
    assert lease.read_holder(session.layout) is None
    session.append(me).close()


def test_a_lost_task_is_shown_as_lost_while_files_beside_the_log_are_changed(
    store: Store, session: Session, me: Holder
) -> None:
    appender = session.append(me)
    appender.emit("TaskQueued", p.TaskQueued("m:f"), task_id="t1")
    appender.emit("TaskStarted", p.TaskStarted(), task_id="t1")
    appender.close()
    live.write_summary(session.layout, summarise(session.id, session.state()), session.place.disk)
    with lease.held(session.layout, "upgrade", now=0.0, disk=session.place.disk):
        assert (session.held(), session.effective_state()) == (False, "lost")
        assert store.sql("select effective_state as e from sessions").rows() == [{"e": "lost"}]


def test_who_changes_files_beside_the_log_is_not_taken_over_however_silent_it_is(session: Session, me: Holder) -> None:
    with lease.held(session.layout, "delete", now=0.0, disk=session.place.disk):
        os.utime(session.layout.holder, (1.0, 1.0))
        with pytest.raises(LeaseHeld, match="is held by delete ") as raised:
            session.append(me, force=True)
        assert "silent" not in str(raised.value)
        assert "--take-over" not in raised.value.hint


def test_of_processes_that_start_at_once_exactly_one_wins(store: Store, session: Session) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(store.root), session.id], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        answers = [child.stdout.readline() for child in children if child.stdout is not None]
    finally:
        for child in children:
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()
    assert sorted(a.split()[0] for a in answers) == ["held", "held", "held", "won"]


def test_threads_that_start_at_once_get_one_lease(session: Session, me: Holder) -> None:
    won: list[object] = []
    refused: list[LeaseHeld] = []
    together = threading.Barrier(6)

    def take() -> None:
        together.wait(20)
        try:
            won.append(session.append(me))
        except LeaseHeld as error:
            refused.append(error)

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (len(won), len(refused)) == (1, 5)
    won[0].close()  # type: ignore[attr-defined]  # an Appender


def test_kill_9_frees_the_lease_and_loses_nothing_acknowledged(session: Session, me: Holder, holder: Child) -> None:
    holder.kill()
    assert not session.held()
    appender = session.append(me)
    assert appender.state.seq == 2
    appender.close()


def test_a_child_that_the_holder_had_forked_does_not_keep_the_lease(
    store: Store, session: Session, me: Holder, tmp_path: Path
) -> None:
    fork = f"""
pid = __import__("os").fork()
if pid == 0:
    open({str(tmp_path / "alive")!r}, "w").close()
    time.sleep(600)
print("forked", pid, flush=True)
time.sleep(600)
"""
    with Child(HOLD + fork, str(store.root), session.id) as child:
        grandchild = int(child.expect("forked"))
        try:
            wait_until((tmp_path / "alive").exists, what="the grandchild")
            with pytest.raises(LeaseHeld):
                session.append(me)
            child.kill()
            os.kill(grandchild, 0)
            session.append(me).close()
        finally:
            os.kill(grandchild, 9)


def test_a_program_that_the_holder_had_started_does_not_keep_the_lease(store: Store, session: Session, me: Holder) -> None:
    start = """
import subprocess
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL, close_fds=False)
print("started", other.pid, flush=True)
time.sleep(600)
"""
    with Child(HOLD + start, str(store.root), session.id) as child:
        started = int(child.expect("started"))
        try:
            child.kill()
            session.append(me).close()
        finally:
            os.kill(started, 9)


def test_a_reused_pid_is_not_taken_for_the_holder(session: Session, me: Holder) -> None:
    stranger = Holder(pid=os.getpid(), started=me.started - 1000, host=me.host, boot=me.boot)
    assert not lease.is_alive(stranger, heartbeat_age=0.0)
    assert lease.is_alive(me, heartbeat_age=None)


def test_a_holder_of_before_the_reboot_is_gone_whatever_its_pid(me: Holder) -> None:
    assert not lease.is_alive(Holder(me.pid, me.started, me.host, "another boot"), heartbeat_age=0.0)


@pytest.mark.parametrize(("age", "alive"), [(None, False), (1.0, True), (60.0, False)])
def test_of_a_holder_on_another_machine_only_the_heartbeat_tells(me: Holder, age: float | None, alive: bool) -> None:
    assert lease.is_alive(Holder(me.pid, me.started, "elsewhere", me.boot), heartbeat_age=age) is alive


def test_each_holder_has_an_epoch_of_its_own_and_writes_only_its_journals(session: Session, me: Holder) -> None:
    epochs = []
    for _ in range(4):
        appender = session.append(me)
        appender.emit("Noted", {}, ignorable=True)
        epochs.append(appender.epoch)
        appender.close()
    assert epochs == [2, 3, 4, 5]
    assert [(j.epoch, j.first) for j in session.layout.journals()] == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]


def test_lock_files_of_old_epochs_do_not_pile_up(session: Session, me: Holder) -> None:
    for _ in range(6):
        session.append(me).close()
    assert len(list(session.layout.root.glob("lease-*.lock"))) <= 3


def test_a_session_that_is_closed_names_no_holder(session: Session, me: Holder) -> None:
    appender = session.append(me)
    assert session.held()
    appender.close()
    assert not session.held()
    assert lease.read_holder(session.layout) is None
