"""Old checkpoints of ended tasks go, by the policy; nothing that anybody needs does, and nothing goes in silence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ipyagent_sessions import payloads as p
from ipyagent_sessions import state as states
from ipyagent_sessions.config import CheckpointPolicy, MemoryPolicy
from ipyagent_sessions.log import checkpoints
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.retention import clean, expiry
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FakeClock, activities
from ipyagent_sessions.verify import whole

DAY = 86400.0
POLICY = CheckpointPolicy()
ENDS = {
    "completed": ("TaskCompleted", p.TaskCompleted()),
    "failed": ("TaskFailed", p.TaskFailed("ValueError", "no")),
    "cancelled": ("TaskCancelled", p.TaskCancelled("enough")),
    "suspended": ("TaskSuspended", p.TaskSuspended("network")),
    "interrupted": ("TaskInterrupted", p.TaskInterrupted()),
}


def task(appender: Appender, number: int, end: str, *, stages: int = 4) -> None:
    """A task with a checkpoint for each stage and one at its end."""
    task_id = f"{appender.layout.root.name}.{number}"
    appender.emit("TaskQueued", p.TaskQueued("m:f"), task_id=task_id)
    appender.emit("TaskStarted", p.TaskStarted(), task_id=task_id)
    for n in range(stages):
        activities(appender, 30, task_id=task_id, text="x" * 50)
        appender.checkpoint("stage", f"{n}", task_id=task_id)
    kind, body = ENDS[end]
    appender.emit(kind, body, task_id=task_id)
    appender.checkpoint("end", task_id=task_id)


@pytest.fixture
def ended(session: Session, me: Holder, request: pytest.FixtureRequest) -> Session:
    appender = session.append(me)
    task(appender, 1, request.param)
    appender.close(rest=True)
    return session


@pytest.mark.parametrize("ended", ["completed"], indirect=True)
def test_a_retention_of_less_than_a_day_is_told_in_its_own_units(ended: Session, store: Store, clock: FakeClock) -> None:
    store.memory.put("a", "k", 1)
    clock.advance(5400)
    due = expiry.expired(store, CheckpointPolicy(successful_s=1.5))
    assert {e.why for e in due} == {f"task {ended.id}.1 completed 1 h 30 min ago, kept 1.5 s"}
    (shared,) = store.memory.outlived(60)
    assert shared.why.endswith(", kept 1 min 0 s")


@pytest.mark.parametrize("ended", ["completed"], indirect=True)
def test_the_checkpoints_of_a_completed_task_go_after_7_days_and_its_log_stays(
    ended: Session, store: Store, clock: FakeClock
) -> None:
    before = [e.seq for e in ended.events()]
    wanted = states.encode(ended.state())
    seqs = checkpoints.sequence(ended.layout)
    assert len(seqs) == 5
    clock.advance(6.9 * DAY)
    assert expiry.expired(store, POLICY) == []
    clock.advance(1.1 * DAY)
    gone = clean.checkpoints(store, POLICY, by="user:me")
    left = checkpoints.sequence(ended.layout)
    assert left[-1] == seqs[-1], "the newest recovery point stays"
    assert {e.seq for e in gone} == set(seqs) - set(left)
    assert len(gone) >= 3
    assert all("completed 8 d 0 h ago, kept 7 d 0 h" in e.why for e in gone)
    assert [e.seq for e in ended.events()] == before
    assert states.encode(ended.state()) == wanted
    assert [states.encode(ended.state(seq)) for seq in seqs], "any earlier point is folded from the log"
    assert whole.session(ended).findings == [f for f in whole.session(ended).findings if f.file == "summary.json"]


@pytest.mark.parametrize("ended", ["failed", "cancelled"], indirect=True)
def test_those_of_a_failed_or_cancelled_task_go_after_30_days(ended: Session, store: Store, clock: FakeClock) -> None:
    clock.advance(29 * DAY)
    assert expiry.expired(store, POLICY) == []
    clock.advance(2 * DAY)
    assert len(clean.checkpoints(store, POLICY, by="user:me")) >= 3
    assert len(checkpoints.sequence(ended.layout)) <= 2


@pytest.mark.parametrize("ended", ["suspended", "interrupted"], indirect=True)
@pytest.mark.usefixtures("ended")
def test_those_of_a_task_that_may_go_on_never_go(store: Store, clock: FakeClock) -> None:
    clock.advance(4000 * DAY)
    assert expiry.expired(store, POLICY) == []


def test_the_earlier_task_of_a_session_goes_by_its_own_end(
    session: Session, store: Store, me: Holder, clock: FakeClock
) -> None:
    appender = session.append(me)
    task(appender, 1, "completed")
    second = appender.state.seq + 1
    task(appender, 2, "suspended")
    appender.close()
    clock.advance(8 * DAY)
    gone = {e.seq for e in expiry.expired(store, POLICY)}
    assert gone
    assert all(seq < second for seq in gone)


@pytest.mark.parametrize("ended", ["completed"], indirect=True)
def test_the_policy_decides(ended: Session, store: Store, clock: FakeClock) -> None:
    clock.advance(2 * DAY)
    assert expiry.expired(store, CheckpointPolicy(successful_s=3 * DAY)) == []
    assert len(expiry.expired(store, CheckpointPolicy(successful_s=DAY))) >= 3


def test_what_a_person_took_by_hand_and_what_it_stands_on_stay(
    session: Session, store: Store, me: Holder, clock: FakeClock
) -> None:
    appender = session.append(me)
    task(appender, 1, "suspended")
    mine = appender.checkpoint("manual", "mine").seq
    appender.emit("TaskResumed", p.TaskResumed(2), task_id=f"{session.id}.1")
    appender.emit("TaskCompleted", p.TaskCompleted(), task_id=f"{session.id}.1")
    appender.checkpoint("end", task_id=f"{session.id}.1")
    appender.close()
    base = next(i.base for i in session.checkpoints() if i.seq == mine)
    assert base is not None, "it is a difference"
    clock.advance(400 * DAY)
    clean.checkpoints(store, POLICY, by="user:me")
    left = {i.seq: i for i in session.checkpoints()}
    assert {mine, base} <= left.keys()
    assert left[mine].complete


@pytest.mark.parametrize("ended", ["completed"], indirect=True)
def test_the_checkpoint_that_a_fork_starts_from_stays(ended: Session, store: Store, clock: FakeClock) -> None:
    seqs = checkpoints.sequence(ended.layout)
    ended.fork(seqs[2])
    clock.advance(8 * DAY)
    clean.checkpoints(store, POLICY, by="user:me")
    assert seqs[2] in checkpoints.sequence(ended.layout)


@pytest.mark.parametrize("ended", ["completed"], indirect=True)
def test_checkpoints_behind_damage_stay(ended: Session, store: Store, clock: FakeClock) -> None:
    for journal in ended.layout.journals()[:-1]:
        journal.path.unlink()
    ended.layout.segments()[0].path.write_bytes(b"PAR1")
    clock.advance(400 * DAY)
    assert expiry.expired(store, POLICY) == []


@pytest.mark.parametrize("ended", ["completed"], indirect=True)
def test_a_held_session_is_left_alone(ended: Session, store: Store, me: Holder, clock: FakeClock) -> None:
    clock.advance(400 * DAY)
    appender = ended.append(me)
    try:
        assert expiry.expired(store, POLICY) == []
    finally:
        appender.close()


@pytest.mark.parametrize("ended", ["completed"], indirect=True)
def test_each_removal_is_on_record_before_it_happens(
    ended: Session, store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.advance(8 * DAY)
    due = expiry.expired(store, POLICY)
    recorded: list[bool] = []
    real = Path.unlink

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path.name.endswith(".json.zst"):
            recorded.append(any(path.name in e.file for e in clean.record(store)))
        real(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    clean.checkpoints(store, POLICY, by="user:anna")
    assert recorded == [True] * len(due)
    assert [(e.file, e.why, e.by) for e in clean.record(store)] == [(d.file, d.why, "user:anna") for d in due]


@pytest.mark.parametrize("ended", ["completed"], indirect=True)
def test_the_first_clean_up_is_announced_a_day_before_it_happens(ended: Session, store: Store, clock: FakeClock) -> None:
    assert clean.by_itself(store, POLICY, MemoryPolicy()) == "", "nothing is old yet"
    clock.advance(8 * DAY)
    told = clean.by_itself(store, POLICY, MemoryPolicy())
    assert "2026-01-10" in told
    assert "gc" in told
    assert "2026-01-10" in clean.standing(store)
    clock.advance(0.5 * DAY)
    assert clean.by_itself(store, POLICY, MemoryPolicy()) == ""
    assert len(checkpoints.sequence(ended.layout)) == 5, "nothing has gone"
    clock.advance(0.6 * DAY)
    assert clean.by_itself(store, POLICY, MemoryPolicy()) == ""
    assert len(checkpoints.sequence(ended.layout)) <= 2
    assert clean.standing(store) == ""
    assert {e.by for e in clean.record(store)} == {"ipyagent, by itself"}


def test_shared_entries_go_by_themselves_a_day_after_it_was_announced(store: Store, clock: FakeClock) -> None:
    policy = MemoryPolicy(30 * DAY)
    store.create()
    for ttl in ("1d", "90d", None):
        store.memory.put("a", str(ttl), 1, ttl=ttl)
    assert clean.by_itself(store, POLICY, policy) == "", "nothing is old yet"
    clock.advance(2 * DAY)
    told = clean.by_itself(store, POLICY, policy)
    assert "the time of 1 shared entry is over" in told
    assert "2026-01-04" in told
    assert "2026-01-04" in clean.standing(store)
    clock.advance(0.5 * DAY)
    assert clean.by_itself(store, POLICY, policy) == ""
    assert [o.key for o in store.memory.outlived()] == ["1d"], "nothing has gone"
    clock.advance(0.6 * DAY)
    assert clean.by_itself(store, POLICY, policy) == ""
    assert store.memory.outlived() == []
    assert clean.standing(store) == ""
    clock.advance(30 * DAY)
    clean.by_itself(store, POLICY, policy)
    assert store.memory.keys() == [("a", "90d")]
    assert [(e.file, e.by) for e in clean.record(store)] == [
        ("memory/a/1d", "ipyagent, by itself"),
        ("memory/a/None", "ipyagent, by itself"),
    ]


def test_damaged_shared_entries_are_left_to_a_person(store: Store, clock: FakeClock) -> None:
    store.create()
    store.memory.put("a", "lost", 1)
    store.memory.put("a", "short", 1, ttl=1)
    path = store.memory.folder / "journal-1.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"lost"', b'"last"'))
    for _ in range(3):
        clock.advance(2 * DAY)
        clean.by_itself(store, POLICY, MemoryPolicy())
    assert path.exists()
    assert whole.store(store).damaged


def test_an_entry_that_is_put_anew_while_old_ones_are_cleaned_stays(store: Store, clock: FakeClock) -> None:
    store.memory.put("a", "k", "old", ttl=1)
    clock.advance(2)
    due = store.memory.outlived()
    Store(store.root, clock=clock).memory.put("a", "k", "new")
    store.memory.forget(due)
    assert store.memory.get("a", "k") == "new"


def test_a_part_of_a_line_that_a_crash_left_costs_no_later_one(store: Store, clock: FakeClock) -> None:
    for n in range(2):
        store.memory.put("a", f"k{n}", 1, ttl=1)
        clock.advance(2)
        clean.memory(store, store.memory.outlived(), by="user:me")
        if n == 0:
            with (store.root / "gc.jsonl").open("ab") as file:
                file.write(b'{"at":"2026')
    assert [e.file for e in clean.record(store)] == ["memory/a/k0", "memory/a/k1"]


@pytest.mark.parametrize("odd", [{"announced_shared": 1e308, "looked": 1.0}, {"looked": 1e12}, {"announced": -5.0}])
def test_times_that_no_clock_gave_are_not_believed(store: Store, clock: FakeClock, odd: dict[str, float]) -> None:
    store.create()
    store.memory.put("a", "short", 1, ttl=1)
    (store.root / "gc.json").write_text(json.dumps(odd))
    assert clean.standing(store) == ""
    clock.advance(2 * DAY)
    assert "the time of 1 shared entry is over" in clean.by_itself(store, POLICY, MemoryPolicy())
