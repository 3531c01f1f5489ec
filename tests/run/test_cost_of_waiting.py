"""What a task costs its process while it waits: at most one thread and two file descriptors."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil
import pytest

from ipyagent_sessions import Store, run_workflow
from ipyagent_sessions.run import control
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import workflow
from ipyagent_sessions.run.worker import TaskHandle
from ipyagent_sessions.testing import wait_until

WAITING = 50


def plain(number: int) -> int:
    return number + 1


@workflow(default_effect="none")
async def asks(ctx: Context, number: int) -> int:
    done = await ctx.run(plain, number)  # in a thread, since it is not async
    await ctx.approve("Go on?")
    return int(done)


def pulses() -> int:
    return sum(t.name == "ipyagent-pulse" for t in threading.enumerate())


def wait_for_questions(handles: list[TaskHandle]) -> None:
    wait_until(lambda: all(h.run is not None and h.run.answers for h in handles), timeout=60, what="every task to ask")


@pytest.mark.skipif(not hasattr(psutil.Process, "num_fds"), reason="there are no file descriptors to count")
def test_a_waiting_task_costs_one_thread_and_two_descriptors_and_all_beat_in_one(tmp_path: Path) -> None:
    process = psutil.Process()
    handles = [run_workflow(Store(tmp_path), asks, (0,))]  # imports, and begins the pulse
    wait_for_questions(handles)
    threads, files = threading.active_count(), process.num_fds()
    handles += [run_workflow(Store(tmp_path), asks, (number,)) for number in range(1, WAITING + 1)]
    wait_for_questions(handles)
    wait_until(lambda: threading.active_count() <= threads + WAITING, timeout=30, what="idle threads to end")
    wait_until(lambda: process.num_fds() <= files + 2 * WAITING, timeout=30, what="the files of resting journals to be closed")
    assert pulses() == 1
    for handle in handles:
        asked = handle.session.state().execution_state.approvals["a1"]
        control.request(
            handle.session, "answer", actor="user", wait_s=30, approval_id="a1", answer="approved", digest=asked.digest
        )
    assert [handle.result(30) for handle in handles] == list(range(1, WAITING + 2))
    wait_until(lambda: pulses() == 0, what="the pulse to end")
