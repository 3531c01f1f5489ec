"""The table of seven states: every (from, to, actor) is allowed or refused as the design says."""

from __future__ import annotations

import itertools

import pytest

from ipyagent_sessions.errors import IllegalTransition
from ipyagent_sessions.lifecycle import ENDED, LOST, TRANSITIONS, TaskState, actor_kind, check, effective

ACTORS = ("user", "engine", "schedule", "rule", "sweeper", "model", "")
ALLOWED = {
    ("", "queued"): "user schedule engine",
    ("queued", "running"): "engine",
    ("queued", "cancelled"): "user schedule",
    ("queued", "failed"): "engine",
    ("running", "suspended"): "engine rule sweeper user",
    ("running", "interrupted"): "user",
    ("running", "completed"): "engine",
    ("running", "failed"): "engine",
    ("running", "cancelled"): "user rule",
    ("suspended", "running"): "user engine rule",
    ("suspended", "cancelled"): "user engine rule schedule",
    ("interrupted", "running"): "user",
    ("interrupted", "cancelled"): "user schedule",
}
"""Typed here a second time, from DESIGN section 6, so that a change of the table is a decision."""

STATES = ("", *(s.value for s in TaskState))


@pytest.mark.parametrize(("source", "target"), list(itertools.product(STATES, [s.value for s in TaskState])))
def test_every_change_by_every_actor(source: str, target: str) -> None:
    for actor in ACTORS:
        origin = TaskState(source) if source else None
        if actor in ALLOWED.get((source, target), "").split() and actor:
            assert check(origin, TaskState(target), f"{actor}:anna@cli").target == target
        else:
            with pytest.raises(IllegalTransition):
                check(origin, TaskState(target), actor)


def test_there_are_seven_states_and_ended_ones_never_change() -> None:
    assert len(TaskState) == 7
    for state, target in itertools.product(ENDED, TaskState):
        with pytest.raises(IllegalTransition, match="cannot go from") as raised:
            check(state, target, "user")
        assert "retry makes a new task" in raised.value.hint


def test_a_refusal_says_who_may() -> None:
    with pytest.raises(IllegalTransition, match="engine may not take a task from running to interrupted; allowed: user"):
        check(TaskState.RUNNING, TaskState.INTERRUPTED, "engine")


def test_each_row_says_what_a_person_sees_and_what_becomes_of_the_artefacts() -> None:
    assert len({(r.source, r.target) for r in TRANSITIONS}) == len(TRANSITIONS) == len(ALLOWED)
    assert all(r.why and r.person_sees and r.artefacts and r.actors for r in TRANSITIONS)


def test_every_state_can_be_reached_and_every_state_that_has_not_ended_can_be_left() -> None:
    assert {r.target for r in TRANSITIONS} == set(TaskState)
    assert {r.source for r in TRANSITIONS} == {None, *TaskState} - ENDED


@pytest.mark.parametrize("state", list(TaskState))
def test_running_without_a_holder_is_lost_and_nothing_else_is(state: TaskState) -> None:
    assert effective(state, held=True) == state.value
    assert effective(state, held=False) == (LOST if state is TaskState.RUNNING else state.value)


def test_the_kind_of_an_actor_is_what_stands_before_the_colon() -> None:
    assert [actor_kind(a) for a in ("user:anna@cli", "engine", "")] == ["user", "engine", ""]
