"""A network that is away and a disk or memory that is full are waited for, and are no failures of the work (R128-R131)."""

from __future__ import annotations

import email.utils
import errno
import os
import signal
import socket
import sys
import urllib.error
from collections.abc import Iterator
from email.message import Message

import pytest
from tests.run.harness import PATIENCE, Engine, Witness, bodies, of_type

from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.run import outage
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Effect, Retry, Workflow, workflow
from ipyagent_sessions.run.process import ChildDied
from ipyagent_sessions.testing import FakeClock, wait_until

FULL = OSError(errno.ENOSPC, "No space left on device")
DAY = 86_400.0
SUSPEND = Retry(1, then="suspend")


class TransportError(Exception):
    """As httpx has one."""


TransportError.__module__ = "httpx._exceptions"


class Answered(Exception):
    """An HTTP client's error with a response."""

    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(str(status))
        self.response = type("Response", (), {"status_code": status, "headers": headers or {}})()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionRefusedError(), "network"),
        (TimeoutError(), "network"),
        (socket.gaierror(-2, "unknown"), "network"),
        (OSError(errno.ENETUNREACH, "x"), "network"),
        (urllib.error.URLError(ConnectionResetError()), "network"),
        (type("ReadTimeout", (TransportError,), {})(), "network"),
        (Answered(429), "network"),
        (urllib.error.HTTPError("http://x", 503, "busy", Message(), None), "network"),
        (MemoryError(), "resources"),
        (FULL, "resources"),
        (ChildDied("f", -signal.SIGKILL), "resources"),
        (ChildDied("f", 1), None),
        (Answered(500), "network"),
        (Answered(502), "network"),
        (urllib.error.HTTPError("http://x", 504, "late", Message(), None), "network"),
        (Answered(501), None),
        (Answered(404), None),
        (urllib.error.HTTPError("http://x", 404, "no", Message(), None), None),
        (FileNotFoundError(errno.ENOENT, "x"), None),
        (ValueError("no"), None),
    ],
    ids=repr,
)
def test_an_error_is_told_by_its_class(error: BaseException, kind: str | None) -> None:
    assert outage.kind_of(error) == kind


def test_a_server_is_waited_for_as_long_as_it_asks() -> None:
    date = email.utils.formatdate(1_000_090, usegmt=True)
    assert outage.asked_wait(Answered(429, {"Retry-After": "7"}), 0) == 7
    assert outage.asked_wait(Answered(429, {"Retry-After": date}), 1_000_000) == 90
    assert outage.asked_wait(Answered(429, {"Retry-After": date}), 2_000_000) == 0
    assert outage.asked_wait(Answered(429, {"Retry-After": "soon"}), 0) == 0
    assert outage.asked_wait(Answered(429, {"Retry-After": "²"}), 0) == 0
    assert outage.asked_wait(Answered(429, {"Retry-After": "9" * 400}), 0) == 86_400, "nobody is waited for longer than a day"
    assert outage.asked_wait(ValueError(), 0) == outage.asked_wait(None, 0) == 0


@pytest.mark.parametrize(
    ("said", "waits"),
    [
        ("99999999999999", DAY),
        ("9" * 5000, DAY),
        ("Fri, 31 Dec 9999 23:59:59 GMT", DAY),
        ("\u00b2", 0),
        ("\u0661", 0),
        ("-5", 0),
    ],
)
def test_what_no_server_can_mean_is_no_wait_of_years_and_no_error(said: str, waits: float) -> None:
    assert outage.asked_wait(Answered(429, {"Retry-After": said}), 0) == waits


def test_a_wait_that_an_error_names_is_held_to_a_day_too() -> None:
    error = ValueError()
    for named, waits in ((1e15, DAY), (float("inf"), DAY), (float("nan"), DAY), (-1, 0), (2.5, 2.5)):
        error.retry_after_s = named  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # as clients do
        assert outage.asked_wait(error, 0) == waits


def test_a_server_that_asks_for_ages_is_asked_again_after_a_day(engine: Engine, witness: Witness, clock: FakeClock) -> None:
    busy = Answered(429, {"Retry-After": "99999999999999"})
    handle = engine.start(flow_of(witness, iter([busy]), "none", SUSPEND), recover=1)
    assert handle.result(PATIENCE) == "got it"
    assert clock.slept == [DAY]


def test_a_policy_is_ask_or_auto_with_a_number() -> None:
    assert (outage.policy("ask"), outage.policy("auto:3")) == (0, 3)
    for wrong in ("auto", "auto:0", "auto:x", "ask:1", "", "never"):
        with pytest.raises(UsageError):
            outage.policy(wrong)


def flow_of(witness: Witness, errors: Iterator[BaseException | None], effect: Effect, retry: Retry) -> Workflow:
    def fetch() -> str:
        witness("fetch")
        error = next(errors, None)
        if error is not None:
            raise error
        return "got it"

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        await ctx.run(abs, 1)
        return str(await ctx.run(fetch, effect=effect, retry=retry))

    return flow


@pytest.mark.parametrize("effect", ["none", "idempotent"])
@pytest.mark.parametrize(
    ("error", "retry", "reason"),
    [
        (FULL, Retry(1), "resources"),
        (MemoryError("no room"), Retry(1), "resources"),
        (ConnectionError("away"), SUSPEND, "network"),
    ],
)
def test_what_is_away_suspends_and_a_resume_tries_again(
    engine: Engine, witness: Witness, effect: Effect, error: Exception, retry: Retry, reason: str
) -> None:
    flow = flow_of(witness, iter([error]), effect, retry)
    handle = engine.start(flow)
    assert handle.wait(PATIENCE)
    system = handle.session.state().system_state
    assert (system.status, system.reason) == ("suspended", reason)
    assert type(error).__name__ in system.detail
    assert engine.resume(handle, flow).result(PATIENCE) == "got it"
    assert witness.order == ["fetch", "fetch"]


def test_a_network_fails_the_activity_where_the_policy_does_not_wait(engine: Engine, witness: Witness) -> None:
    handle = engine.start(flow_of(witness, iter([ConnectionError("away")]), "none", Retry(1)))
    assert handle.wait(PATIENCE)
    assert handle.session.state().system_state.status == "failed"


def test_an_irreversible_call_is_not_tried_again_by_itself(engine: Engine, witness: Witness) -> None:
    flow = flow_of(witness, iter([ConnectionError("away")]), "irreversible", SUSPEND)
    handle = engine.start(flow, recover=3)
    assert handle.wait(PATIENCE)
    assert handle.session.state().system_state.reason == "network"
    again = engine.resume(handle, flow, headless=True)
    assert again.wait(PATIENCE)
    assert handle.session.state().system_state.reason == "approval", "a person is asked whether it happened"
    assert witness.order == ["fetch"]


def test_auto_waits_longer_each_time_and_goes_on_by_itself(engine: Engine, witness: Witness, clock: FakeClock) -> None:
    errors = iter([FULL, FULL, None])
    handle = engine.start(flow_of(witness, errors, "none", Retry(1)), recover=3)
    assert handle.result(PATIENCE) == "got it"
    assert clock.slept == [5.0, 20.0]
    assert [b["reason"] for b in bodies(handle.session, "TaskSuspended")] == ["resources", "resources"]
    assert [b["cause"] for b in bodies(handle.session, "TaskResumed")] == ["resources", "resources"]
    assert "try 2 of 3" in bodies(handle.session, "TaskSuspended")[1]["resumes_when"]


def test_after_so_many_tries_it_is_suspended_for_a_person(engine: Engine, witness: Witness, clock: FakeClock) -> None:
    flow = flow_of(witness, iter([FULL] * 9), "none", Retry(1))
    handle = engine.start(flow, recover=2)
    assert handle.wait(PATIENCE)
    system = handle.session.state().system_state
    assert (system.status, system.reason) == ("suspended", "resources")
    assert "tried 2 times more" in system.detail
    assert witness.order == ["fetch"] * 3
    assert engine.resume(handle, flow).wait(PATIENCE)
    assert witness.order == ["fetch"] * 6, "the policy is the task's, and a resume has all its tries"


def test_a_wait_can_be_cancelled_and_survives_a_crash(engine: Engine, witness: Witness, clock: FakeClock) -> None:
    clock.held = True
    flow = flow_of(witness, iter([FULL]), "idempotent", Retry(1))
    handle = engine.start(flow, recover=2)
    wait_until(lambda: clock.slept, what="the wait to begin")
    session = engine.crash(handle)
    assert session.effective_state() == "suspended"
    clock.held = False
    assert engine.resume(session, flow).result(PATIENCE) == "got it"
    clock.held = True
    other = engine.start(flow_of(witness, iter([FULL]), "idempotent", Retry(1)), recover=2)
    count = len(clock.slept)
    wait_until(lambda: len(clock.slept) > count or of_type(other.session, "TaskSuspended"), what="the wait to begin")
    engine.ask(other, "cancel")
    engine.ended(other, "cancelled")


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
def test_a_child_that_the_system_kills_is_read_as_short_of_memory(engine: Engine) -> None:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(die, isolate="process")

    handle = engine.start(flow)
    assert handle.wait(PATIENCE * 3)
    assert handle.session.state().system_state.reason == "resources"


def test_a_resume_may_give_the_task_another_policy_which_stays(engine: Engine, witness: Witness, clock: FakeClock) -> None:
    flow = flow_of(witness, iter([FULL] * 9), "none", Retry(1))
    handle = engine.start(flow, recover=2)
    assert handle.wait(PATIENCE)
    assert engine.resume(handle, flow, recover=0).wait(PATIENCE)
    assert witness.order == ["fetch"] * 4, "it asks now, although it was started with auto"
    assert handle.session.state().system_state.recover == 0
    assert engine.resume(handle, flow, recover=1).wait(PATIENCE)
    assert engine.resume(handle, flow).wait(PATIENCE)
    assert witness.order == ["fetch"] * 8


def test_a_wait_says_in_the_card_when_it_goes_on(engine: Engine, witness: Witness, clock: FakeClock) -> None:
    handle = engine.start(flow_of(witness, iter([FULL, None]), "none", Retry(1)), recover=1)
    assert handle.result(PATIENCE) == "got it"
    assert "it goes on by itself at" in bodies(handle.session, "TaskSuspended")[0]["detail"]
