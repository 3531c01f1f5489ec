"""What a person declares and cannot be done is refused: at the declaration, or at the call, which waits to be mended."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from tests.run.harness import Engine, Witness

from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Activity, Retry, workflow

CALLS: dict[str, Callable[[Context, Any], Any]] = {
    "sleep: '5 parsecs' is not a duration": lambda ctx, f: ctx.sleep("5 parsecs"),
    "timeout of Witness: -1 is not a duration": lambda ctx, f: ctx.run(f, "f", timeout=-1),
    "retry='3' is no policy": lambda ctx, f: ctx.run(f, "f", retry="3"),  # type: ignore[arg-type]
    "retry=0 is no policy": lambda ctx, f: ctx.run(f, "f", retry=0),
    "verify='x' is not a function": lambda ctx, f: ctx.run(f, "f", verify="x"),  # type: ignore[arg-type]
    "compensate=5 is not a function": lambda ctx, f: ctx.run(f, "f", compensate=5),  # type: ignore[arg-type]
    "limit=1.5 lets nothing run": lambda ctx, f: ctx.gather(ctx.run(f, "f"), limit=1.5),  # type: ignore[arg-type]
    "approve asks with a text, not int": lambda ctx, f: ctx.approve(5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("told", CALLS)
def test_a_call_that_says_what_cannot_be_done_waits_for_its_definition_and_then_goes_on(
    engine: Engine, witness: Witness, told: str
) -> None:
    call = CALLS[told]

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        await call(ctx, witness)
        return "done"

    handle = engine.start(flow)
    session = engine.ended(handle, "suspended")
    assert session.state().system_state.reason == "definition"
    assert told in session.state().system_state.detail
    assert witness.order == []
    call = lambda ctx, f: ctx.run(f, "mended")  # noqa: E731  # the cell, edited
    assert engine.resume(session, flow).result(10) == "done"
    assert witness.order == ["mended"]


def test_what_no_activity_can_be_is_refused_where_it_is_declared() -> None:
    wrong: Any
    for wrong, told in (
        ({"compensate": 5}, "compensate=5 is not a function"),
        ({"verify": "x"}, "verify='x' is not a function"),
        ({"retry": 0}, "retry=0 is no policy"),
        ({"retry": True}, "retry=True is no policy"),
    ):
        with pytest.raises(UsageError, match=told):
            Activity(len, **wrong)
    for wrong in ({"attempts": 0}, {"factor": -2}, {"max_s": math.nan}, {"jitter_s": "1"}):
        with pytest.raises(UsageError, match="of a Retry"):
            Retry(**wrong)
