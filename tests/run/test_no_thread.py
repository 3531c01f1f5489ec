"""A process that can have no more threads: a call that cannot begin gives its lease back, and the same call goes on later."""

from __future__ import annotations

import re
import threading

import pytest
from tests.run.harness import PATIENCE, Engine, Gate, Witness

from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.run import launch
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow, workflow
from ipyagent_sessions.run.ticker import Ticker
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import wait_until

A_TASK = r"ipyagent-.*\.1$"


class NoThreads:
    """Refuses the threads whose names match until `mend` is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, names: str) -> None:
        real = threading.Thread.start
        self.names: str | None = names

        def start(thread: threading.Thread) -> None:
            if self.names is not None and re.match(self.names, thread.name):
                raise RuntimeError("can't start new thread")
            real(thread)

        monkeypatch.setattr(threading.Thread, "start", start)

    def mend(self) -> None:
        self.names = None


@pytest.fixture(params=[A_TASK, "ipyagent-"])
def none(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> NoThreads:
    """None for a task, or none at all."""
    return NoThreads(monkeypatch, request.param)


@pytest.fixture
def flow(witness: Witness, gate: Gate) -> Workflow:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        await ctx.run(witness, "step")
        await ctx.run(gate.passing)
        return "done"

    return flow


def test_the_same_call_goes_on_once_there_are_threads_again(
    engine: Engine, witness: Witness, gate: Gate, flow: Workflow, none: NoThreads
) -> None:
    with pytest.raises(RuntimeError, match="can't start new thread"):
        launch.launch(engine.store, flow)
    (session_id,) = engine.store.session_ids()
    assert not engine.store.session(session_id).held()
    none.mend()
    gate.open()
    again = launch.launch(engine.store, flow)
    assert again.handle is not None
    assert (again.session.id, again.handle.result(PATIENCE)) == (session_id, "done")
    assert witness.order == ["step"]


def test_a_resume_and_a_rerun_give_their_leases_back_too(
    engine: Engine, gate: Gate, flow: Workflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = engine.start(flow)
    gate.reached()
    session = engine.crash(handle)
    none = NoThreads(monkeypatch, A_TASK)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        engine.resume(session, flow).wait(0)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        launch.rerun(session, engine.store, flow).wait(0)
    assert [engine.store.session(i).held() for i in engine.store.session_ids()] == [False, False]
    none.mend()
    gate.open()
    assert engine.resume(session, flow).result(PATIENCE) == "done"


def test_a_log_is_closed_whose_own_threads_could_not_be_had(
    session: Session, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = NoThreads(monkeypatch, "ipyagent-")
    appender = session.append(me)
    event = appender.emit("Noted", {}, ignorable=True)
    appender.checkpoint("manual", "a")
    assert isinstance(appender.trouble, RuntimeError)
    none.mend()
    appender.emit("Noted", {}, ignorable=True)
    wait_until(lambda: appender.durable_seq > event.seq, what="the window, which is asked for again")
    appender.checkpoint("manual", "b")
    appender.close()
    assert not session.held()
    assert [i.label for i in session.checkpoints()] == ["a", "b"]


def test_a_pulse_without_a_thread_is_an_error_once_and_not_silence_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    ticker, beats = Ticker(), threading.Event()
    none = NoThreads(monkeypatch, "ipyagent-pulse")
    with pytest.raises(RuntimeError):
        ticker.add(lambda: None)
    none.mend()
    ticker.add(beats.set)
    assert beats.wait(PATIENCE)
    ticker.remove(beats.set)
