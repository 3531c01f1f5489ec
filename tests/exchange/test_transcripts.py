"""Transcripts of other agents become sessions that can be read and queried, whatever stands in the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipyagent_sessions import codec
from ipyagent_sessions.agent.conversation import messages_of, thread
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.events import payload_of
from ipyagent_sessions.exchange import transcripts
from ipyagent_sessions.exchange.transcripts import Taken
from ipyagent_sessions.lifecycle import TaskState
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.verify import whole

HERE = Path(__file__).parent
CLAUDE, CODEX = HERE / "claude-code.jsonl", HERE / "codex.jsonl"


def brought(store: Store, path: Path) -> tuple[Taken, Session]:
    taken = transcripts.bring_in(store, path)
    session = store.session(taken.session_id)
    assert whole.session(session).findings == []
    assert session.state().seq == taken.events
    return taken, session


def written(folder: Path, *records: Any) -> Path:
    """A file of lines: objects as JSON, texts as they are."""
    path = folder / "made.jsonl"
    lines = [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def person(text: Any, **more: Any) -> dict[str, Any]:
    return {"type": "user", "sessionId": "s", "timestamp": "2026-01-01T00:00:00Z", "message": {"content": text}, **more}


def test_a_session_of_claude_code_is_told_task_by_task(store: Store) -> None:
    taken, session = brought(store, CLAUDE)
    assert (taken.tasks, taken.problems, taken.passed) == (2, [], {"progress": 1, "sub-agent": 1})
    tasks = store.sql("select title, state, target from tasks order by queued").rows()
    assert [(t["title"], t["state"]) for t in tasks] == [
        ("How many words has notes.txt?", "completed"),
        ("And lines?", "completed"),
    ]
    calls = store.sql("select tool, state, args->>'$[1].command' as command, error from tool_calls order by started").rows()
    assert [(c["tool"], c["state"], c["command"]) for c in calls] == [
        ("Bash", "completed", "wc -w notes.txt"),
        ("Read", "failed", None),
        ("Bash", "open", "wc -l notes.txt"),
    ]
    assert session.summary().title == "Count the words"
    said = store.sql("select text from messages where role = 'assistant' order by seq").rows()
    assert [m["text"] for m in said] == ["I look.", "Seven.", None]


def test_what_an_answer_used_is_counted_once_although_it_stands_in_several_lines(store: Store) -> None:
    _, session = brought(store, CLAUDE)
    assert (session.state().input_tokens, session.state().output_tokens) == (5 + 100 + 9 + 11, 30 + 4 + 6)
    (cost,) = store.sql("select max(cost_usd) as cost from usage").rows()
    assert cost["cost"] is None, "unknown is not 0"


def test_a_session_of_codex_is_told_with_what_each_answer_used(store: Store) -> None:
    taken, session = brought(store, CODEX)
    assert (taken.tasks, taken.problems) == (1, [])
    (task,) = store.sql("select title from tasks").rows()
    assert task["title"] == "Do the tests pass?", "not the surroundings that the program sends first"
    calls = store.sql("select tool, state, args, execution_time_ms as ms from tool_calls order by started").rows()
    assert [(c["tool"], c["state"], c["ms"]) for c in calls] == [
        ("shell", "failed", 3500.0),
        ("apply_patch", "completed", 500.0),
    ]
    assert json.loads(calls[0]["args"])[1] == {"command": ["pytest", "-q"]}
    assert (session.state().input_tokens, session.state().output_tokens) == (500, 45)


def test_items_without_an_envelope_are_read_as_older_versions_wrote_them(store: Store, tmp_path: Path) -> None:
    lines = [json.loads(line)["payload"] for line in CODEX.read_text("utf-8").splitlines() if "response_item" in line]
    _, session = brought(store, written(tmp_path, {"id": "x", "timestamp": "2025-07-01T00:00:00Z"}, *lines))
    assert [b["role"] for e in session.events() if (b := payload_of(e)) and e.event_type == "MessageAdded"] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]


@pytest.mark.parametrize("path", [CLAUDE, CODEX])
def test_it_is_in_replay_and_a_fork_has_the_conversation(store: Store, path: Path, me: Holder) -> None:
    _, session = brought(store, path)
    assert session.summary().state == TaskState.COMPLETED
    with pytest.raises(UsageError, match="in replay"):
        session.append(me)
    child = session.fork()
    child.append(me).close()
    found = messages_of(child, thread(child).kept)
    assert len(found) == sum(e.event_type == "MessageAdded" for e in session.events())
    assert found[0].parts[0].timestamp.year == 2026  # type: ignore[union-attr]  # parts of a request have one


def test_the_same_file_is_the_same_session_and_one_that_grew_is_another(store: Store, tmp_path: Path) -> None:
    first = transcripts.bring_in(store, CLAUDE)
    again = transcripts.bring_in(store, CLAUDE)
    assert (again.session_id, again.known, first.known) == (first.session_id, True, False)
    grown = tmp_path / "grown.jsonl"
    grown.write_bytes(CLAUDE.read_bytes() + json.dumps(person("more")).encode())
    assert transcripts.bring_in(store, grown).session_id != first.session_id
    assert len(store.session_ids()) == 2


def test_broken_lines_are_told_by_their_place_and_the_rest_is_there(store: Store, tmp_path: Path) -> None:
    result = {"type": "tool_result", "tool_use_id": "nobody", "content": "x"}
    path = written(
        tmp_path,
        person("first"),
        b'{"type": "user", "message": {"content"',
        b"\xff\xfe",
        b"[1, 2]",
        b"[" * 100_000,
        {"type": "assistant", "sessionId": "s", "message": {"content": 7}},
        person([result]),
        person("last"),
    )
    taken, session = brought(store, path)
    assert [problem.line for problem in taken.problems] == [2, 3, 4, 5, 6]
    told = [payload_of(e)["text"] for e in session.events() if e.event_type == "AlarmRaised"]
    assert [text.split(" was left out")[0] for text in told] == [f"line {n}" for n in (2, 3, 4, 5, 6, 7)]
    assert [m["text"] for m in store.sql("select text from messages order by seq").rows()] == ["first", "last"]


def test_hostile_values_are_data_and_nothing_else(store: Store, tmp_path: Path) -> None:
    pickled = {"$": "pickle", "v": "gASVBQAAAAAAAABLAS4="}
    call = {"type": "tool_use", "id": "a", "name": "../../x\x1b[2J" * 40, "input": pickled}
    usage = {"input_tokens": 10**40, "output_tokens": -3, "cache_read_input_tokens": True}
    answer = {"id": "m", "model": "\ud800", "content": [call, {**call, "input": 10**30}], "usage": usage}
    path = written(
        tmp_path,
        person("<script>\u202e\0"),
        {"type": "assistant", "sessionId": "s", "timestamp": "9999-99-99", "message": answer},
        person([{"type": "tool_result", "tool_use_id": "a", "content": "y" * 100_000}]),
    )
    _, session = brought(store, path)
    begun = [e for e in session.events() if e.event_type == "ActivityStarted"]
    assert codec.loads(bytes(memoryview(json.dumps(payload_of(begun[0])["args"]).encode())))[1] == pickled, "not unpickled"
    assert session.state().input_tokens == 0
    (ended,) = [e for e in session.events() if e.event_type == "ActivityCompleted"]
    assert session.payload(ended)["result"]["return"] == "y" * 100_000, "a large result is a blob"
    assert store.sql("select count(*) as n from tool_calls").rows() == [{"n": 2}]


def test_what_is_no_transcript_is_refused_with_what_is_one(store: Store, tmp_path: Path) -> None:
    for records, said in (
        ([{"hello": 1}], "no transcript"),
        ([b""], "no transcript"),
        ([{"event_type": "TaskQueued", "seq": 1}], "events of ipyagent"),
    ):
        with pytest.raises(UsageError, match=said):
            transcripts.bring_in(store, written(tmp_path, *records))
    with pytest.raises(UsageError, match="cannot be read"):
        transcripts.bring_in(store, tmp_path / "gone.jsonl")
    assert store.session_ids() == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "id", "content"]), inner),
    max_leaves=6,
)
RECORD = st.fixed_dictionaries(
    {"type": st.sampled_from(["user", "assistant", "summary", "response_item", "event_msg", "turn_context", "odd"])},
    optional={"message": JSON, "payload": JSON, "timestamp": JSON, "sessionId": JSON, "summary": JSON, "isSidechain": JSON},
)


@given(st.lists(RECORD, max_size=6), st.booleans())
def test_no_line_is_fatal(tmp_path_factory: pytest.TempPathFactory, records: list[Any], claude: bool) -> None:
    folder = tmp_path_factory.mktemp("t")
    first = person("hi") if claude else {"type": "turn_context", "payload": {"model": "m"}}
    brought(Store(folder / "store"), written(folder, first, *records))
