"""What a person asks of a task through the server: logged, by whom, or refused with a reason."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from ipyagent_lab.routes import base
from ipyagent_lab.service import Service
from ipyagent_lab.testing import ASKING, LONG, Api, finished, until
from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import payload_of
from ipyagent_sessions.log.lease import this_process
from ipyagent_sessions.serving.asking import expected
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import Child


@pytest.fixture
def asking(real: Store) -> Session:
    """A suspended session with a question; nobody holds its lease."""
    with Child(ASKING, str(real.root), "") as child:
        return real.session(child.expect("session"))


@pytest.fixture
def running(real: Store) -> Iterator[tuple[Session, Child]]:
    """A session whose task runs in another process."""
    with Child(LONG, str(real.root)) as child:
        yield real.session(child.expect("session")), child


def logged(session: Session, event_type: str) -> list[dict[str, Any]]:
    return [{"actor": e.actor, **payload_of(e)} for e in session.events() if e.event_type == event_type]


async def ask_of(api: Api, session: Session) -> dict[str, Any]:
    """The first question of a session, as a page shows it."""
    ask: dict[str, Any] = (await api.get("sessions", session.id))["shown"]["card"]["asks"][0]
    return ask


async def test_an_answer_is_logged_once_with_who_gave_it_while_nobody_runs_the_task(asking: Session, api: Api) -> None:
    ask = await ask_of(api, asking)
    assert (ask["question"], ask["details"]) == ("Delete the originals?", '["a.csv","b.csv"]')
    args = {"approval_id": ask["approval_id"], "answer": "approved", "digest": ask["digest"]}
    body = {"action": "answer", "task_id": f"{asking.id}.1", "expects": ["suspended"], "args": args}
    done = await api.post("sessions", asking.id, "control", **body)
    assert (done["status"], done["outcome"]) == (200, "accepted")
    [resolved] = logged(asking, "ApprovalResolved")
    assert resolved["answer"] == "approved"
    assert resolved["actor"].startswith("user:")
    assert resolved["actor"].endswith("@server")
    again = await api.refused(api.post("sessions", asking.id, "control", **body))
    assert (again["error"], again["status"]) == ("ControlRefused", 409)
    assert "it was approved by user:" in again["message"]
    assert len(logged(asking, "ApprovalResolved")) == 1
    assert (await api.get("sessions", asking.id))["shown"]["card"]["asks"] == []


async def test_an_answer_to_something_else_than_what_was_shown_is_refused(asking: Session, api: Api) -> None:
    ask = await ask_of(api, asking)
    args = {"approval_id": ask["approval_id"], "answer": "approved", "digest": "0" * len(ask["digest"])}
    problem = await api.refused(
        api.post("sessions", asking.id, "control", action="answer", task_id=f"{asking.id}.1", args=args)
    )
    assert problem["status"] == 409
    assert "what was shown is not what is asked now" in problem["message"]
    for digest in ({}, {"digest": ""}):
        args = {"approval_id": ask["approval_id"], "answer": "approved", **digest}
        problem = await api.refused(
            api.post("sessions", asking.id, "control", action="answer", task_id=f"{asking.id}.1", args=args)
        )
        assert (problem["error"], problem["status"]) == ("UsageError", 400)
    assert logged(asking, "ApprovalResolved") == []


async def test_the_holder_in_another_process_pauses_when_it_is_asked(running: tuple[Session, Child], api: Api) -> None:
    session, child = running
    body = {"action": "pause", "task_id": f"{session.id}.1", "expects": ["running"]}
    await until(lambda: session.state().system_state.status == "running", "it runs")
    assert (await api.post("sessions", session.id, "control", **body))["outcome"] == "accepted"
    await asyncio.to_thread(child.expect, "ended interrupted")
    [row] = (await api.get("sessions"))["rows"]
    shown = (await until(lambda: shown_as(api, session, "interrupted"), "the card says so"))["card"]
    assert (row["session_id"], shown["state"]) == (session.id, "interrupted")
    late = await api.refused(api.post("sessions", session.id, "control", **body))
    assert "the task is interrupted now" in late["message"]


async def shown_as(api: Api, session: Session, state: str) -> Any:
    shown = (await api.get("sessions", session.id))["shown"]
    return shown if shown["card"]["state"] == state else None


async def test_a_stopped_holder_makes_a_request_wait_and_the_server_goes_on_meanwhile(
    running: tuple[Session, Child], api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, child = running
    await until(lambda: session.state().system_state.status == "running", "it runs")
    child.stop()
    asked = asyncio.ensure_future(api.post("sessions", session.id, "control", action="cancel", task_id=f"{session.id}.1"))
    await until(lambda: list(session.layout.inbox.glob("*.json")), "the request lies in the inbox")
    for _ in range(20):
        await api.get("status")
        await api.get("sessions", session.id)
    assert not asked.done(), "twenty answers were given while the request waited"
    pending = await asked
    assert (pending["status"], pending["outcome"]) == (202, "pending")
    child.wake()
    await asyncio.to_thread(child.expect, "ended cancelled")
    assert [c.get("outcome", "accepted") for c in logged(session, "ControlRequested")] == ["accepted"]


async def test_a_rename_changes_the_list_at_once(asking: Session, api: Api) -> None:
    await api.post("sessions", asking.id, "control", action="rename", args={"title": "Tidy up <b>"})
    assert (await api.get("sessions"))["rows"][0]["title"] == "Tidy up <b>"


async def test_a_checkpoint_can_be_asked_for_and_is_listed(asking: Session, api: Api) -> None:
    await api.post("sessions", asking.id, "control", action="checkpoint", task_id=f"{asking.id}.1", args={"label": "before"})
    assert [c["label"] for c in (await api.get("sessions", asking.id))["checkpoints"]][-1] == "before"


async def test_resume_is_refused_with_who_can_do_it(asking: Session, api: Api) -> None:
    problem = await api.refused(api.post("sessions", asking.id, "control", action="resume", task_id=f"{asking.id}.1"))
    assert problem["status"] == 409
    assert "kernel or terminal" in problem["message"]


async def test_a_lost_task_may_be_cancelled_by_a_person_who_saw_that_it_is_lost(
    running: tuple[Session, Child], idle: Service, jp_fetch: Any
) -> None:
    session, child = running
    await until(lambda: session.state().system_state.status == "running", "it runs")
    await asyncio.to_thread(child.kill)
    api = Api(jp_fetch)
    done = await api.post(
        "sessions",
        session.id,
        "control",
        action="cancel",
        task_id=f"{session.id}.1",
        expects=["lost"],
        args={"reason": "no longer needed"},
    )
    assert done["outcome"] == "accepted"
    assert logged(session, "TaskSuspended")[-1]["reason"] == "worker_lost"
    assert logged(session, "TaskCancelled")[-1]["reason"] == "no longer needed"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"action": "explode"},
        {"action": "redo", "args": {}},
        {"action": "pause"},
        {"action": "pause", "task_id": 7},
        {"action": "pause", "task_id": "t", "args": {"wait_s": 1e9}},
        {"action": "cancel", "task_id": "t", "session": "x"},
        {"action": "cancel", "task_id": "t", "args": {"actor": "user:root@cli"}},
        {"action": "cancel", "task_id": "t", "args": []},
        {"action": "cancel", "task_id": "t", "expects": ["nowhere"]},
        {"action": "rename", "args": {"title": "x" * 3000}},
        {"action": "cancel", "task_id": "t", "expects": ["running"] * 100},
        {"action": "answer", "task_id": "t", "args": {"approval_id": "a", "answer": "maybe", "digest": "d"}},
    ],
)
async def test_a_body_that_is_not_in_the_contract_is_refused_and_writes_nothing(
    body: dict[str, Any], real: Store, api: Api
) -> None:
    session = finished(real)
    problem = await api.refused(api.post("sessions", session.id, "control", **body))
    assert (problem["error"], problem["status"]) == ("UsageError", 400)
    assert not session.layout.inbox.exists()


async def test_bodies_are_bounded_and_have_to_be_json(real: Store, api: Api, jp_fetch: Any) -> None:
    session = finished(real)
    for raw, status in ((b"{", 400), (b"\xff\xfe", 400), (b"[" * 60_000, 400), (b" " * (base.MAX_BODY + 1), 413)):
        for route in ("control", "fork"):
            problem = await api.refused(jp_fetch("ipyagent", "api", "sessions", session.id, route, method="POST", body=raw))
            assert problem["status"] == status


async def test_a_request_to_a_damaged_session_says_so(real: Store, api: Api) -> None:
    session = finished(real)
    session.layout.header.write_text("{")
    problem = await api.refused(api.post("sessions", session.id, "control", action="rename", args={"title": "x"}))
    assert (problem["error"], problem["status"]) == ("DamageError", 422)
    assert not session.layout.inbox.exists()


async def test_more_waiting_requests_than_the_server_takes_are_turned_away(real: Store, idle: Service) -> None:
    release = asyncio.Event()
    loop = asyncio.get_running_loop()
    waiting = [
        asyncio.ensure_future(idle.ask(lambda: asyncio.run_coroutine_threadsafe(release.wait(), loop).result()))
        for _ in range(64)
    ]
    await asyncio.sleep(0)
    from ipyagent_sessions.errors import LeaseHeld

    with pytest.raises(LeaseHeld, match="64 requests wait"):
        await idle.ask(lambda: None)
    release.set()
    await asyncio.gather(*waiting)
    await idle.ask(lambda: None)


@pytest.mark.parametrize(
    ("shown", "logged_as"),
    [
        ([], []),
        (["running"], ["running"]),
        (["lost"], ["running", "suspended"]),
        (["queued", "lost"], ["queued", "running", "suspended"]),
    ],
)
def test_states_that_were_shown_are_understood(shown: list[str], logged_as: list[str]) -> None:
    assert expected(shown) == logged_as


async def test_an_approved_call_may_be_given_other_arguments_and_a_denied_one_may_not(asking: Session, api: Api) -> None:
    with contextlib.closing(asking.append(this_process(by="a test"))) as appender:
        called = p.ApprovalRequested("tool1", "May remove be called?", digest="d", kind="tool", tool="remove")
        appender.emit("ApprovalRequested", called, task_id=f"{asking.id}.1")
    ask = (await api.get("sessions", asking.id))["shown"]["card"]["asks"][1]
    told = {"approval_id": ask["approval_id"], "digest": ask["digest"]}
    edited: dict[str, Any] = {"arguments": {"paths": ["build/"], "n": 12345678901234567890, "x": None}, "always": True}
    body = {"action": "answer", "task_id": f"{asking.id}.1"}
    denied = api.post("sessions", asking.id, "control", **body, args={**told, **edited, "answer": "denied"})
    assert (await api.refused(denied))["error"] == "UsageError"
    listed = api.post("sessions", asking.id, "control", **body, args={**told, "answer": "approved", "arguments": [1]})
    assert (await api.refused(listed))["error"] == "UsageError"
    await api.post("sessions", asking.id, "control", **body, args={**told, **edited, "answer": "approved"})
    [logged_one] = logged(asking, "ControlRequested")
    assert {key: logged_one["args"][key] for key in edited} == edited, "as they were written, large numbers and nulls too"
