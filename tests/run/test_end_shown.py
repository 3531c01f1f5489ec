"""What is shown of an execution says no more than the log has of it (R042, R200)."""

from __future__ import annotations

from tests.run.harness import Engine, Gate, running

from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.commands.follow import follow
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import workflow
from ipyagent_sessions.testing import FaultyDisk
from ipyagent_sessions.views.shown import Shown


class Screen:
    """Keeps what is shown."""

    def __init__(self) -> None:
        self.updates: list[str] = []
        self.end = ""

    def breathe(self) -> None: ...

    def update(self, shown: Shown) -> None:
        self.updates.append(shown.text)

    def final(self, shown: Shown) -> None:
        self.end = shown.text


def test_a_task_whose_end_is_not_on_disk_is_not_shown_as_completed(engine: Engine, disk: FaultyDisk, gate: Gate) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        for n in range(3):
            await ctx.run(abs, n)
        await ctx.run(gate.blocking)
        await ctx.run(abs, 9)
        return "done"

    handle = engine.start(flow, durability="sync")
    gate.reached()
    for seam in ("before journal write", "before journal sync"):
        disk.fail(seam, times=100_000)
    gate.open()
    screen = Screen()
    follow(Door(engine.store, "user:anna"), handle, screen)
    disk.mend()
    assert handle.trouble is not None
    assert "completed" not in screen.end
    assert screen.end.startswith("flow  ")
    assert "stopped at activity 3" in screen.end


def test_a_holder_that_was_taken_over_from_is_shown_as_the_log_has_it(engine: Engine, gate: Gate) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        for n in range(3):
            await ctx.run(abs, n)
        await ctx.run(gate.passing)

    handle = engine.start(flow, durability="exit")
    gate.reached()
    assert running(handle).state.execution_state.done == 3
    engine.crash(handle)
    screen = Screen()
    follow(Door(engine.store, "user:anna"), handle, screen)
    assert handle.session.state().execution_state.done == 0, "nothing of it had to be on disk yet"
    assert "0 activities done" in screen.end
