"""A hundred tasks at once lose no event and mix none up (R249)."""

from __future__ import annotations

from tests.run.harness import Engine, Gate, Witness, bodies, refolded

from ipyagent_sessions import state as states
from ipyagent_sessions import workflow
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.verify import whole

MANY = 100
STEPS = 5


def test_a_hundred_tasks_at_once_keep_their_events_apart_and_whole(engine: Engine, witness: Witness, gate: Gate) -> None:
    async def step(task: int, n: int) -> int:
        witness(f"{task}:{n}")
        if n == 0:
            await gate.passing()  # so that all of them run at the same time
        return 1000 * task + n

    @workflow(default_effect="none")
    async def flow(ctx: Context, task: int) -> list[int]:
        return [await ctx.run(step, task, n, key=n) for n in range(STEPS)]

    handles = [engine.start(flow, task) for task in range(MANY)]
    gate.reached(MANY)
    gate.open()
    for task, handle in enumerate(handles):
        session = engine.ended(handle, "completed")
        assert handle.result() == [1000 * task + n for n in range(STEPS)]
        assert [event.seq for event in session.events()] == list(range(1, session.last_seq() + 1))
        assert [b["result"] for b in bodies(session, "ActivityCompleted")] == [1000 * task + n for n in range(STEPS)]
        assert states.encode(refolded(session)) == states.encode(session.state())
    assert set(witness.counts.values()) == {1}
    assert len(witness.counts) == MANY * STEPS
    assert not whole.store(engine.store).damaged
    counted = engine.store.sql(
        "select count(*) as n, count(distinct event_id) as d, count(distinct session_id) as s from events"
    )
    (row,) = counted.rows()
    assert row["n"] == row["d"] == sum(handle.session.last_seq() for handle in handles)
    assert row["s"] == MANY
