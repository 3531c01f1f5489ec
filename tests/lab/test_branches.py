"""Forks from a page: what one would mean before it is made, and two sessions side by side."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from ipyagent_lab.testing import Api, finished, summarised
from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import as_raw
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.lease import this_process
from ipyagent_sessions.serving.branches import aftermath
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.views.compare import MOST, compare


def begun(store: Store) -> tuple[Session, Appender]:
    """A session whose task has just started, and its log."""
    session = store.create(title="clean up")
    log = session.append(this_process(by="tests"))
    log.emit("TaskQueued", p.TaskQueued("lib:tidy"), task_id=f"{session.id}.1", actor="user")
    log.emit("TaskStarted", p.TaskStarted(), task_id=f"{session.id}.1")
    return session, log


def did(log: Appender, name: str, result: Any, effect: str = "none") -> None:
    """An activity from its start to its result."""
    task = log.state.system_state.task_id
    log.emit("ActivityStarted", p.ActivityStarted(name, effect=effect), task_id=task, activity_id=f"/{name}")
    log.emit("ActivityCompleted", p.ActivityCompleted(name, result=as_raw(result)), task_id=task, activity_id=f"/{name}")


@pytest.fixture
def effects(real: Store) -> Session:
    """Activity a (events 4, 5), a deletion (6, 7), a file (8), and b, which is open (9)."""
    session, log = begun(real)
    did(log, "a", 1)
    did(log, "delete", "gone", "irreversible")
    log.emit("FileWritten", p.FileWritten("report.md", "0" * 64), task_id=f"{session.id}.1")
    log.emit("ActivityStarted", p.ActivityStarted("b"), task_id=f"{session.id}.1", activity_id="/b")
    log.close()
    summarised(session)
    return session


async def test_what_was_done_to_the_world_after_an_event_is_told_before_a_fork(effects: Session, api: Api) -> None:
    after_a = await api.get("sessions", effects.id, "aftermath", at=5)
    assert after_a["effects"] == ["irreversible activity /delete", "file report.md"]
    assert (after_a["nearest"], after_a["open"], after_a["ended"], after_a["more"]) == (5, [], False, 0)
    assert (await api.get("sessions", effects.id, "aftermath", at=7))["effects"] == ["file report.md"]
    assert (await api.get("sessions", effects.id, "aftermath", at=8))["effects"] == []


async def test_inside_an_open_activity_the_nearest_event_before_it_is_offered(effects: Session, api: Api) -> None:
    inside = await api.get("sessions", effects.id, "aftermath", at=9)
    assert (inside["open"], inside["nearest"]) == (["/b"], 8)
    newest = await api.get("sessions", effects.id, "aftermath")
    assert newest["at"] == 9
    child = await api.post("sessions", effects.id, "fork", at=inside["nearest"], direction="leave it")
    assert (child["status"], child["at"]) == (201, 8)


async def test_a_fork_may_have_a_workspace_of_its_own(real: Store, api: Api, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("as it was")
    session = real.create(title="clean up", notebook=str(tmp_path / "work" / "a.ipynb"))
    with contextlib.closing(session.append(this_process(by="tests"))) as log:
        log.emit("TaskQueued", p.TaskQueued("lib:tidy"), task_id=f"{session.id}.1", actor="user")
        log.emit("TaskStarted", p.TaskStarted(), task_id=f"{session.id}.1")
    summarised(session)
    made = await api.post("sessions", session.id, "fork", isolate=True)
    folder = real.session(made["session_id"]).workspace
    assert folder is not None
    assert (folder / "a.txt").read_text() == "as it was"
    assert folder != tmp_path / "work"


async def test_a_fork_of_a_session_without_a_known_folder_gets_no_workspace(effects: Session, api: Api) -> None:
    refused = await api.refused(api.post("sessions", effects.id, "fork", at=8, isolate=True))
    assert "is not known here" in refused["message"]


async def test_before_a_task_began_and_behind_the_end_there_is_nothing_to_fork(effects: Session, api: Api) -> None:
    assert (await api.refused(api.get("sessions", effects.id, "aftermath", at=1)))["error"] == "UsageError"
    assert (await api.refused(api.get("sessions", effects.id, "aftermath", at=99)))["error"] == "NotFound"


def test_of_an_ended_task_it_is_said_that_it_has_ended(real: Store) -> None:
    session = finished(real)
    assert aftermath(session, 0).ended
    assert not aftermath(session, session.last_seq() - 1).ended


async def test_a_fork_and_its_parent_differ_in_what_came_after_they_parted(real: Store, api: Api) -> None:
    parent, log = begun(real)
    did(log, "a", 1)
    at = log.state.seq
    did(log, "b", "left")
    did(log, "big", "x" * 5000)
    did(log, "only", [1])
    log.close()
    summarised(parent)
    child = parent.fork(at, title="other way")
    other = child.append(this_process(by="tests"))
    did(other, "b", "right")
    did(other, "big", "x" * 5000)
    other.emit("StateChanged", p.StateChanged("mood", as_raw("calm")), task_id=other.state.system_state.task_id)
    other.close()
    summarised(child)
    found = await api.get("sessions", parent.id, "compare", **{"with": child.id})
    assert (found["left"]["title"], found["right"]["title"]) == ("clean up", "other way")
    assert found["right"]["card"]["session_id"] == child.id
    assert (found["comparison"]["parted_in"], found["comparison"]["parted_at"]) == (parent.id, at)
    assert found["comparison"]["differences"] == [
        {"what": "result", "name": "b", "left": '"left"', "right": '"right"'},
        {"what": "result", "name": "only", "left": "[1]", "right": None},
        {"what": "value", "name": "mood", "left": None, "right": '"calm"'},
    ]
    assert found["comparison"]["same"] == 2, "a, and the large one, which both did anew"


def test_sessions_with_nothing_in_common_are_met_by_their_activities(real: Store) -> None:
    (one, log), (two, other) = begun(real), begun(real)
    for n in range(MOST + 5):
        did(log, f"n{n}", n)
        did(other, f"n{n}", n if n < 5 else -n)
    log.close()
    other.close()
    found = compare(one, two)
    assert (found.parted_in, found.parted_at) == (None, None)
    assert (len(found.differences), found.same, found.more) == (MOST, 5, 0)


async def test_a_conversation_is_read_without_the_rest_of_the_log(real: Store, api: Api) -> None:
    session, log = begun(real)
    task = f"{session.id}.1"
    did(log, "a", 1)
    log.emit("MessageAdded", {"role": "user", "text": "hello"}, task_id=task, ignorable=True)
    for event_type, body in (
        ("ActivityStarted", p.ActivityStarted("gpt", "model")),
        ("ActivityCompleted", p.ActivityCompleted("gpt", "model")),
    ):
        log.emit(event_type, body, task_id=task, activity_id="/gpt")
    did(log, "b", 1)
    log.close()
    summarised(session)
    page = await api.get("sessions", session.id, "events", only="talk")
    assert [e["event_type"] for e in page["events"]] == ["TaskQueued", "MessageAdded", "ActivityStarted", "ActivityCompleted"]
    assert (page["until"], page["next"]) == (session.last_seq(), None)
    part = await api.get("sessions", session.id, "events", only="talk", limit=2)
    rest = await api.get("sessions", session.id, "events", only="talk", after=part["next"])
    assert part["events"] + rest["events"] == page["events"]
    assert (await api.refused(api.get("sessions", session.id, "events", only="x")))["error"] == "UsageError"
