"""A session as spans of OpenTelemetry: each attempt one, in the trace of its task, without a word of what was said."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.events import as_raw
from ipyagent_sessions.exchange import otel, transcripts
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import activities

SECRET = "what nobody else shall read"


def spans(session: Session) -> list[dict[str, Any]]:
    """The spans, each with its attributes as a dict; that OTLP would take them is checked on the way."""
    found: list[dict[str, Any]] = []
    for line in otel.lines(session):
        (resource,) = json.loads(line)["resourceSpans"]
        (scope,) = resource["scopeSpans"]
        found += scope["spans"]
    ids = {span["spanId"] for span in found}
    assert len(ids) == len(found)
    for span in found:
        assert re.fullmatch(r"[0-9a-f]{32}", span["traceId"])
        assert re.fullmatch(r"[0-9a-f]{16}", span["spanId"])
        assert span.get("parentSpanId") is None or span["parentSpanId"] in ids
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        assert all(len(pair["value"]) == 1 for pair in span["attributes"])
        span["attributes"] = {pair["key"]: next(iter(pair["value"].values())) for pair in span["attributes"]}
    return found


@pytest.fixture
def talked(session: Session, me: Holder) -> Session:
    """A turn: a request that failed once, a call of a tool, a wait for a person; then a workflow with a stage that failed."""
    appender = session.append(me)
    turn: dict[str, Any] = {"task_id": f"{session.id}.1"}
    appender.emit("TaskQueued", p.TaskQueued("m:ask", "agent", SECRET, model="openai:gpt-x"), **turn)
    appender.emit("TaskStarted", p.TaskStarted(), **turn)
    asked: dict[str, Any] = {**turn, "activity_id": "main/model:1"}
    appender.emit("ActivityStarted", p.ActivityStarted("model", "model", "1", effect="idempotent"), attempt=1, **asked)
    appender.emit("ActivityRetried", p.ActivityRetried("model", "ModelHTTPError", SECRET), attempt=1, **asked)
    appender.emit("ActivityStarted", p.ActivityStarted("model", "model", "1", effect="idempotent"), attempt=2, **asked)
    said = p.MessageAdded("assistant", SECRET, 0, model="gpt-x-2026", finish_reason="tool_call")
    appender.emit("MessageAdded", said, input_tokens=10, output_tokens=5, cost_usd=0.01, **asked)
    appender.emit("ActivityCompleted", p.ActivityCompleted("model", "model"), attempt=2, **asked)
    call: dict[str, Any] = {**turn, "activity_id": "main/run_shell:1.1", "attempt": 1}
    appender.emit("ApprovalRequested", p.ApprovalRequested("a1", SECRET), **turn)
    appender.emit(
        "ActivityStarted",
        p.ActivityStarted("run_shell", "tool", effect="irreversible", args=as_raw([[], {"c": SECRET}])),
        **call,
    )
    appender.emit("ActivityCompleted", p.ActivityCompleted("run_shell", "tool", result=as_raw(SECRET)), **call)
    appender.emit("TaskCompleted", p.TaskCompleted(as_raw(SECRET)), **turn)
    flow: dict[str, Any] = {"task_id": f"{session.id}.2"}
    appender.emit("TaskQueued", p.TaskQueued("m:migrate"), **flow)
    appender.emit("TaskStarted", p.TaskStarted(), **flow)
    for stage, name in (("2", "load"), ("2.1", "first")):
        appender.emit("ActivityStarted", p.ActivityStarted(name, "stage"), activity_id=stage, attempt=1, **flow)
    step: dict[str, Any] = {**flow, "activity_id": "2.1/read#1", "attempt": 1}
    appender.emit("ActivityStarted", p.ActivityStarted("read"), **step)
    appender.emit("ActivityFailed", p.ActivityFailed("read", "ValueError", SECRET), **step)
    appender.emit("TaskFailed", p.TaskFailed("ValueError", SECRET), **flow)
    appender.close()
    return session


def test_each_attempt_is_a_span_in_the_trace_of_its_task(talked: Session) -> None:
    found = spans(talked)
    by_id = {span["spanId"]: span for span in found}
    above = [by_id[span["parentSpanId"]]["name"] if "parentSpanId" in span else "" for span in found]
    assert [(span["name"], parent) for span, parent in zip(found, above, strict=True)] == [
        ("invoke_agent ask", ""),
        ("chat gpt-x", "invoke_agent ask"),
        ("chat gpt-x", "invoke_agent ask"),
        ("execute_tool run_shell", "invoke_agent ask"),
        ("invoke_workflow migrate", ""),
        ("load", "invoke_workflow migrate"),
        ("first", "load"),
        ("read", "first"),
    ]
    assert len({span["traceId"] for span in found}) == 2
    assert {span["attributes"].get("gen_ai.conversation.id") for span in found} == {talked.id, None}


def test_a_request_tells_model_tokens_and_cost_and_a_failure_its_class(talked: Session) -> None:
    agent, failed, asked, tool, flow, *_, step = spans(talked)
    assert {k: v for k, v in asked["attributes"].items() if k.startswith("gen_ai.") or k.endswith("usd")} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-x",
        "gen_ai.conversation.id": talked.id,
        "gen_ai.response.model": "gpt-x-2026",
        "gen_ai.response.finish_reasons": {"values": [{"stringValue": "tool_call"}]},
        "gen_ai.usage.input_tokens": "10",
        "gen_ai.usage.output_tokens": "5",
        "ipyagent.cost_usd": 0.01,
    }
    assert (failed["status"], failed["attributes"]["error.type"]) == (
        {"code": 2, "message": "ModelHTTPError"},
        "ModelHTTPError",
    )
    assert "gen_ai.usage.input_tokens" not in failed["attributes"], "unknown is left out"
    assert (tool["attributes"]["gen_ai.tool.name"], tool["kind"], asked["kind"]) == ("run_shell", 1, 3)
    assert [event["name"] for event in agent["events"]] == ["ApprovalRequested"]
    assert agent["status"] == {}
    assert flow["status"]["code"] == step["status"]["code"] == 2
    assert (agent["attributes"]["ipyagent.task.state"], flow["attributes"]["ipyagent.task.state"]) == ("completed", "failed")


def test_nothing_that_was_said_given_or_returned_is_in_it(talked: Session) -> None:
    assert SECRET not in b"".join(otel.lines(talked)).decode()


def test_the_same_session_gives_the_same_spans_and_a_fork_those_that_it_inherited(talked: Session) -> None:
    assert list(otel.lines(talked)) == list(otel.lines(talked))
    mine = {span["spanId"] for span in spans(talked)}
    assert mine <= {span["spanId"] for span in spans(talked.fork())}


def test_a_long_session_is_several_lines_and_one_without_a_task_is_refused(session: Session, me: Holder) -> None:
    with pytest.raises(UsageError, match="no task yet"):
        list(otel.lines(session))
    appender = session.append(me)
    appender.emit("TaskQueued", p.TaskQueued("m:f"), task_id="t")
    activities(appender, 600)
    appender.close()
    assert len(list(otel.lines(session))) == 2
    assert len(spans(session)) == 601


def test_what_was_imported_has_its_answers_as_spans_too(store: Store) -> None:
    taken = transcripts.bring_in(store, Path(__file__).parent / "codex.jsonl")
    names = [span["name"] for span in spans(store.session(taken.session_id))]
    assert names == [
        "invoke_agent codex",
        "chat gpt-y",
        "execute_tool shell",
        "chat gpt-y",
        "execute_tool apply_patch",
        "chat gpt-y",
    ]
