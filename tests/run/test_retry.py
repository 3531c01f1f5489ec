"""Retries: which errors, how often, how far apart, and counted across restarts (R021, R029, R080, R130, R131)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.run.harness import Engine, Gate, Witness, bodies, of_type

from ipyagent_sessions.errors import ActivityError
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Retry, activity, workflow
from ipyagent_sessions.testing import FakeClock, wait_until


class Flaky:
    """Fails the first `times` times."""

    def __init__(self, witness: Witness, times: int, error: type[BaseException] = ConnectionError) -> None:
        self.witness, self.times, self.error = witness, times, error

    def __call__(self) -> str:
        self.witness("call")
        if self.witness.counts["call"] <= self.times:
            raise self.error("not now")
        return "done"


@pytest.mark.parametrize("effect", ["none", "idempotent", "irreversible"])
def test_it_is_tried_again_until_it_works_and_each_attempt_has_its_number(
    engine: Engine, witness: Witness, effect: Any
) -> None:
    @workflow
    async def flow(ctx: Context) -> str:
        return str(await ctx.run(Flaky(witness, 2), name="call", effect=effect, retry=5))

    handle = engine.start(flow)
    assert handle.result(10) == "done"
    assert witness.counts["call"] == 3
    session = handle.session
    assert [e.attempt for e in of_type(session, "ActivityStarted")] == [1, 2, 3]
    assert [e.attempt for e in of_type(session, "ActivityRetried")] == [1, 2]
    assert [e.attempt for e in of_type(session, "ActivityCompleted")] == [3]
    assert [(b["error_type"], b["error"]) for b in bodies(session, "ActivityRetried")] == [("ConnectionError", "not now")] * 2
    assert session.state().execution_state.retried == 2


def test_after_the_last_attempt_the_error_of_the_last_is_raised_and_logged_once(engine: Engine, witness: Witness) -> None:
    @workflow
    async def flow(ctx: Context) -> None:
        await ctx.run(Flaky(witness, 99), name="call", effect="none", retry=3)

    handle = engine.start(flow)
    session = engine.ended(handle, "failed")
    assert witness.counts["call"] == 3
    assert len(of_type(session, "ActivityFailed")) == 1
    assert handle.outcome is not None
    assert isinstance(handle.outcome.error, ActivityError)
    assert handle.outcome.error.error_type == "ConnectionError"


def test_waits_grow_by_the_factor_up_to_the_maximum_with_jitter_on_top(
    engine: Engine, witness: Witness, clock: FakeClock
) -> None:
    policy = Retry(7, initial_s=1, factor=3, max_s=20, jitter_s=0.5)

    @workflow
    async def flow(ctx: Context) -> None:
        await ctx.run(Flaky(witness, 99), name="call", effect="none", retry=policy)

    engine.ended(engine.start(flow), "failed")
    waits = clock.slept
    assert len(waits) == 6
    for wait, base in zip(waits, [1, 3, 9, 20, 20, 20], strict=True):
        assert base <= wait <= base + 0.5
    assert len({round(w % 1, 6) for w in waits}) == 6  # a random part each time
    logged = [b["wait_s"] for b in bodies(engine.handles[0].session, "ActivityRetried")]
    assert logged == pytest.approx(waits, abs=0.001)


def test_without_a_policy_nothing_is_tried_again(engine: Engine, witness: Witness) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(Flaky(witness, 1), name="call")

    engine.ended(engine.start(flow), "failed")
    assert witness.counts["call"] == 1


def test_only_the_listed_exceptions_are_tried_again(engine: Engine, witness: Witness) -> None:
    @workflow
    async def flow(ctx: Context, listed: bool) -> str:
        f = Flaky(witness, 1, ConnectionResetError if listed else ValueError)
        return str(await ctx.run(f, name="call", effect="none", retry=Retry(3, on=(ConnectionError, TimeoutError))))

    assert engine.start(flow, True).result(10) == "done"
    assert witness.counts["call"] == 2
    other = Witness(witness.path.with_name("other"))
    witness.path.write_text("")
    session = engine.ended(engine.start(flow, False), "failed")
    assert witness.counts["call"] == 1
    assert of_type(session, "ActivityRetried") == []
    assert other.order == []


def test_the_call_overrides_what_the_activity_declares(engine: Engine, witness: Witness) -> None:
    declared = activity(effect="none", retry=5, name="call")(Flaky(witness, 99))

    @workflow
    async def flow(ctx: Context) -> None:
        await ctx.run(declared, retry=2)

    engine.ended(engine.start(flow), "failed")
    assert witness.counts["call"] == 2


@pytest.mark.parametrize("crash_in", [1, 2, 3])
def test_attempts_are_counted_across_crashes(engine: Engine, witness: Witness, crash_in: int) -> None:
    """No endless retrying by crashing: an attempt that was cut short counts, and each resume has at least one."""
    gates = {crash_in: Gate()}

    async def call() -> str:
        witness("call")
        number = witness.counts["call"]
        if number in gates:
            await gates[number].passing()
        raise ConnectionError(number)

    @workflow
    async def flow(ctx: Context) -> None:
        await ctx.run(call, effect="idempotent", retry=3)

    handle = engine.start(flow)
    gates[crash_in].reached()
    session = engine.crash(handle)
    engine.ended(engine.resume(handle, flow), "failed")
    assert [e.attempt for e in of_type(session, "ActivityStarted")] == [1, 2, 3] + ([4] if crash_in == 3 else [])
    assert witness.counts["call"] == (4 if crash_in == 3 else 3)


@pytest.mark.parametrize("effect", ["none", "irreversible"])
def test_a_stop_between_two_attempts_goes_on_with_the_next_number_and_asks_nobody(
    engine: Engine, witness: Witness, clock: FakeClock, effect: Any
) -> None:
    """The failed attempt is known to have failed, so nothing about the call is unknown."""
    clock.held = True

    @workflow
    async def flow(ctx: Context) -> str:
        return str(await ctx.run(Flaky(witness, 1), name="call", effect=effect, retry=3))

    handle = engine.start(flow)
    wait_until(lambda: clock.slept, what="the back-off")
    engine.ask(handle, "pause")
    session = engine.ended(handle, "interrupted")
    clock.held = False
    assert engine.resume(handle, flow, headless=True).result(10) == "done"
    assert [e.attempt for e in of_type(session, "ActivityStarted")] == [1, 2]
    assert of_type(session, "ApprovalRequested") == []


def test_a_retry_waits_on_the_tasks_clock_and_not_longer(engine: Engine, witness: Witness, clock: FakeClock) -> None:
    clock.held = True

    @workflow
    async def flow(ctx: Context) -> str:
        policy = Retry(2, initial_s=60, jitter_s=0)
        return str(await ctx.run(Flaky(witness, 1), name="call", effect="none", retry=policy))

    handle = engine.start(flow)
    wait_until(lambda: clock.slept, what="the back-off")
    clock.advance(59)
    assert not handle.wait(0.05)
    assert witness.counts["call"] == 1
    clock.advance(1)
    assert handle.result(10) == "done"


def test_a_redone_activity_has_all_its_attempts_again(engine: Engine, witness: Witness) -> None:
    @workflow
    async def flow(ctx: Context) -> None:
        try:
            await ctx.run(Flaky(witness, 99), name="call", effect="none", retry=3)
        except ActivityError:
            await ctx.approve("on?")

    handle = engine.start(flow, headless=True)
    session = engine.ended(handle, "suspended")
    assert witness.counts["call"] == 3
    engine.ended(engine.resume(session, flow, headless=True, redo=("call",)), "suspended")
    assert witness.counts["call"] == 6
