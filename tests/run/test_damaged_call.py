"""A call whose unfinished task cannot be read is not begun anew: what it did would be done again (R041, R151)."""

from __future__ import annotations

import pytest
from tests.run.harness import PATIENCE, Engine, Gate, Witness, bodies

from ipyagent_sessions.commands import look
from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.errors import DamageError
from ipyagent_sessions.run import launch
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import workflow
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import wait_until


def overwritten(session: Session, number: int) -> None:
    """Damage the line `number` of the newest journal, as a bad sector may."""
    journal = session.layout.journals()[-1].path
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[number] = b"\0" * 20 + lines[number][20:]
    journal.write_bytes(b"".join(lines))


@pytest.mark.parametrize("summary", ["known", "lost", "of another form"])
def test_the_same_call_does_not_begin_anew_beside_its_damaged_unfinished_task(
    engine: Engine, store: Store, witness: Witness, gate: Gate, summary: str
) -> None:
    async def pay(n: int) -> int:
        witness(f"pay {n}")
        if n == 3:
            await gate.passing()
        return n

    @workflow
    async def flow(ctx: Context) -> None:
        for n in range(5):
            await ctx.run(pay, n)

    handle = engine.start(flow)
    gate.reached()
    session = engine.crash(handle)
    gate.open()
    overwritten(session, 5)
    if summary == "lost":
        session.layout.summary.unlink()
    elif summary == "of another form":
        session.layout.summary.write_text("{")
    (listed,) = store.sessions()
    assert (listed.state, listed.summary is not None) == ("damaged", True)
    with pytest.raises(DamageError, match=r"of this call is unfinished.*event \d+ is damaged.*--new starts another"):
        launch.launch(store, flow)
    assert witness.order == ["pay 0", "pay 1", "pay 2", "pay 3"], "nothing was paid twice"
    assert len(store.session_ids()) == 1
    assert launch.launch(store, flow, new=True).handle is not None


def test_a_session_of_which_nothing_can_be_read_may_hold_the_call(engine: Engine, store: Store, gate: Gate) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(gate.passing)

    handle = engine.start(flow)
    gate.reached()
    session = engine.crash(handle)
    gate.open()
    session.layout.summary.unlink()
    overwritten(session, 0)
    with pytest.raises(DamageError, match=rf"session {session.id} may hold this call unfinished.*--new"):
        launch.launch(store, flow)
    assert len(store.session_ids()) == 1


def test_damage_that_a_checkpoint_covers_is_told_by_the_resume_the_log_and_a_replay(
    engine: Engine, store: Store, gate: Gate
) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        for n in range(5):
            await ctx.run(abs, n)
        async with ctx.stage("one"):
            await ctx.run(abs, 1)
        await ctx.run(gate.passing)
        return "done"

    handle = engine.start(flow)
    gate.reached()
    session = handle.session
    wait_until(lambda: session.checkpoints() != [], timeout=PATIENCE, what="a snapshot")
    engine.crash(handle)
    gate.open()
    overwritten(session, 5)
    lost = session.layout.journals()[-1].first + 5
    with pytest.raises(DamageError, match=rf"event {lost} is damaged or missing; ipyagent verify {session.id}"):
        session.event(lost)
    shown = look.log(session, last=50, event_type=None).text
    assert f"event {lost} is damaged or missing; ipyagent verify {session.id} says where" in shown
    assert f"event {lost} is damaged" in look.replay(Door(store, "user:anna"), session, to=None, last=50).text
    assert engine.resume(session, flow).result(10) == "done"
    (alarm,) = bodies(session, "AlarmRaised")
    assert alarm["kind"] == "damage"
    assert alarm["text"].startswith(f"event {lost} damaged or missing, and the checkpoint at event ")
    assert "at offset" in alarm["text"]
