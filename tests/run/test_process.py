"""`isolate="process"`: work that can be killed, that dies with its parent, and whose end is told (R029, R134)."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.run.harness import PATIENCE, Engine, Witness, bodies

from ipyagent_sessions.errors import ActivityError, ActivityTimeout
from ipyagent_sessions.run import process
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Done, Retry, activity, workflow
from ipyagent_sessions.testing import Child, wait_until

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals and process groups of Unix"),
    pytest.mark.skipif(
        find_spec("cloudpickle") is None and "IPYAGENT_TEST_INSTALLED" not in os.environ,
        reason="cloudpickle, which the wheel requires, is not in this environment",
    ),
]


@pytest.fixture(autouse=True)
def _functions_travel_by_value() -> Iterator[None]:
    """As those of a notebook do: a child cannot import a test module."""
    import cloudpickle

    here = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(here)
    yield
    cloudpickle.unregister_pickle_by_value(here)


def add(a: int, b: int = 1) -> tuple[int, int]:
    return a + b, os.getpid()


async def add_async(a: int, b: int = 1) -> tuple[int, int]:
    return a + b, os.getpid()


def report_and_hang(path: str) -> None:
    """Write one's pid and those of children of one's own, of which one leaves the session; then never end."""
    import subprocess

    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    started = [subprocess.Popen(sleep, start_new_session=apart).pid for apart in (False, True)]
    Path(path + ".tmp").write_text(" ".join(map(str, [os.getpid(), *started])))
    os.replace(path + ".tmp", path)
    time.sleep(600)


def pids(path: Path) -> list[int]:
    wait_until(path.exists, timeout=PATIENCE, what="the child to report")
    return [int(n) for n in path.read_text().split()]


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("function", [add, add_async])
def test_it_runs_in_a_process_of_its_own_with_arguments_and_value_intact(engine: Engine, function: Any) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> tuple[int, int]:
        value: tuple[int, int] = await ctx.run(activity(isolate="process")(function), 2, b=3)
        return value

    value, pid = engine.start(flow).result(30)
    assert value == 5
    assert pid != os.getpid()


def test_exceptions_travel(engine: Engine) -> None:
    def broken() -> None:
        raise LookupError("inside")

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(broken, isolate="process")

    handle = engine.start(flow)
    session = engine.ended(handle, "failed")
    assert (bodies(session, "ActivityFailed")[0]["error_type"], bodies(session, "ActivityFailed")[0]["error"]) == (
        "LookupError",
        "inside",
    )


class Odd(Exception):
    """Its class wants more than the text that it hands on, as many do."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(f"{code}: {why}")
        self.code = code


class Unpicklable(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("not this one")


def raises_odd() -> None:
    raise Odd(7, "no luck")


def raises_unpicklable() -> None:
    raise Unpicklable("held a lock")


@pytest.mark.parametrize(
    ("broken", "kind", "text", "code", "tries"),
    [(raises_odd, "Odd", "7: no luck", 7, 2), (raises_unpicklable, "Unpicklable", "held a lock", None, 1)],
)
def test_an_error_travels_as_it_was_whatever_its_class_wants(
    engine: Engine, broken: Any, kind: str, text: str, code: int | None, tries: int
) -> None:
    seen: list[Any] = []

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        try:
            await ctx.run(broken, isolate="process", retry=Retry(2, initial_s=0.0, jitter_s=0.0, on=(Odd,)))
        except ActivityError as raised:
            seen.append(getattr(raised.__cause__, "code", None))
            raise

    session = engine.ended(engine.start(flow), "failed")
    (failed,) = bodies(session, "ActivityFailed")
    assert (failed["error_type"], failed["error"]) == (kind, text)
    assert len(bodies(session, "ActivityStarted")) == tries
    assert seen == [code]


def test_a_signal_without_a_name_is_told_by_its_number() -> None:
    assert "signal 40 and" in process.ChildDied("f", -40).message
    assert "signal SIGKILL and" in process.ChildDied("f", -9).message


def test_its_prints_do_not_garble_the_answer(engine: Engine) -> None:
    def talks() -> int:
        print("x" * 100_000)
        os.write(1, b"raw")
        return 7

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> int:
        return int(await ctx.run(talks, isolate="process"))

    assert engine.start(flow).result(30) == 7


def test_at_its_timeout_it_and_its_children_are_killed(engine: Engine, tmp_path: Path) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        try:
            await ctx.run(report_and_hang, str(tmp_path / "pids"), isolate="process", timeout=3)
        except ActivityTimeout as error:
            return f"still running: {error.still_running}"
        return ""

    handle = engine.start(flow)
    found = pids(tmp_path / "pids")
    assert handle.result(30) == "still running: False"
    wait_until(lambda: all(map(gone, found)), timeout=PATIENCE, what=f"{found} to be gone")


def test_cancel_kills_it_and_its_children_within_five_seconds(engine: Engine, tmp_path: Path) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(report_and_hang, str(tmp_path / "pids"), isolate="process")

    handle = engine.start(flow)
    found = pids(tmp_path / "pids")
    begun = time.monotonic()
    handle.ask("cancel", "user:anna")
    engine.ended(handle, "cancelled")
    wait_until(lambda: all(map(gone, found)), timeout=5, what=f"{found} to be gone")
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSEGV])
def test_a_child_that_a_signal_ended_is_reported_with_it(engine: Engine, witness: Witness, number: signal.Signals) -> None:
    def dies(number: int) -> None:
        os.kill(os.getpid(), number)
        time.sleep(60)

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(dies, int(number), isolate="process")

    session = engine.ended(engine.start(flow), "failed")
    (failed,) = bodies(session, "ActivityFailed")
    assert failed["error_type"] == "ChildDied"
    assert f"signal {number.name}" in failed["error"]


def test_a_child_that_exits_is_reported_with_its_code_and_tried_again(engine: Engine, witness: Witness) -> None:
    path = str(witness.path)

    def dies_once() -> str:
        with open(path, "a") as file:
            file.write("call\n")
        with open(path) as file:
            if len(file.readlines()) == 1:
                os._exit(7)
        return "done"

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        return str(await ctx.run(dies_once, isolate="process", retry=Retry(2, initial_s=0, jitter_s=0)))

    handle = engine.start(flow)
    assert handle.result(30) == "done"
    assert "exit code 7" in bodies(handle.session, "ActivityRetried")[0]["error"]
    assert witness.counts["call"] == 2


def test_neither_a_child_nor_what_it_started_outlives_a_killed_parent(tmp_path: Path) -> None:
    code = """
import asyncio, sys, time
from pathlib import Path
from ipyagent_sessions.run import process
def hang(path):
    import os, subprocess, sys, time
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    started = [subprocess.Popen(sleep, start_new_session=apart).pid for apart in (False, True)]
    Path(path + ".tmp").write_text(" ".join(map(str, [os.getpid(), *started])))
    os.replace(path + ".tmp", path)
    time.sleep(600)
asyncio.run(process.call("hang", hang, (sys.argv[1],), {}))
"""
    with Child(code, str(tmp_path / "pid")) as parent:
        found = pids(tmp_path / "pid")
        assert not any(map(gone, found))
        parent.kill()
        wait_until(lambda: all(map(gone, found)), timeout=PATIENCE, what="all of them to end with the parent")


def test_an_exception_that_cannot_travel_is_told_as_text(engine: Engine) -> None:
    def broken() -> None:
        import threading

        raise ValueError(threading.Lock())

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        try:
            await ctx.run(broken, isolate="process")
        except ActivityError as error:
            return error.error
        return ""

    assert "ValueError: <unlocked _thread.lock" in engine.start(flow).result(30)


def test_an_irreversible_call_whose_process_died_is_verified_before_it_is_tried_again(engine: Engine, tmp_path: Path) -> None:
    path = str(tmp_path / "called")

    def pay(path: str) -> None:
        with open(path, "a") as file:
            file.write("x")
        os.kill(os.getpid(), 9)

    @workflow
    async def flow(ctx: Context) -> None:
        await ctx.run(activity(effect="irreversible", isolate="process", retry=3, verify=lambda path: Done("paid"))(pay), path)

    handle = engine.start(flow)
    handle.result(30)
    assert Path(path).read_text() == "x"
    (cut,) = bodies(handle.session, "ActivityFailed")
    assert (cut["error_type"], cut["aborted"]) == ("ChildDied", True)
