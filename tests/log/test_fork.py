"""A fork is a pointer: the same few bytes at any length, nothing changed in its parent, and proof of where it begins."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from ipyagent_sessions import events as ev
from ipyagent_sessions import folding
from ipyagent_sessions import payloads as p
from ipyagent_sessions import state as states
from ipyagent_sessions.errors import DamageError, NotFound, UsageError
from ipyagent_sessions.log import checkpoints, live
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FaultyDisk, activities, wait_until
from ipyagent_sessions.verify import whole


@pytest.fixture
def parent(session: Session, me: Holder) -> Session:
    appender = session.append(me)
    appender.emit("TaskQueued", p.TaskQueued("audit"), task_id=f"{session.id}.1")
    appender.emit("TaskStarted", p.TaskStarted(), task_id=f"{session.id}.1")
    activities(appender, 20, task_id=f"{session.id}.1")
    appender.close()
    return session


def hashes(session: Session) -> dict[str, str]:
    return {str(f): hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(session.layout.root.rglob("*")) if f.is_file()}


def size(folder: Path) -> int:
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())


def test_a_fork_writes_the_same_few_bytes_whatever_the_length(parent: Session, me: Holder) -> None:
    written = []
    for _ in range(3):
        child = parent.fork()
        assert size(child.layout.root) < 4096
        child.layout.summary.unlink(missing_ok=True)
        written.append(size(child.layout.root))
        appender = parent.append(me)
        activities(appender, 300)
        appender.close(rest=True)
    assert max(written) - min(written) < 64, "only the numbers in it get longer"


@pytest.mark.parametrize("sealed", [False, True])
def test_the_parent_s_files_are_not_touched(parent: Session, me: Holder, sealed: bool) -> None:
    if sealed:
        parent.append(me).close(rest=True)
    before = hashes(parent)
    child = parent.fork(23)
    appender = child.append(me)
    activities(appender, 10)
    appender.checkpoint("manual", "x")
    appender.close(rest=True)
    assert hashes(parent) == before


def test_a_fork_reads_through_its_lineage_with_contiguous_seqs(parent: Session, me: Holder) -> None:
    child = parent.fork(11)
    appender = child.append(me)
    activities(appender, 2)
    appender.close()
    assert [e.seq for e in child.events()] == list(range(1, 17))
    assert [e.seq for e in child.events(lineage=False)] == list(range(12, 17))
    assert [e.seq for e in child.events(after=9, until=13)] == [10, 11, 12, 13]
    assert [ev.encode(e) for e in child.events(until=11)] == [ev.encode(e) for e in parent.events(until=11)]
    assert child.event(5) == parent.event(5)
    assert child.event(12).event_type == "SessionForked"
    assert parent.event(12).event_type != "SessionForked"


def test_the_state_of_a_fork_is_the_parent_s_at_that_seq_and_goes_its_own_way(parent: Session, me: Holder) -> None:
    child = parent.fork(11)
    assert states.encode(child.state(11)) == states.encode(parent.state(11))
    assert states.encode(child.state()) == states.encode(folding.fold(child.events()))
    assert child.state().lineage == [(parent.id, 11)]
    appender = child.append(me)
    assert appender.state.seq == 12
    activities(appender, 1)
    appender.close()
    assert child.state().execution_state.done != parent.state().execution_state.done


@pytest.fixture
def spent(session: Session, me: Holder) -> Session:
    """Two tasks; the first has cost 1.0 by event 4 and 3.0 in all, and a summary says so."""
    appender = session.append(me)
    for task in ("a", "b"):
        appender.emit("TaskQueued", p.TaskQueued("audit", run_key=task), task_id=task)
        appender.emit("TaskStarted", p.TaskStarted(), task_id=task)
        for cost in (1.0, 2.0):
            asked = p.MessageAdded("assistant", "", 0)
            appender.emit("MessageAdded", asked, task_id=task, input_tokens=10, output_tokens=5, cost_usd=cost)
        appender.emit("TaskCompleted", p.TaskCompleted(), task_id=task)
    live.write_summary(session.layout, summarise(session.id, appender.state), session.place.disk)
    appender.close()
    return session


@pytest.mark.parametrize("seq", range(1, 12))
def test_a_fork_is_listed_with_what_its_beginning_had_cost(spent: Session, seq: int) -> None:
    child = spent.fork(seq)
    written = live.read_summary(child.layout)
    assert written is not None
    assert written == summarise(child.id, child.state())
    assert written.run_key == "", "the same cell goes on with the parent"
    costs = [e.cost_usd for e in spent.events(until=seq) if e.cost_usd is not None]
    assert written.cost_usd == sum(costs)
    assert written.input_tokens == 10 * len(costs)
    assert written.tasks == (seq >= 2) + (seq >= 7)
    assert whole.session(child).findings == []


def test_of_a_fork_of_a_long_history_the_log_is_asked(spent: Session, me: Holder, disk: FaultyDisk) -> None:
    appender = spent.append(me)
    appender.emit("TaskQueued", p.TaskQueued("audit", run_key="c"), task_id="c")
    activities(appender, 200, task_id="c")
    appender.close()
    before = disk.bytes_written
    child = spent.fork(appender.state.seq - 2)
    assert disk.bytes_written - before < 4096
    assert not child.layout.summary.exists()
    assert child.summary() == summarise(child.id, child.state())
    assert child.summary().cost_usd == 6.0


def test_a_fork_behind_damage_is_made_and_has_no_summary(parent: Session) -> None:
    journal = parent.layout.journals()[-1].path
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:4], b"rubbish\n", *lines[5:]]))
    child = Session(parent.place, parent.id).fork(11)
    assert not child.layout.summary.exists()
    assert child.event(11) == parent.event(11)


def test_a_fork_of_a_fork_reads_both_ancestors(parent: Session, me: Holder) -> None:
    child = parent.fork(11)
    appender = child.append(me)
    activities(appender, 3)
    appender.close()
    grandchild = child.fork(16)
    assert [e.seq for e in grandchild.events()] == list(range(1, 18))
    assert grandchild.state().lineage == [(parent.id, 11), (child.id, 16)]
    assert states.encode(grandchild.state()) == states.encode(folding.fold(grandchild.events()))
    assert grandchild.fork(5).header.parent == ev_parent(parent, 5), "a fork before its own beginning is one of the ancestor"


def ev_parent(session: Session, seq: int) -> object:
    from ipyagent_sessions.place import Parent

    return Parent(session.id, seq, ev.digest(session.event(seq)))


def test_blobs_of_the_ancestors_are_found(parent: Session, me: Holder) -> None:
    appender = parent.append(me)
    blobs: dict[str, bytes] = {}
    _, name = appender.put(b'"' + b"b" * 40_000 + b'"', blobs)
    event = appender.emit("Noted", {"result_blob": name}, ignorable=True, blobs=blobs)
    appender.close()
    grandchild = parent.fork(event.seq).fork(event.seq + 1)
    assert len(grandchild.payload(grandchild.event(event.seq))["result"]) == 40_000
    assert not grandchild.layout.blobs.exists()


@pytest.mark.parametrize("sealed", [False, True])
def test_a_fork_inside_an_open_activity_is_refused(session: Session, me: Holder, sealed: bool) -> None:
    appender = session.append(me)
    appender.emit("ActivityStarted", p.ActivityStarted("a"), activity_id="/a", task_id="t")
    appender.emit("ActivityStarted", p.ActivityStarted("b"), activity_id="/b", task_id="t")
    appender.emit("ActivityCompleted", p.ActivityCompleted("a"), activity_id="/a", task_id="t")
    appender.emit("ActivityFailed", p.ActivityFailed("b", "E", "e"), activity_id="/b", task_id="t")
    appender.close(rest=sealed)
    for seq, inside in ((1, ""), (2, "/a"), (3, "/a, /b"), (4, "/b"), (5, "")):
        if inside:
            with pytest.raises(UsageError, match=f"event {seq} lies inside {inside}, which had no result"):
                session.fork(seq)
        else:
            assert session.fork(seq).state().seq == seq + 1


def test_an_activity_that_a_cancelled_task_left_open_does_not_bar_forks_for_ever(session: Session, me: Holder) -> None:
    appender = session.append(me)
    appender.emit("TaskQueued", p.TaskQueued("audit"), task_id="t")
    appender.emit("TaskStarted", p.TaskStarted(), task_id="t")
    appender.emit("ActivityStarted", p.ActivityStarted("a"), activity_id="/a", task_id="t")
    appender.emit("TaskCancelled", p.TaskCancelled(), task_id="t", actor="user")
    appender.close(rest=True)
    assert session.fork().state().seq == 6


@pytest.mark.parametrize("seq", [0, -1, 44, 10_000])
def test_a_fork_beyond_the_ends_is_refused(parent: Session, store: Store, seq: int) -> None:
    before = store.session_ids()
    with pytest.raises(NotFound, match=f"no event {seq}"):
        parent.fork(seq)
    assert store.session_ids() == before, "and leaves nothing behind"


def test_a_parent_that_was_changed_at_the_fork_point_is_detected(parent: Session) -> None:
    child = parent.fork(11)
    journal = parent.layout.journals()[-1].path
    lines = journal.read_bytes().splitlines(keepends=True)
    forged = parent.event(11)
    from ipyagent_sessions.log.format import line_of

    lines[9] = line_of(ev.decode(ev.encode(forged).replace(b"work", b"play")))
    journal.write_bytes(b"".join(lines))
    with pytest.raises(DamageError, match=f"forked from {parent.id} at 11, and that event has changed"):
        child.state()


def test_the_fork_point_verifies_after_the_parent_was_sealed(parent: Session, me: Holder) -> None:
    child = parent.fork(11)
    for _ in range(2):
        appender = parent.append(me)
        activities(appender, 1)
        appender.close(rest=True)
    assert child.state().seq == 12


def test_a_state_before_the_fork_s_first_checkpoint_is_still_found(parent: Session, me: Holder) -> None:
    child = parent.fork(11)
    appender = child.append(me)
    activities(appender, 5)
    event = appender.checkpoint("manual", "late")
    appender.close()
    wait_until(lambda: checkpoints.sequence(child.layout) == [event.seq], what="the snapshot")
    assert child.state(15).seq == 15
    assert states.encode(child.state(15)) == states.encode(folding.fold(child.events(until=15)))


def test_a_fork_whose_only_checkpoint_is_damaged_goes_on_behind_its_own_end(parent: Session, me: Holder) -> None:
    child = parent.fork(11)
    appender = child.append(me)
    event = appender.checkpoint("manual", "bad")
    appender.close()
    checkpoints.path_of(child.layout, event.seq).write_bytes(b"rubbish")
    appender = child.append(me)
    assert appender.state.seq == event.seq
    activities(appender, 1)
    appender.close()
    assert [e.seq for e in child.events()] == list(range(1, event.seq + 3))


def test_a_fork_whose_parent_is_gone_says_so(parent: Session, store: Store) -> None:
    import shutil

    child = parent.fork(11)
    shutil.rmtree(parent.layout.root)
    with pytest.raises(NotFound, match=parent.id):
        child.state()
    assert [x.session_id for x in store.sessions()] == [child.id]


def test_children_are_found(parent: Session, store: Store) -> None:
    made = {parent.fork(3).id, parent.fork(5).id}
    assert set(store.children(parent.id)) == made
    assert store.children(next(iter(made))) == []
