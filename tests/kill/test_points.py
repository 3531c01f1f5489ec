"""Deaths at one chosen moment each, where two writes that belong together could come apart."""

from __future__ import annotations

import signal

import pytest
from tests.kill import looks
from tests.kill.bench import WAIT_S, Bench

from ipyagent_sessions import payloads
from ipyagent_sessions.errors import ControlRefused
from ipyagent_sessions.log import inbox
from ipyagent_sessions.log.lease import this_process
from ipyagent_sessions.run import control
from ipyagent_sessions.testing import wait_until

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("seam", ["before journal write", "after journal sync"])
@pytest.mark.parametrize("at", range(1, 5))
def test_a_call_that_dies_right_after_it_was_queued_is_continued_by_the_same_call(bench: Bench, seam: str, at: int) -> None:
    assert bench.run(seam=seam, at=at) == -signal.SIGKILL

    bench.run(headless=True)

    assert len([t for s in looks.with_header(bench.store) for t in s.state().tasks]) == 1


def test_an_answer_whose_request_was_logged_alone_is_given_all_the_same(bench: Bench) -> None:
    """Request and answer are two events: when a death comes between them, the next holder adds the second."""
    bench.run(headless=True)
    session = bench.session()
    (approval_id,) = bench.waiting()
    digest = session.state().execution_state.approvals[approval_id].digest
    bench.run(
        role="door",
        session=session.id,
        seam="before journal write",
        at=1,
        answer={"approval_id": approval_id, "answer": "approved", "digest": digest},
    )
    (asked,) = inbox.waiting(session.layout)
    appender = session.append(this_process(by="half a door"))
    body = payloads.ControlRequested(asked.id, "answer", "accepted", "", asked.args)
    appender.emit("ControlRequested", body, task_id=asked.task_id, actor=asked.actor)
    appender.close()

    state = control.attend(session, by="sweeper")

    assert state.execution_state.approvals[approval_id].answer == "approved"
    assert not inbox.waiting(session.layout)
    with pytest.raises(ControlRefused):
        control.request(session, "answer", actor="user", approval_id=approval_id, answer="denied")


def test_a_refused_answer_that_was_logged_is_not_given_later(bench: Bench) -> None:
    bench.run(headless=True)
    session = bench.session()
    (approval_id,) = bench.waiting()
    digest = session.state().execution_state.approvals[approval_id].digest
    args = {"approval_id": approval_id, "answer": "approved", "digest": digest}
    inbox.put(
        session.layout, inbox.Control("c1", "answer", "user", "2026-01-01T00:00:00.000Z", None, [], args), bench.store.disk
    )
    appender = session.append(this_process(by="half a door"))
    appender.emit("ControlRequested", payloads.ControlRequested("c1", "answer", "refused", "stale", args), actor="user")
    appender.close()

    state = control.attend(session, by="sweeper")

    assert state.execution_state.approvals[approval_id].answer is None


def test_a_cancellation_that_was_accepted_is_carried_out_after_a_death(bench: Bench) -> None:
    child = bench.start(seam="after control logged", at=1)
    wait_until(lambda: bench.sessions() and bench.waiting(), timeout=WAIT_S, what="an open approval")
    session = bench.session()
    outcome = control.request(session, "cancel", actor="user", reason="enough")
    assert outcome.outcome == "accepted"
    assert child.wait(WAIT_S) == -signal.SIGKILL

    bench.run(role="resume", session=session.id)

    assert session.state().system_state.status == "cancelled"
    assert not inbox.waiting(session.layout)
