"""The notebook of a session tells what a reader needs to follow it, and each result once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import as_raw
from ipyagent_sessions.exchange import notebook, values
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import Session


def returned(appender: Appender, kind: str, name: str, result: Any) -> None:
    """An activity of an agent's turn, with its end."""
    where: dict[str, Any] = {"task_id": "t.1", "activity_id": f"main/{name}", "attempt": 1}
    appender.emit("ActivityStarted", p.ActivityStarted(name, kind=kind, args=as_raw([[]])), **where)
    appender.emit("ActivityCompleted", p.ActivityCompleted(name, kind=kind, result=as_raw(result)), **where)


def test_the_notebook_says_what_was_asked_about_and_what_was_undone(session: Session, me: Holder) -> None:
    appender = session.append(me)
    appender.emit("TaskQueued", p.TaskQueued("m:pay"), task_id="t.1")
    returned(appender, "step", "pay", 7)
    asked = as_raw({"tool": "run_shell", "arguments": {"command": "rm -r x <script> ```"}})
    appender.emit("ApprovalRequested", p.ApprovalRequested("a1", "May run_shell be called?", asked), task_id="t.1")
    changed = p.ApprovalResolved("a1", "approved", arguments=as_raw({"command": "ls x"}))
    appender.emit("ApprovalResolved", changed, task_id="t.1")
    appender.emit("ActivityCompensated", p.ActivityCompensated("pay"), task_id="t.1", activity_id="main/pay")
    refused = p.ActivityCompensated("pay", ok=False, error="no such order")
    appender.emit("ActivityCompensated", refused, task_id="t.1", activity_id="2/pay")
    appender.emit("TaskFailed", p.TaskFailed("ValueError", "no"), task_id="t.1")
    appender.close()
    made = notebook.notebook(session)
    (request,) = [c.source for c in made.cells if "**ApprovalRequested**" in c.source]
    assert "May run_shell be called?" in request
    assert "rm -r x <script>" in request
    assert "````" in request, "its fence is longer than any inside it"
    (answer,) = [c.source for c in made.cells if "**ApprovalResolved**" in c.source]
    assert '"command": "ls x"' in answer
    text = "\n".join(c.source for c in made.cells)
    assert "| ` main/pay ` | undone |  | ` undone: pay ` |" in text
    assert "| ` 2/pay ` | undoing failed |  | ` undoing failed: no such order ` |" in text
    assert "model request" not in text, "no model was asked"


def answered(appender: Appender, number: int, text: str, cost: float | None) -> None:
    used: dict[str, Any] = {"input_tokens": 900, "output_tokens": 40, "cost_usd": cost, "activity_id": f"main/model:{number}"}
    appender.emit("MessageAdded", p.MessageAdded("assistant", text, number), task_id="t.1", **used)
    returned(appender, "model", f"model:{number}", {"offered": ["look"]})


@pytest.mark.parametrize(("cost", "shown"), [(0.02, "$0.04"), (None, "cost unknown")])
def test_the_notebook_tells_an_agents_results_once_and_what_they_cost(
    session: Session, me: Holder, cost: float | None, shown: str
) -> None:
    appender = session.append(me)
    blobs: dict[str, bytes] = {}
    _, source = appender.put(b"async def converse(ctx): ...".ljust(40_000), blobs)
    queued = p.TaskQueued("ipyagent_sessions.agent.assistant:converse", kind="agent", source_blob=source)
    appender.emit("TaskQueued", queued, task_id="t.1", blobs=blobs)
    answered(appender, 1, "I look.", cost)
    returned(appender, "tool", "look:1.1", {"return": "seven files"})
    appender.emit("ApprovalRequested", p.ApprovalRequested("a1", "May more be called?"), task_id="t.1")
    returned(appender, "tool", "look:1.2", {"return": "eight files"})
    appender.emit("MessageAdded", p.MessageAdded("tool", "look: seven files\nlook: eight files", 2), task_id="t.1")
    answered(appender, 3, "Eight, I think.", cost)
    appender.emit("TaskCompleted", p.TaskCompleted(as_raw("Eight, I think.")), task_id="t.1")
    appender.close()
    cells = notebook.notebook(session).cells
    told = json.dumps([[c.source, c.get("outputs", [])] for c in cells])
    assert [told.count(said) for said in ("seven files", "eight files", "Eight, I think.", "offered", "converse(ctx)")] == [
        *(1, 1, 1),
        *(0, 0),
    ]
    assert f"2 model requests, 1.8 k tokens in, 80 out, {shown}." in cells[0].source
    assert "look:1.1 ` | completed |  | ` look:1.1 {} ` |" in told


def test_what_no_message_tells_of_an_agent_is_shown_as_a_result(session: Session, me: Holder) -> None:
    appender = session.append(me)
    appender.emit("TaskQueued", p.TaskQueued("m:turn", kind="agent"), task_id="t.1")
    answered(appender, 1, "I look.", 0.0)
    returned(appender, "tool", "look:1.1", {"return": "seven files"})
    appender.emit("TaskCancelled", p.TaskCancelled(), task_id="t.1")
    appender.emit("TaskQueued", p.TaskQueued("m:turn", kind="agent"), task_id="t.1")
    answered(appender, 2, "I have it.", 0.0)
    appender.emit("TaskCompleted", p.TaskCompleted(as_raw({"files": 7})), task_id="t.1")
    appender.close()
    cells = notebook.notebook(session).cells
    at = [n for n, c in enumerate(cells) if c.source == "value(session, 'main/look:1.1')"]
    assert len(at) == 1
    assert "**TaskCancelled**" in cells[at[0] + 1].source, "shown in the task that it belongs to"
    assert '"files": 7' in cells[-1].source


def test_a_result_that_an_older_version_kept_is_named_where_it_is_nested_too_deep(session: Session, me: Holder) -> None:
    appender = session.append(me)
    appender.emit("TaskQueued", p.TaskQueued("m:f"), task_id="t.1")
    returned(appender, "step", "deep", Raw(b"[" * 700 + b"]" * 700))
    appender.emit("TaskCompleted", p.TaskCompleted(), task_id="t.1")
    appender.close()
    assert "value(session, 'main/deep')" in "\n".join(c.source for c in notebook.notebook(session).cells)
    assert values.value(session, "main/deep").bundle == {"text/plain": "<nested too deep to be shown>"}
