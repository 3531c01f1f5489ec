"""However often and wherever a workflow is stopped, its result and what really ran are those of an uninterrupted run.

Hypothesis draws the workflow (stages, parallel branches, effects, retries, questions, own events) and the stops: a crash, a
pause, or an abort at the n-th start of an activity.  An activity notes that it began and that it ended.  A crash may make one
begin twice; nothing may make one end twice.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from pathlib import Path
from typing import Any, Literal, NamedTuple

from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st
from tests.run.harness import PATIENCE, Clock, bodies, checkpoints, refolded

from ipyagent_sessions.run import control, launch
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Retry, Workflow, workflow
from ipyagent_sessions.run.inside import current
from ipyagent_sessions.run.task import RunOptions
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FaultyDisk

Stop = Literal["crash", "pause", "abort"]


class Run(NamedTuple):
    effect: Literal["none", "idempotent", "irreversible"]
    keyed: bool
    fails: int
    pauses: int


class Note(NamedTuple):
    kind: Literal["emit", "append", "random", "now", "sleep"]


class Ask(NamedTuple):
    said: Literal["approved", "denied"]


class Gather(NamedTuple):
    branches: list[list[Run]]
    limit: int


class Part(NamedTuple):
    """A stage."""

    steps: list[Any]


runs = st.builds(
    Run,
    st.sampled_from(["none", "idempotent", "irreversible"]),
    st.booleans(),
    st.sampled_from([0, 0, 0, 1]),
    st.integers(0, 3),
)
leaves = st.one_of(
    runs,
    runs,
    st.builds(Note, st.sampled_from(["emit", "append", "random", "now", "sleep"])),
    st.builds(Ask, st.sampled_from(["approved", "denied"])),
    st.builds(Gather, st.lists(st.lists(runs, min_size=1, max_size=3), min_size=2, max_size=4), st.integers(1, 4)),
)
plans = st.recursive(
    st.lists(leaves, min_size=1, max_size=4),
    lambda inner: st.lists(st.one_of(leaves, st.builds(Part, inner)), min_size=1, max_size=4),
    max_leaves=12,
)
stops = st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["crash", "pause", "abort"])), max_size=5)


class World:
    """One store with one task in it, and everything that happens to it."""

    def __init__(self, folder: Path, plan: list[Any], stops: list[tuple[int, Stop]]) -> None:
        self.store = Store(folder, clock=Clock(), disk=FaultyDisk())
        self.flow = self._flow(plan)
        self.began: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.chance: dict[str, Any] = {}
        self._stops = iter(stops)
        self._next = next(self._stops, None)
        self._starts = 0

    async def step(self, name: str, pauses: int, fails: int) -> str:
        self.began[name] += 1
        self._maybe_stop()
        for _ in range(pauses + 1):
            await asyncio.sleep(0)
        if self.failed[name] < fails:
            self.failed[name] += 1
            raise ConnectionError(name)
        self.ended[name] += 1
        return f"result of {name}"

    def _maybe_stop(self) -> None:
        self._starts += 1
        if self._next is None or self._starts < self._next[0]:
            return
        kind = self._next[1]
        self._next, self._starts = next(self._stops, None), 0
        here = current()
        assert here is not None
        run = here.run
        if kind == "crash":
            run.loop.call_soon(lambda: run.stop("lease_lost"))
        else:
            run.loop.call_soon(lambda: run.stop("pause" if kind == "pause" else "abort", actor="user:anna"))

    def happened(self, name: str, pauses: int, fails: int) -> bool:
        return self.ended[name] > 0

    def _flow(self, plan: list[Any]) -> Workflow:
        policy = Retry(20, initial_s=0, jitter_s=0)  # attempts that a stop cut short count too

        def call(ctx: Context, op: Run, place: str, key: str | None) -> Any:
            return ctx.run(
                self.step, place, op.pauses, op.fails, key=key, effect=op.effect, retry=policy, verify=self.happened
            )

        async def branch(ctx: Context, ops: list[Run], place: str) -> list[str]:
            return [await call(ctx, op, f"{place}.{i}", f"{place}.{i}") for i, op in enumerate(ops)]

        async def perform(ctx: Context, ops: list[Any], place: str) -> list[Any]:
            out: list[Any] = []
            for i, op in enumerate(ops):
                here = f"{place}.{i}"
                match op:
                    case Run():
                        out.append(await call(ctx, op, here, here if op.keyed else None))
                    case Gather():
                        out.append(
                            await ctx.gather(
                                *[branch(ctx, b, f"{here}.{j}") for j, b in enumerate(op.branches)], limit=op.limit
                            )
                        )
                    case Ask():
                        out.append(bool(await ctx.approve(here, details=op.said)))
                    case Part():
                        async with ctx.stage(here):
                            out.append(await perform(ctx, op.steps, here))
                    case Note("emit"):
                        ctx.emit("Noted", {"at": here})
                    case Note("append"):
                        ctx.append("places", here)
                    case Note("sleep"):
                        await ctx.sleep(60)
                    case _:
                        value = ctx.random() if op.kind == "random" else ctx.now()
                        assert self.chance.setdefault(here, value) == value
            return out

        @workflow
        async def flow(ctx: Context) -> list[Any]:
            return await perform(ctx, plan, "p")

        return flow

    def go(self) -> tuple[Any, list[str]]:
        """Run to the end, whatever it takes: the result, and how each execution ended."""
        options = RunOptions(headless=True)
        handle = launch.run_workflow(self.store, self.flow, options=options)
        states: list[str] = []
        while True:
            assert handle.wait(PATIENCE), "it hangs"
            assert handle.outcome is not None, handle.trouble
            assert handle.trouble is None
            states.append(handle.outcome.state)
            self.session = handle.session
            if handle.outcome.state == "completed":
                return handle.result(), states
            assert handle.outcome.state in ("lease lost", "interrupted", "suspended"), handle.outcome
            assert len(states) < 100
            for key, asked in self.session.state().execution_state.approvals.items():
                if asked.answer is None and self.session.state().system_state.reason == "approval":
                    said = bytes(asked.details).decode().strip('"')
                    control.request(
                        self.session, "answer", actor="user:anna", approval_id=key, answer=said, digest=asked.digest
                    )
            handle = launch.resume_task(self.session, self.flow, options=options)


counter = itertools.count()


@settings(max_examples=20, phases=[Phase.generate])  # each example runs two tasks: shrinking takes minutes
@given(plan=plans, stops=stops)
def test_stops_change_neither_the_result_nor_what_ran(tmp_path: Path, plan: list[Any], stops: list[tuple[int, Stop]]) -> None:
    undisturbed = World(tmp_path / f"{next(counter)}", plan, [])
    expected, _ = undisturbed.go()
    world = World(tmp_path / f"{next(counter)}", plan, stops)
    result, states = world.go()
    note(f"executions ended {states}")
    assert result == expected
    assert world.ended == undisturbed.ended
    assert set(world.ended.values()) <= {1}
    crashes = states.count("lease lost") + states.count("interrupted")
    assert {name: n for name, n in world.began.items() if n > undisturbed.began[name] + crashes} == {}
    for other, session in ((undisturbed, undisturbed.session), (world, world.session)):
        assert bodies(session, "Noted") == bodies(undisturbed.session, "Noted")
        assert session.state().business_state.values == undisturbed.session.state().business_state.values
        assert [c for c in checkpoints(session) if c[0] == "stage"] == [
            c for c in checkpoints(undisturbed.session) if c[0] == "stage"
        ]
        assert session.state() == refolded(session)
        assert [e.seq for e in session.events()] == list(range(1, session.last_seq() + 1))
        assert session.state().execution_state.active_activities == {}
        assert not other.store.session(session.id).held()
