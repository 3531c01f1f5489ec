"""State is a pure fold: the same at any seq however one gets there."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipyagent_sessions import folding
from ipyagent_sessions import payloads as p
from ipyagent_sessions import state as states
from ipyagent_sessions.errors import NewerFormat
from ipyagent_sessions.events import Event, as_raw, decode, encode
from ipyagent_sessions.lifecycle import MOVES, TaskState
from ipyagent_sessions.testing import Emission, History, events

Histories = st.tuples(st.randoms(use_true_random=False), st.integers(1, 160)).map(lambda x: history(*x))


def history(rng: random.Random, length: int) -> list[Event]:
    return list(events(itertools.islice(iter(History(rng)), length)))


def fold(*items: Emission) -> states.State:
    return folding.fold(events(iter(items)))


@given(Histories)
def test_the_state_at_every_seq_is_the_one_that_was_live_there(log: Sequence[Event]) -> None:
    live = states.State()
    captured = []
    for event in log:
        folding.apply(live, event)
        captured.append(states.encode(live))
    for seq in {1, len(log) // 3 + 1, len(log) // 2 + 1, len(log)}:
        assert states.encode(folding.fold(log[:seq])) == captured[seq - 1], seq


@given(Histories)
def test_a_task_moves_by_the_events_of_the_table_and_by_no_other(log: Sequence[Event]) -> None:
    live = states.State()
    for event in log:
        before = live.system_state.status
        folding.apply(live, event)
        assert live.system_state.status == MOVES.get(event.event_type, before)


@given(Histories, st.data())
def test_a_snapshot_anywhere_and_the_rest_give_the_same_state(log: Sequence[Event], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(log)))
    snapshot = states.decode(states.encode(folding.fold(log[:cut])))
    assert states.encode(folding.fold(log[cut:], snapshot)) == states.encode(folding.fold(log))


@given(Histories)
def test_encoding_a_decoded_state_gives_the_same_bytes(log: Sequence[Event]) -> None:
    body = states.encode(folding.fold(log))
    assert states.encode(states.decode(body)) == body


def test_a_result_keeps_neither_its_line_nor_its_snapshot_in_memory() -> None:
    body = p.ActivityCompleted("work", result=as_raw({"text": "small"}))
    line = encode(Event(1, "ActivityCompleted", "2026-01-01T00:00:00.000Z", activity_id="main/work#1", payload=as_raw(body)))
    holders = sys.getrefcount(line)
    state = folding.fold([decode(line)])
    assert sys.getrefcount(line) == holders
    snapshot = states.encode(state)
    holders = sys.getrefcount(snapshot)
    again = states.decode(snapshot)
    assert sys.getrefcount(snapshot) == holders
    assert bytes(again.business_state.results["main/work#1"].result) == b'{"text":"small"}'


def test_a_result_of_nothing_is_one_object_for_all() -> None:
    state = fold(
        *[
            Emission("ActivityCompleted", p.ActivityCompleted("work", result=as_raw(None)), activity_id=f"main/work#{n}")
            for n in range(2)
        ]
    )
    for known in (state, states.decode(states.encode(state))):
        first, second = known.business_state.results.values()
        assert first.result is second.result


@given(Histories)
def test_folding_changes_no_event_and_two_states_share_nothing(log: Sequence[Event]) -> None:
    before = [(e.seq, bytes(e.payload)) for e in log]
    first = folding.fold(log)
    body = states.encode(first)
    second = folding.fold(log)
    second.business_state.values["new"] = 1
    second.execution_state.approvals.clear()
    second.alarms.append("x")
    second.tasks.clear()
    assert states.encode(first) == body
    assert [(e.seq, bytes(e.payload)) for e in log] == before
    assert states.encode(states.State()) == states.encode(states.State()), "defaults are not shared"


@given(Histories)
def test_the_status_agrees_with_the_last_event_of_the_task(log: Sequence[Event]) -> None:
    moves = {
        "TaskQueued": "queued",
        "TaskStarted": "running",
        "TaskResumed": "running",
        "TaskSuspended": "suspended",
        "TaskInterrupted": "interrupted",
        "TaskCompleted": "completed",
        "TaskFailed": "failed",
        "TaskCancelled": "cancelled",
    }
    wanted = next((moves[e.event_type] for e in reversed(log) if e.event_type in moves), None)
    found = folding.fold(log)
    assert found.system_state.status == wanted
    if wanted is not None:
        assert found.tasks[str(found.system_state.task_id)].status == wanted
    assert found.seq == len(log)


def test_an_unknown_type_that_may_be_ignored_passes_and_one_that_must_not_names_its_version() -> None:
    state = states.State()
    folding.apply(state, Event(1, "PageTurned", "2026-01-01T00:00:00.000Z", ignorable=True))
    assert state.seq == 1
    with pytest.raises(NewerFormat, match=r"event 2 is of the unknown type 'SoulSearched'.*written by ipyagent-9\.1"):
        folding.apply(state, Event(2, "SoulSearched", "2026-01-01T00:00:00.000Z", agent_version="ipyagent-9.1"))
    assert state.seq == 1


def test_a_known_type_of_a_newer_form_is_refused_or_passed_over_if_it_may_be() -> None:
    newer = Event(
        1,
        "FileWritten",
        "2026-01-01T00:00:00.000Z",
        payload=as_raw({"wholly": "different"}),
        schema_version=2,
        agent_version="ipyagent-9.1",
    )
    with pytest.raises(NewerFormat, match=r"event 1 \(FileWritten\) has form 2, this version reads 1.*ipyagent-9\.1"):
        folding.apply(states.State(), newer)
    state = states.State()
    folding.apply(state, msgspec.structs.replace(newer, ignorable=True))
    assert (state.seq, state.business_state.files) == (1, {})


STARTED = (Emission("TaskQueued", p.TaskQueued("audit"), "t"), Emission("TaskStarted", p.TaskStarted(), "t"))


def test_results_up_to_the_bound_live_in_the_state_and_larger_ones_by_reference() -> None:
    def state(size: int) -> states.Recorded:
        return fold(
            *STARTED,
            Emission("ActivityStarted", p.ActivityStarted("a"), "t", "/a"),
            Emission("ActivityCompleted", p.ActivityCompleted("a", result=as_raw("x" * (size - 2))), "t", "/a"),
        ).business_state.results["/a"]

    assert not state(folding.INLINE_RESULT).by_reference
    assert state(folding.INLINE_RESULT + 1).by_reference
    assert state(folding.INLINE_RESULT + 1).seq == 4


@pytest.mark.parametrize("value", [True, 5, ["a"], {"a": 1}, "text", None])
def test_a_goal_of_any_kind_leaves_a_state_that_can_be_stored(value: Any) -> None:
    state = fold(*STARTED, Emission("StateChanged", p.StateChanged("current_goal", as_raw(value)), "t"))
    assert states.decode(states.encode(state)) == state
    assert state.business_state.current_goal in (value, '["a"]', "true", "5", '{"a":1}')


def test_a_new_task_starts_with_clean_activities_and_keeps_the_session_s_values() -> None:
    state = fold(
        *STARTED,
        Emission("StateChanged", p.StateChanged("a.b", as_raw(1)), "t"),
        Emission("ActivityStarted", p.ActivityStarted("a"), "t", "/a"),
        Emission("TaskCancelled", p.TaskCancelled(), "t"),
        Emission("TaskQueued", p.TaskQueued("second"), "t2"),
    )
    assert state.execution_state.active_activities == {}
    assert state.business_state.values == {"a": {"b": 1}}
    assert {k: v.status for k, v in state.tasks.items()} == {"t": "cancelled", "t2": "queued"}


def test_an_answer_counts_once_and_one_to_an_unknown_request_changes_nothing() -> None:
    asked = (*STARTED, Emission("ApprovalRequested", p.ApprovalRequested("ap1", "Delete?"), "t"))
    first = fold(*asked, Emission("ApprovalResolved", p.ApprovalResolved("ap1", "yes", by="user:anna"), "t"))
    second = fold(
        *asked,
        Emission("ApprovalResolved", p.ApprovalResolved("ap1", "yes", by="user:anna"), "t"),
        Emission("ApprovalResolved", p.ApprovalResolved("ap1", "no", by="user:bert"), "t"),
        Emission("ApprovalResolved", p.ApprovalResolved("ap9", "yes"), "t"),
    )
    assert second.execution_state.approvals == first.execution_state.approvals
    assert second.execution_state.approvals["ap1"].by == "user:anna"


def test_retries_are_counted_across_recoveries() -> None:
    state = fold(
        *STARTED,
        Emission("ActivityStarted", p.ActivityStarted("a"), "t", "/a", 1),
        Emission("ActivityRetried", p.ActivityRetried("a", "E", "e"), "t", "/a", 1),
        Emission("TaskSuspended", p.TaskSuspended("worker_lost"), "t"),
        Emission("TaskResumed", p.TaskResumed(2), "t"),
        Emission("ActivityRetried", p.ActivityRetried("a", "E", "e"), "t", "/a", 2),
    )
    assert state.system_state.retry_counts == {"/a": 2}
    assert state.execution_state.active_activities["/a"].attempt == 3
    assert state.system_state.status is TaskState.RUNNING


def test_running_time_is_summed_over_runs_and_a_clock_set_back_takes_nothing_away() -> None:
    def at(seq: int, event_type: str, payload: p.Payload, second: int) -> Event:
        return Event(seq, event_type, f"2026-01-01T00:00:{second:02d}.000Z", task_id="t", payload=as_raw(payload))

    state = folding.fold(
        [
            at(1, "TaskQueued", p.TaskQueued("a"), 0),
            at(2, "TaskStarted", p.TaskStarted(), 5),
            at(3, "TaskSuspended", p.TaskSuspended("network"), 15),
            at(4, "TaskResumed", p.TaskResumed(2), 50),
            at(5, "TaskCompleted", p.TaskCompleted(), 40),
        ]
    )
    assert state.system_state.ran_s == 10.0


def test_a_thousand_tasks_do_not_grow_the_state() -> None:
    found, full, seq = states.State(), 0, 0
    for number in range(1, 1001):
        for event_type, body in (("TaskQueued", {"target": "m:f"}), ("TaskStarted", {}), ("TaskCompleted", {})):
            seq += 1
            event = Event(seq, event_type, "2026-01-01T00:00:00.000Z", task_id=f"s.{number}", payload=as_raw(body))
            folding.apply(found, event)
        if number == states.KEPT_TASKS:
            full = len(states.encode(found))
    assert found.begun == 1000
    assert list(found.tasks) == [f"s.{number}" for number in range(901, 1001)], "the newest are known one by one"
    assert len(states.encode(found)) < full * 1.1
