"""What a body raises or returns may be anything: the task ends as failed or completed, and the engine goes on."""

from __future__ import annotations

import pytest
from tests.run.harness import Engine, bodies

from ipyagent_sessions.errors import TaskNotCompleted, UsageError
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import workflow


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize("inside", [False, True])
def test_an_error_whose_text_cannot_be_made_is_a_failure_like_any_other(engine: Engine, inside: bool) -> None:
    def mute() -> None:
        raise Mute

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        if inside:
            await ctx.run(mute)
        raise Mute

    handle = engine.start(flow)
    session = engine.ended(handle, "failed")
    assert "its text cannot be made: ValueError" in session.state().system_state.error
    with pytest.raises(TaskNotCompleted, match="its text cannot be made"):
        handle.result(1)


def test_an_integer_that_nobody_can_read_again_is_refused_as_a_value(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> int:
        return 10**5000

    session = engine.start(flow).session
    assert engine.handles[-1].wait(10)
    assert session.state().system_state.status == "completed"
    (done,) = bodies(session, "TaskCompleted")
    assert "cannot be written" in done["result_lost"]


def test_an_undo_whose_error_has_no_text_is_told_and_the_others_have_their_turn(engine: Engine) -> None:
    undone = []

    def mute(n: int) -> None:
        undone.append(n)
        raise Mute

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        for n in range(2):
            await ctx.run(abs, n, compensate=mute, key=n)
        raise RuntimeError("over")

    session = engine.ended(engine.start(flow), "failed")
    assert undone == [1, 0]
    assert len([b for b in bodies(session, "AlarmRaised") if "its text cannot be made" in b["text"]]) == 2


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (".".join(["p"] * 1000), 1, "has 1000 parts"),
        (5, 1, "the path of a value is a text, not int"),
        ("p", "nested", "is nested deeper than 300 levels"),
    ],
)
def test_a_value_that_no_state_can_hold_is_refused_and_the_task_waits(
    engine: Engine, path: str, value: object, told: str
) -> None:
    deep: object = 1
    for _ in range(350):
        deep = [deep]

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        ctx.set(path, deep if value == "nested" else value)

    handle = engine.start(flow)
    session = engine.ended(handle, "suspended")
    assert session.state().system_state.reason == "definition"
    assert told in session.state().system_state.detail
    assert handle.outcome is not None
    assert isinstance(handle.outcome.error, UsageError)
