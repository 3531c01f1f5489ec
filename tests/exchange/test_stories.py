"""A session's story in other forms: JSON lines, an ATIF trajectory, a notebook that is harmless and runs."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import nbformat
import pandas as pd
import pyarrow as pa
import pytest
from pydantic_ai.messages import (
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_core import to_jsonable_python

from ipyagent_sessions import codec
from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import NotFound, UsageError
from ipyagent_sessions.events import as_raw
from ipyagent_sessions.exchange import atif, lines, notebook, values
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.blobs import Blobs
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import Session

HOSTILE = "<script>alert(1)</script>\x1b[2J ``` [x](javascript:alert(1)) $\\href{javascript:x}{y}$ | \u202e"


def completed(appender: Appender, name: str, value: Any, **more: Any) -> None:
    appender.emit(
        "ActivityStarted", p.ActivityStarted(name, args=as_raw({"n": 1})), task_id="t.1", activity_id=f"1/{name}", attempt=1
    )
    appender.emit(
        "ActivityCompleted",
        p.ActivityCompleted(name, result=msgspec.Raw(codec.dumps(value))),
        task_id="t.1",
        activity_id=f"1/{name}",
        attempt=1,
        execution_time_ms=12.0,
        **more,
    )


@pytest.fixture
def worked(session: Session, me: Holder) -> Session:
    """A workflow with results of many kinds, and texts from an enemy."""
    appender = session.append(me)
    source = f"@workflow\nasync def audit(ctx, root):\n    '''{HOSTILE}'''\n    return 1\n".encode()
    blobs: dict[str, bytes] = {}
    _, name = appender.put(source.ljust(40_000), blobs)
    queued = p.TaskQueued("__main__:audit", title=HOSTILE, args=as_raw({"root": HOSTILE}), source_blob=name)
    appender.emit("TaskQueued", queued, task_id="t.1", blobs=blobs, actor="user:anna")
    appender.emit("TaskStarted", p.TaskStarted(), task_id="t.1")
    appender.emit("ActivityStarted", p.ActivityStarted(HOSTILE, kind="stage"), task_id="t.1", activity_id="1")
    completed(appender, "text", HOSTILE)
    completed(appender, "table", pa.table({"a": [1, 2], "b": [HOSTILE, "x"]}))
    completed(appender, "rows", [{"a": 1, "b": "<b>"}, {"a": 2, "b": "c"}])
    completed(appender, "picture", b"\x89PNG\r\n\x1a\n" + b"0" * 20)
    completed(appender, "pair", (1, {"x": [2]}))
    shot = b"\x89PNG\r\n\x1a\n" + b"1" * 20
    made = {"blob": Blobs.name(shot), "media_type": "image/png"}
    appender.emit("PictureMade", made, task_id="t.1", ignorable=True, blobs={Blobs.name(shot): shot})
    appender.emit("ActivityStarted", p.ActivityStarted("bad"), task_id="t.1", activity_id="1/bad", attempt=1)
    failed = p.ActivityFailed("bad", "ValueError", HOSTILE)
    appender.emit("ActivityFailed", failed, task_id="t.1", activity_id="1/bad", attempt=1)
    appender.emit("ActivityCompleted", p.ActivityCompleted("stage", kind="stage"), task_id="t.1", activity_id="1")
    appender.emit("ApprovalRequested", p.ApprovalRequested("a1", HOSTILE), task_id="t.1")
    appender.emit("ApprovalResolved", p.ApprovalResolved("a1", "approved", by="user:anna"), task_id="t.1", actor="user:anna")
    appender.emit("TaskCompleted", p.TaskCompleted(as_raw(HOSTILE)), task_id="t.1")
    appender.close()
    return session


@pytest.fixture
def talked(session: Session, me: Holder) -> Session:
    """An agent's task, with messages as pydantic-ai writes them."""
    appender = session.append(me)
    appender.emit("TaskQueued", p.TaskQueued("agent", kind="agent"), task_id="t.1")
    messages: list[ModelMessage] = [
        ModelRequest([SystemPromptPart("Be brief."), UserPromptPart(["How many?", ImageUrl("http://x/y.png")])]),
        ModelResponse(
            [
                ThinkingPart("count them"),
                TextPart("I look."),
                ToolCallPart("ls", {"path": "."}, "c1"),
                ToolCallPart("wc", "{broken", "c2"),
            ],
            model_name="m-1",
        ),
        ModelRequest([ToolReturnPart("ls", {"files": 3}, "c1"), ToolReturnPart("wc", "12", "c2")]),
        ModelResponse([TextPart("Three.")], model_name="m-1"),
    ]
    for n, message in enumerate(messages):
        body = {"role": "x", "text": "x", "message": to_jsonable_python(message)}
        measured: dict[str, Any] = {"input_tokens": 10, "output_tokens": 4, "cost_usd": 0.01} if n % 2 else {}
        appender.emit("MessageAdded", body, task_id="t.1", **measured)
        completed(appender, f"model:{n}", None)  # how the engine counts it is not told again
    appender.emit("MessageAdded", {"role": "assistant", "text": "Thr", "partial": True}, task_id="t.1")
    appender.emit("MessageAdded", {"role": "user", "text": "Thanks."}, task_id="t.1")
    appender.close()
    return session


def test_an_agents_messages_are_the_steps_of_a_trajectory(talked: Session) -> None:
    told = atif.trajectory(talked)
    assert (told["schema_version"], told["session_id"]) == ("ATIF-v1.4", talked.id)
    assert told["agent"]["model_name"] == "m-1"
    steps = told["steps"]
    assert [(s["step_id"], s["source"], s["message"]) for s in steps] == [
        (1, "system", "Be brief."),
        (2, "user", "How many?\n[image-url]"),
        (3, "agent", "I look."),
        (4, "agent", "Three."),
        (5, "user", "Thanks."),
    ]
    assert steps[2]["reasoning_content"] == "count them"
    assert steps[2]["tool_calls"] == [
        {"tool_call_id": "c1", "function_name": "ls", "arguments": {"path": "."}},
        {"tool_call_id": "c2", "function_name": "wc", "arguments": {"text": "{broken"}},
    ]
    assert steps[2]["observation"]["results"] == [
        {"source_call_id": "c1", "content": '{"files": 3}'},
        {"source_call_id": "c2", "content": "12"},
    ]
    assert steps[2]["metrics"] == {"prompt_tokens": 10, "completion_tokens": 4, "cost_usd": 0.01}
    assert told["final_metrics"] == {
        "total_prompt_tokens": 20,
        "total_completion_tokens": 8,
        "total_cost_usd": 0.02,
        "total_steps": 5,
    }


def test_a_workflows_activities_are_tool_calls_with_their_results(worked: Session) -> None:
    steps = atif.trajectory(worked)["steps"]
    assert [s["step_id"] for s in steps] == list(range(1, len(steps) + 1))
    assert steps[0]["source"] == "user"
    assert "__main__:audit" in steps[0]["message"]
    calls = {s["tool_calls"][0]["function_name"]: s for s in steps[1:]}
    assert list(calls) == ["text", "table", "rows", "picture", "pair", "bad"]
    assert calls["text"]["observation"]["results"][0]["source_call_id"] == calls["text"]["tool_calls"][0]["tool_call_id"]
    assert calls["bad"]["observation"]["results"][0]["content"].startswith("ValueError: ")


def test_a_session_without_a_task_has_no_trajectory(session: Session) -> None:
    with pytest.raises(UsageError, match="no task yet"):
        atif.trajectory(session)


def test_the_lines_are_the_events_with_their_blobs_filled_in(worked: Session) -> None:
    told = [json.loads(line) for line in lines.lines(worked.fork())]
    assert [e["seq"] for e in told] == list(range(1, worked.last_seq() + 2))
    assert {e["session_id"] for e in told[:-1]} == {worked.id}, "inherited events are their parent's"
    assert told[-1]["event_type"] == "SessionForked"
    assert told[1]["event_id"] == f"{worked.id}:2"
    assert told[1]["payload"]["source"].startswith("@workflow")
    assert told[1]["payload"]["args"] == {"root": HOSTILE}


def test_the_notebook_is_valid_and_holds_the_story_and_the_results(worked: Session) -> None:
    made = notebook.notebook(worked)
    nbformat.validate(made)
    text = "\n".join(c.source for c in made.cells)
    for said in ("## Task", "### Stage", "ApprovalRequested", "user:anna", "completed", "1/bad"):
        assert said in text
    outputs = {c.source: c.outputs[0].data for c in made.cells if c.cell_type == "code" and c.outputs}
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 20).decode()
    assert outputs["value(session, '1/picture')"]["image/png"] == picture
    assert any("image/png" in data for source, data in outputs.items() if source.startswith("picture(session, "))
    assert "<table" in outputs["value(session, '1/table')"]["text/html"]
    assert "<table" in outputs["value(session, '1/rows')"]["text/html"]
    assert json.loads(outputs["value(session, '1/pair')"]["text/plain"]) == [1, {"x": [2]}]
    assert notebook.notebook(worked) == made, "the same session gives the same notebook"


def test_hostile_text_in_a_notebook_is_text(worked: Session) -> None:
    """Markdown stands in code spans and fences; HTML is escaped; no control character is left."""
    from markdown_it import MarkdownIt

    made = notebook.notebook(worked)
    for cell in made.cells:
        assert "\x1b" not in nbformat.writes(nbformat.v4.new_notebook(cells=[cell])), "no escape sequence, raw or as JSON"
        assert "\u202e" not in cell.source
        if cell.cell_type == "markdown":
            html = MarkdownIt("commonmark").enable("table").render(cell.source)
            assert "<script" not in html
            assert "<a " not in html
            outside = "".join(part.rpartition("</code>")[2] for part in html.split("<code"))
            assert "$" not in outside, "nothing is set as mathematics"
        for output in cell.get("outputs", ()):
            assert "<script" not in output.data.get("text/html", "")


def test_the_source_of_an_import_is_shown_and_is_no_code_cell(worked: Session) -> None:
    def code(session: Session) -> list[str]:
        return [c.source for c in notebook.notebook(session).cells if c.cell_type == "code"]

    assert any("async def audit" in source for source in code(worked))
    header = json.loads(worked.layout.header.read_bytes())
    worked.layout.header.write_text(json.dumps({**header, "store": "elsewhere"}))
    foreign = Session(worked.place, worked.id)
    assert not any("async def audit" in source for source in code(foreign))
    assert "async def audit" in nbformat.writes(notebook.notebook(foreign))


def test_a_recorded_value_is_shown_and_never_built(session: Session, me: Holder) -> None:
    appender = session.append(me)
    tagged = [{"$": "pickle", "v": "AAAA"}, {"$": "dataclass", "type": "os:system", "v": {"a": 1}}, {"$": "bytes", "v": "!"}]
    for n, packed in enumerate([*tagged, {"$": "pandas.DataFrame", "v": "AAAA"}, {"$": 7}, None]):
        body = p.ActivityCompleted("f", result=as_raw(packed))
        appender.emit("ActivityCompleted", body, task_id="t", activity_id=f"/f:{n}")
    appender.close()
    assert [repr(values.value(session, f"/f:{n}")) for n in range(6)] == [
        '"AAAA"',
        '{\n "a": 1\n}',
        '"!"',
        '"AAAA"',
        "null",
        "null",
    ]
    with pytest.raises(NotFound):
        values.value(session, "/f:9")


def test_a_frame_is_shown_with_an_index_that_says_something_and_without_one_that_counts() -> None:
    frame = pd.DataFrame({"n": [7, 8]})
    counted = values.bundle(json.loads(codec.dumps(frame)))["text/plain"].split()
    assert "__index_level_0__" not in counted
    assert counted[0] == "n"
    named = values.bundle(json.loads(codec.dumps(frame.set_index(pd.Index(["mean", "std"])))))["text/plain"]
    assert "__index_level_0__" not in named
    assert "mean" in named
    assert "std" in named
