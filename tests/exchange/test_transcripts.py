"""Transcripts of other agents become sessions that can be read and queried, whatever stands in the file."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipyagent_sessions import codec
from ipyagent_sessions.agent.conversation import messages_of, thread
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.events import payload_of
from ipyagent_sessions.exchange import notebook, transcripts
from ipyagent_sessions.exchange.transcripts import Taken
from ipyagent_sessions.lifecycle import TaskState
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FakeClock, FaultyDisk
from ipyagent_sessions.verify import whole
from ipyagent_sessions.views.card import card, cost, steps

HERE = Path(__file__).parent
CLAUDE, CODEX, PI = HERE / "claude-code.jsonl", HERE / "codex.jsonl", HERE / "pi.jsonl"


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


STRANGE: list[Any] = [None, [], {}, 1, -1.5, True, "x", "", ["x"], {"a": 1}, [[]], 10**30, "2026-13-01"]


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each part of a JSON value."""
    yield before
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inside:
        yield from places(part, (*before, key))


@pytest.mark.parametrize("path", [CLAUDE, CODEX, PI], ids=lambda path: path.stem)
def test_whatever_stands_in_any_place_of_a_line_the_others_are_read(store: Store, tmp_path: Path, path: Path) -> None:
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    strange, read = itertools.cycle(STRANGE), 0
    for number, record in enumerate(records):
        for place in places(record):
            changed = json.loads(json.dumps([record]))
            holder: Any = changed
            for key in (0, *place)[:-1]:
                holder = holder[key]
            holder[(0, *place)[-1]] = next(strange)
            with contextlib.suppress(UsageError):  # without its first line nobody knows who wrote it
                taken = transcripts.bring_in(store, written(tmp_path, *records[:number], *changed, *records[number + 1 :]))
                read += store.session(taken.session_id).state().seq > 0
    assert read > 100


def test_a_session_of_claude_code_is_told_task_by_task(store: Store) -> None:
    taken, session = brought(store, CLAUDE)
    assert (taken.tasks, taken.problems, taken.passed) == (2, [], {"progress": 1})
    tasks = store.sql(f"select title, state, target from tasks where session_id = '{session.id}' order by queued").rows()
    assert [(t["title"], t["state"]) for t in tasks] == [
        ("How many words has notes.txt?", "completed"),
        ("And lines?", "completed"),
    ]
    calls = store.sql("select tool, state, args->>'$[1].command' as command, error from tool_calls order by started").rows()
    assert [(c["tool"], c["state"], c["command"]) for c in calls] == [
        ("Bash", "completed", "wc -w notes.txt"),
        ("Read", "failed", None),
        ("Bash", "failed", "wc -l notes.txt"),
    ], "of a call without a result nothing more will be known here"
    assert calls[2]["error"] == "the transcript holds no result of it"
    assert session.summary().title == "Count the words"
    bodies = [payload_of(e) for e in session.events() if e.event_type == "MessageAdded"]
    assert [b.get("text", "") for b in bodies if b["role"] == "assistant"] == ["I look.", "Seven.", ""]
    assert taken.sub_agents == [f"{session.id}a1"]
    (told,) = store.sql(f"select role, text from messages where session_id = '{session.id}a1'").rows()
    assert told == {"role": "assistant", "text": "a sub-agent"}


def test_what_an_answer_used_is_counted_once_although_it_stands_in_several_lines(store: Store) -> None:
    _, session = brought(store, CLAUDE)
    assert (session.state().input_tokens, session.state().output_tokens) == (5 + 100 + 9 + 11, 30 + 4 + 6)
    (cost,) = store.sql("select max(cost_usd) as cost from usage").rows()
    assert cost["cost"] is None, "unknown is not 0"


def said_by(name: str, model: str, output_tokens: int, *content: Any) -> dict[str, Any]:
    """A line of an answer of Claude Code; a text in it names a call."""
    parts = [{"type": "tool_use", "id": c, "name": "Bash", "input": {}} if isinstance(c, str) else c for c in content]
    message = {"id": name, "model": model, "content": parts, "usage": {"input_tokens": 7, "output_tokens": output_tokens}}
    return {"type": "assistant", "sessionId": "s", "timestamp": "2026-01-01T00:00:01Z", "message": message}


def result(call: str) -> dict[str, Any]:
    return person([{"type": "tool_result", "tool_use_id": call, "content": f"{call} is done"}])


def test_lines_of_one_answer_are_one_answer_although_a_result_stands_between(store: Store, tmp_path: Path) -> None:
    done = {"type": "text", "text": "Done."}
    lines = [said_by("m1", "x", 5, "a"), result("a"), said_by("m1", "x", 120, "b"), result("b"), said_by("m2", "x", 30, done)]
    _, session = brought(store, written(tmp_path, person("go"), *lines))
    assert (session.state().requests, session.state().input_tokens, session.state().output_tokens) == (2, 14, 150)
    bodies = [payload_of(e) for e in session.events() if e.event_type == "MessageAdded"]
    assert [(b["role"], b.get("tools", [])) for b in bodies] == [
        ("user", []),
        ("assistant", ["Bash", "Bash"]),
        ("tool", []),
        ("assistant", []),
    ]
    assert bodies[2]["text"] == "Bash: a is done\nBash: b is done"
    assert store.sql("select distinct state from tool_calls").rows() == [{"state": "completed"}]


def test_the_rest_of_an_answer_after_a_prompt_is_told_there_and_counted_once(store: Store, tmp_path: Path) -> None:
    lines = [said_by("m1", "x", 5, "a"), result("a"), person("faster"), said_by("m1", "x", 120, "b"), result("b")]
    _, session = brought(store, written(tmp_path, person("go"), *lines))
    assert (store.sql("select count(*) as n from usage").rows(), session.state().output_tokens) == ([{"n": 1}], 120)
    assert [t["title"] for t in store.sql("select title from tasks order by title").rows()] == ["faster", "go"]
    assert store.sql("select distinct state from tool_calls").rows() == [{"state": "completed"}]


def test_each_task_names_the_model_that_answered_it(store: Store, tmp_path: Path) -> None:
    known = [person("one"), said_by("m1", "first", 1), person("two"), said_by("m2", "second", 1), said_by("m3", "third", 1)]
    _, session = brought(store, written(tmp_path, *known, person("three"), said_by("m4", "<synthetic>", 0), person("four")))
    models = [payload_of(e).get("model", "") for e in session.events() if e.event_type == "TaskQueued"]
    assert models == ["first", "second", "", ""]


def test_what_the_program_writes_in_a_persons_name_begins_no_task(store: Store, tmp_path: Path) -> None:
    stopped = {"type": "text", "text": "[Request interrupted by user for tool use]"}
    lines = [
        person("<command-name>/clear</command-name>\n  <command-message>clear</command-message>"),
        person("count"),
        said_by("m1", "x", 1, "a"),
        person([{"type": "tool_result", "tool_use_id": "a", "is_error": True, "content": "refused"}, stopped]),
        person("<local-command-stdout>Compacted</local-command-stdout>"),
        person([{"type": "text", "text": "[Request interrupted by user]"}, {"type": "text", "text": "what is <b>?"}]),
        said_by("m2", "x", 1),
    ]
    taken, session = brought(store, written(tmp_path, *lines))
    assert [t["title"] for t in store.sql("select title from tasks order by queued, title").rows()] == [
        "count",
        "what is <b>?",
    ]
    assert (taken.tasks, session.summary().title) == (2, "count")
    roles = [payload_of(e)["role"] for e in session.events() if e.event_type == "MessageAdded"]
    assert roles == ["system", "user", "assistant", "tool", "system", "system", "system", "user", "assistant"]


def test_an_answer_is_a_model_request_from_what_came_before_it_to_the_answer(store: Store, tmp_path: Path) -> None:
    _, session = brought(store, CLAUDE)
    columns = "activity_id, state, strftime(started, '%M:%S') as started, execution_time_ms::INTEGER as ms, output_tokens"
    requests = f"from activities where kind = 'model' and session_id = '{session.id}' order by 1"
    found = store.sql(f"select {columns} {requests}").rows()
    assert [tuple(row.values()) for row in found] == [
        ("main/model:1", "completed", "00:01", 1000, 30),
        ("main/model:2", "completed", "00:04", 1400, 4),
        ("main/model:3", "completed", "05:00", 1000, 6),
    ]
    shown = card(session.id, session.state(), None, "completed", 0.0)
    assert (steps(shown), cost(shown)) == ("1 model request, 0 tool calls", "cost unknown")
    assert (shown.durability, shown.risk) == ("imported", "a transcript tells of it, nothing of it ran here")
    ends = store.sql(f"select strftime(ended, '%M:%S') as ended from tasks where session_id = '{session.id}' order by queued")
    assert [row["ended"] for row in ends.rows()] == ["00:06", "05:01"], "not when the next prompt came, minutes later"
    said = {"id": "m", "model": "<synthetic>", "content": [{"type": "text", "text": "Not logged in"}]}
    refused = {"type": "assistant", "sessionId": "s", "timestamp": "2026-01-01T00:00:01Z", "message": said}
    _, synthetic = brought(store, written(tmp_path, person("hello"), refused))
    assert synthetic.state().requests == 0, "no model was asked"


def test_the_notebook_of_a_transcript_tells_each_call_with_its_arguments(store: Store) -> None:
    _, session = brought(store, CLAUDE)
    text = "\n".join(cell.source for cell in notebook.notebook(session).cells)
    assert '| ` main/Bash:1.1 ` | completed | 2.5 s | ` Bash {"command": "wc -w notes.txt"} ` |' in text
    assert '` Read {"file_path": "gone.txt"}: ToolError: there is no file gone.txt `' in text
    assert "**` assistant `** calls ` Bash `\n|" in text, "no empty block for an answer without a text"
    assert "null" not in text
    assert "**completed**\n\n" not in text, "no empty block for a task without a result"


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


@pytest.mark.parametrize("path", [CLAUDE, CODEX, PI])
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
    assert len(store.session_ids()) == 4, "each with its sub-agent"


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
    begun = [e for e in session.events() if e.event_type == "ActivityStarted" and payload_of(e)["kind"] == "tool"]
    assert codec.loads(bytes(memoryview(json.dumps(payload_of(begun[0])["args"]).encode())))[1] == pickled, "not unpickled"
    assert session.state().input_tokens == 0
    (ended,) = [e for e in session.events() if e.event_type == "ActivityCompleted" and payload_of(e)["kind"] == "tool"]
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
    with pytest.raises(UsageError, match="there is no file"):
        transcripts.bring_in(store, tmp_path / "gone.jsonl")
    assert store.session_ids() == []


@pytest.mark.skipif(sys.platform == "win32", reason="a named pipe of Unix")
def test_a_pipe_is_refused_and_not_waited_for(store: Store, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(UsageError, match=r"pipe\.jsonl is no regular file"):
        transcripts.bring_in(store, tmp_path / "pipe.jsonl")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "id", "content"]), inner),
    max_leaves=6,
)
ROLES = st.sampled_from(["user", "assistant", "toolResult"])
NAMES = st.sampled_from(["a", "b", "c", None, 7])
RECORD = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["user", "assistant", "summary", "response_item", "event_msg", "turn_context", "session", "message", "odd"]
        )
    },
    optional={
        "message": JSON
        | st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "toolResult"]), "content": JSON}),
        "payload": JSON,
        "timestamp": JSON,
        "sessionId": JSON,
        "summary": JSON,
        "isSidechain": JSON,
        "id": NAMES,
        "parentId": NAMES,
        "uuid": NAMES,
        "parentUuid": NAMES,
        "version": JSON,
    },
)
FIRST = [person("hi"), {"type": "turn_context", "payload": {"model": "m"}}, {"type": "session", "version": 3, "id": "s"}]


@given(st.lists(RECORD, max_size=6), st.sampled_from(FIRST))
def test_no_line_is_fatal(tmp_path_factory: pytest.TempPathFactory, records: list[Any], first: Any) -> None:
    folder = tmp_path_factory.mktemp("t")
    brought(Store(folder / "store"), written(folder, first, *records))


def test_a_session_of_pi_is_told_along_the_branch_that_its_last_entry_is_on(store: Store) -> None:
    taken, session = brought(store, PI)
    assert (taken.kind, taken.tasks, session.summary().title) == ("pi", 2, "Large files")
    assert [(x.line, x.what) for x in taken.problems] == [
        (9, "another branch begins with it, of 2 entries: Delete it without asking")
    ]
    assert taken.passed == {"model_change": 1, "thinking_level_change": 1, "label": 1, "custom": 1, "session_info": 1}
    said = store.sql("select role, text from messages order by seq").rows()
    assert [(m["role"], m["text"]) for m in said] == [
        ("user", "Which files are large?"),
        ("assistant", "I look."),
        ("tool", "bash: 9 big.bin"),
        ("assistant", "big.bin."),
        ("system", "Deleting was talked about and left."),
        ("system", "$ ls\nbig.bin"),
        ("user", "Compress it"),
        ("assistant", None),
        ("tool", "bash: no space left"),
        ("system", "A large file was found; packing it failed."),
        ("system", "The disk is full."),
        ("assistant", "[error: overloaded]"),
    ]
    calls = store.sql(
        "select state, args->>'$[1].command' as command, execution_time_ms as ms from tool_calls order by started"
    )
    assert [(c["state"], c["command"], c["ms"]) for c in calls.rows()] == [
        ("completed", "du -a", 1500.0),
        ("failed", "gzip big.bin", 1000.0),
    ]


def test_what_pi_says_that_an_answer_used_and_cost_is_counted_on_that_branch_only(store: Store) -> None:
    _, session = brought(store, PI)
    state = session.state()
    assert (state.input_tokens, state.output_tokens) == (115 + 3 + 7, 20 + 4 + 8)
    assert state.cost_usd == pytest.approx(0.35 + 0.05 + 0.1)
    by_model = store.sql("select model, sum(cost_usd) as cost from usage group by 1 order by 1").rows()
    assert [(r["model"], round(r["cost"], 2)) for r in by_model] == [("claude-x", 0.4), ("model-y", 0.1)]


def pi(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "message", "timestamp": "2026-01-01T00:00:00Z", "message": {"role": role, "content": content}, **more}


def test_the_first_version_of_pi_has_no_tree_and_a_later_one_than_is_known_is_said(store: Store, tmp_path: Path) -> None:
    head = {"type": "session", "id": "x", "cwd": "/"}
    lines = [pi("user", "a"), pi("assistant", [{"type": "text", "text": "b"}]), pi("hookMessage", "c"), pi("user", "d")]
    taken, _ = brought(store, written(tmp_path, head, *lines))
    assert (taken.problems, taken.tasks) == ([], 2)
    assert [m["text"] for m in store.sql("select text from messages order by seq").rows()] == ["a", "b", "c", "d"]
    taken, _ = brought(store, written(tmp_path, {**head, "version": 4}, pi("user", "a", id="e1", parentId=None)))
    assert [x.what for x in taken.problems] == ["version 4 of the format; up to 3 is known, what is new is passed over"]
    assert taken.tasks == 1


def test_a_broken_tree_of_pi_is_told_by_its_place_and_ends(store: Store, tmp_path: Path) -> None:
    head = {"type": "session", "version": 3, "id": "x"}
    for lines, wanted in (
        ([pi("user", "a", id="a", parentId="b"), pi("user", "b", id="b", parentId="a")], (2, "it follows from itself")),
        ([pi("user", "a", id="a", parentId="a")], (2, "it follows from itself")),
        ([pi("user", "a", id="a", parentId="gone")], (2, "it follows an entry that is not in the file")),
        ([pi("user", "a", id="a", parentId=None), pi("user", "b", id="a", parentId="a")], (3, "line 2 has the same id")),
        ([pi("user", "a", id="a", parentId=None), pi("user", "b", parentId="a")], (3, "an entry without a place in the tree")),
        ([pi("user", "a", id="a", parentId=None), pi("user", "b", id="b", parentId=[1])], (3, "an entry without a place")),
    ):
        taken, _ = brought(store, written(tmp_path, head, *lines))
        (found,) = taken.problems
        assert (found.line, found.what[: len(wanted[1])]) == wanted
        assert taken.tasks == 1


def test_each_sub_agent_of_claude_code_has_a_session_of_its_own(store: Store, tmp_path: Path) -> None:
    def sub(kind: str, said: str, **more: Any) -> dict[str, Any]:
        usage = {"input_tokens": 10, "output_tokens": 1}
        message = {"content": said, "id": said, "usage": usage} if kind == "assistant" else {"content": said}
        return {
            "type": kind,
            "sessionId": "s",
            "isSidechain": True,
            "timestamp": "2026-01-01T00:00:00Z",
            "message": message,
            **more,
        }

    path = written(
        tmp_path,
        person("Look at both", uuid="u1"),
        sub("user", "look at a", uuid="a1", parentUuid=None),
        sub("user", "look at b", uuid="b1", agentId="bb"),
        sub("assistant", "a is good", uuid="a2", parentUuid="a1"),
        sub("assistant", "b is bad", uuid="b2", agentId="bb"),
        {"type": "custom-title", "customTitle": "Both"},
    )
    taken, session = brought(store, path)
    assert (session.summary().title, session.state().input_tokens, len(taken.sub_agents)) == ("Both", 0, 2)
    for sub_id, said in zip(taken.sub_agents, ("a", "b"), strict=True):
        other = store.session(sub_id)
        assert (other.summary().title, other.state().input_tokens) == (f"look at {said}", 10)
        assert other.header.store == "claude-code"
        assert not whole.session(other).damaged
    (store.sessions_folder / session.id).rename(tmp_path / "away")  # a kill before the last one was written
    assert brought(store, path)[0].sub_agents == taken.sub_agents


def test_the_file_of_a_sub_agent_alone_is_its_session(store: Store, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in CLAUDE.read_text("utf-8").splitlines()]
    lines = [{**line, "isSidechain": True, "agentId": "x"} if "message" in line else line for line in lines]
    taken, session = brought(store, written(tmp_path, *lines))
    assert (taken.tasks, taken.sub_agents, session.summary().title) == (2, [], "Count the words")


def test_what_the_program_says_in_the_name_of_a_model_or_a_person_is_no_answer_and_no_prompt(
    store: Store, tmp_path: Path
) -> None:
    usage = {"input_tokens": 0, "output_tokens": 0}
    answer = {"id": "e", "model": "<synthetic>", "content": [{"type": "text", "text": "no credit"}], "usage": usage}
    path = written(
        tmp_path,
        person("first"),
        {"type": "assistant", "sessionId": "s", "timestamp": "2026-01-01T00:00:00Z", "message": answer},
        {"type": "system", "subtype": "compact_boundary", "sessionId": "s"},
        person("what was said before", isCompactSummary=True),
    )
    taken, session = brought(store, path)
    assert taken.tasks == 1
    assert [m["role"] for m in store.sql("select role from messages order by seq").rows()] == ["user", "assistant", "system"]
    assert [e.input_tokens for e in session.events() if payload_of(e).get("model") == "unknown"] == [None]
    assert store.sql("select count(*) as n from usage where input_tokens is not null").rows() == [{"n": 0}]


def test_results_of_codex_fail_by_what_their_text_says(store: Store, tmp_path: Path) -> None:
    def item(kind: str, **more: Any) -> dict[str, Any]:
        return {"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": {"type": kind, **more}}

    outputs: list[Any] = [
        "Exit code: 2\nWall time: 0.1 seconds\nOutput:\nno",
        "Exit code: 0\nWall time: 0.1 seconds\nOutput:\nExit code: 3",
        "Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 1\nOutput:\n",
        "[]",
        '{"output": "a program printed this"}',
        [{"type": "input_text", "text": "seen"}, {"type": "input_image", "image_url": "data:"}],
        {"content": "refused", "success": False},
    ]
    lines = [{"type": "turn_context", "payload": {"model": "m"}}]
    for i, output in enumerate(outputs):
        lines += [item("function_call", name=f"t{i}", arguments="{}", call_id=f"c{i}")]
        lines += [item("function_call_output", call_id=f"c{i}", output=output)]
    lines += [item("web_search_call", status="completed", action={"type": "search", "query": "q"})]
    brought(store, written(tmp_path, *lines))
    found = store.sql("select tool, state from tool_calls order by tool").rows()
    assert [r["state"] for r in found] == ["failed", "completed", "failed", *["completed"] * 3, "failed", "completed"]
    said = [m["text"] for m in store.sql("select text from messages where role = 'tool' order by seq").rows()]
    assert said[3:6] == ["t3: []", 't4: {"output": "a program printed this"}', "t5: seen\n[input_image]"]


def test_a_line_of_twenty_megabytes_and_what_no_text_may_hold(store: Store, tmp_path: Path) -> None:
    deep = b'{"type":"user","message":{"content":' + b"[" * 5000 + b"]" * 5000 + b"}}"
    path = written(
        tmp_path,
        person("a\0b\ud800c"),
        person("x" * 20_000_000),
        deep,
        b'{"type":"user","message":{"content":"raw \0 byte"}}',
        person("z", timestamp="\ud800"),
    )
    taken, session = brought(store, path)
    assert [p.line for p in taken.problems] in ([3, 4], [4]), "whether the nesting is too deep is for the interpreter"
    texts = [m["text"] for m in store.sql("select text from messages order by seq").rows()]
    assert texts[0].startswith("a")
    assert "\0" not in texts[0]
    assert len(texts[1]) == 20_000
    (large,) = [e for e in session.events() if payload_of(e).get("message_blob")]
    assert len(session.payload(large)["message"]["parts"][0]["content"]) == 20_000_000


@pytest.mark.parametrize("depth", [300, 900])
@pytest.mark.parametrize("source", [CLAUDE, CODEX, PI], ids=lambda source: source.stem)
def test_a_line_that_is_nested_too_deep_is_named_and_text_stays_text(
    store: Store, tmp_path: Path, source: Path, depth: int
) -> None:
    lines = source.read_bytes().splitlines()
    deep, tried = b"[" * depth + b"]" * depth, 0
    for number, line in enumerate(lines):
        for place in places(json.loads(line)):
            if not place or place[-1] not in ("arguments", "input", "content", "output", "details"):
                continue
            changed: Any = json.loads(line)
            holder = changed
            for key in place[:-1]:
                holder = holder[key]
            is_text = isinstance(holder[place[-1]], str)
            holder[place[-1]] = "@"
            made = json.dumps(changed).encode().replace(b'"@"', b'"%b"' % deep if is_text else deep)
            taken, session = brought(store, written(tmp_path, *lines[:number], made, *lines[number + 1 :]))
            named = [p.line for p in taken.problems if p.what == "nested too deep"]
            assert named == ([] if is_text else [number + 1])
            assert notebook.notebook(session).cells
            tried += 1
    assert tried


def test_a_count_of_codex_without_a_total_is_taken_and_one_that_says_nothing_is_passed(store: Store, tmp_path: Path) -> None:
    def counted(**info: Any) -> dict[str, Any]:
        return {"type": "event_msg", "payload": {"type": "token_count", "info": info}}

    said = {"type": "message", "role": "assistant", "content": [{"text": "yes"}]}
    lines = [
        {"type": "turn_context", "payload": {"model": "m"}},
        {"type": "response_item", "payload": said},
        counted(last_token_usage={"input_tokens": 70, "output_tokens": 5}),
        counted(rate_limits={}),
    ]
    taken, session = brought(store, written(tmp_path, *lines))
    assert taken.passed == {"token_count": 1}
    assert (session.summary().input_tokens, session.summary().output_tokens) == (70, 5)


def test_of_two_imports_of_a_file_at_once_one_finds_it_here(tmp_path: Path, clock: FakeClock) -> None:
    class First(FaultyDisk):
        """Another process imports the same in the last moment."""

        def seam(self, name: str) -> None:
            if name == "before import rename" and not other.session_ids():
                transcripts.bring_in(other, CLAUDE)

    other, mine = Store(tmp_path / "s"), Store(tmp_path / "s", clock=clock, disk=First())
    taken = transcripts.bring_in(mine, CLAUDE)
    assert taken.known
    names = sorted(path.name for path in mine.sessions_folder.iterdir())
    assert names == sorted(mine.session_ids()) == [taken.session_id, f"{taken.session_id}a1"], "and no draft is left"
