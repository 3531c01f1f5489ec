"""A turn that fails its check goes back with its files, and the agent is told why; at most n times (R132)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from tests.run.harness import PATIENCE, Engine, Witness, answer, bodies, of_type, refolded, until_asked
from tests.turn.play import Play, cut

from ipyagent_sessions.agent import turn
from ipyagent_sessions.agent.checking import Check, checked
from ipyagent_sessions.agent.permission import Rules
from ipyagent_sessions.agent.records import Records
from ipyagent_sessions.agent.settings import Settings
from ipyagent_sessions.agent.surroundings import Surroundings
from ipyagent_sessions.agent.tools.offered import offered
from ipyagent_sessions.events import Event
from ipyagent_sessions.run import launch
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow, workflow
from ipyagent_sessions.run.task import RunOptions
from ipyagent_sessions.session import Session
from ipyagent_sessions.undo.ledger import ledger


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    monkeypatch.chdir(made)
    monkeypatch.setenv("IPYAGENT_CONFIG", str(tmp_path / "none.yaml"))
    (tmp_path / "none.yaml").write_text("")
    (made / "a.py").write_text("a = 0\n")
    return made


def talking(play: Play, check: Check, output: Any = str) -> Workflow:
    """A workflow that is one checked turn with the built-in tools."""

    @workflow
    async def talk(ctx: Context, prompt: str) -> Any:
        records = Records(ctx.task, Surroundings(Path.cwd()), Settings())
        verifiers = {tool.name: tool.verify for tool in offered(records.bench).tools if tool.verify is not None}
        tools = [tool.pydantic for tool in offered(records.bench).tools]
        agent: Agent[None, Any] = Agent(play.model, tools=tools, output_type=output, retries=3)

        async def take(said: str) -> Any:
            return await turn.take(ctx, agent, said, Rules(mode="auto"), records, verifiers)

        return await checked(ctx, check, prompt, records, take)

    return talk


def write(path: str, content: str) -> tuple[str, dict[str, Any]]:
    return "write_file", {"path": path, "content": content}


WRONG = [write("a.py", "a = 1\n"), write("new.py", "made = True\n")]
LOOK = [("read_file", {"path": "a.py"})]
RIGHT = [write("a.py", "a = 2\n")]
SAYS = "echo run >> ../checks; grep -q 'a = 2' a.py || { echo 'a is not 2:'; cat a.py; exit 3; }"


def test_the_files_go_back_and_the_agent_is_told_what_the_check_said(engine: Engine, folder: Path) -> None:
    play = Play(WRONG, "done", LOOK, RIGHT, "now it is right")
    handle = engine.start(talking(play, Check(SAYS)), "make a 2")
    assert handle.result(PATIENCE) == "now it is right"
    session = handle.session
    assert {p.name: p.read_text() for p in folder.iterdir()} == {"a.py": "a = 2\n"}
    (failed,) = bodies(session, "CheckFailed")
    assert (failed["attempt"], failed["attempts"], failed["files"]) == (1, 3, ["a.py", "new.py"])
    assert failed["why"] == "[exit code 3]\na is not 2:\na = 1"
    third = play.sent[2]
    assert third[0] == "user-prompt:=make a 2"
    assert third[-1].startswith(f"user-prompt:=[The check `{SAYS}` failed.")
    assert third[-1].endswith("It said:]\n[exit code 3]\na is not 2:\na = 1")
    assert "a = 0" in play.sent[3][-1], "the file is as it was before the turn"
    assert play.faults == []
    states = [(e.name, e.state) for e in ledger(session.events()) if e.what == "file"]
    assert states == [("a.py", "rolled back"), ("new.py", "rolled back"), ("a.py", "done")]
    assert session.state() == refolded(session)


def test_a_turn_with_a_typed_output_is_tried_again_too(engine: Engine, folder: Path) -> None:
    play = Play(WRONG, [("final_result", {"response": 1})], LOOK, RIGHT, [("final_result", {"response": 2})])
    handle = engine.start(talking(play, Check(SAYS), output=[int]), "make a 2")
    assert handle.result(PATIENCE) == 2
    assert len(bodies(handle.session, "CheckFailed")) == 1
    assert play.faults == []


def test_it_fails_as_logic_after_the_last_attempt_and_the_next_turn_goes_on(engine: Engine, folder: Path) -> None:
    play = Play(WRONG, "done", "I give up", "another turn")
    session = engine.ended(engine.start(talking(play, Check(SAYS, 2)), "make a 2"), "failed")
    (failed,) = bodies(session, "TaskFailed")
    assert (failed["cause"], failed["last_checkpoint"]) == ("logic", bodies(session, "CheckFailed")[0]["checkpoint"])
    assert {p.name: p.read_text() for p in folder.iterdir()} == {"a.py": "a = 0\n"}
    handle = engine.start(talking(play, Check()), "and now?", session=session)
    assert handle.result(PATIENCE) == "another turn"
    assert play.sent[-1][-1] == "user-prompt:=and now?"
    assert play.faults == []


def test_a_file_that_a_command_changed_afterwards_is_asked_about(engine: Engine, folder: Path) -> None:
    """What `run_shell` did to it is not known, so it is treated as anybody's edit."""
    play = Play(WRONG, [("run_shell", {"command": "echo 'b = 1' >> a.py; echo left > left"})], "done", "I leave it")
    handle = engine.start(talking(play, Check("test -e fine")), "make a 2")
    session = handle.session
    (asked,) = until_asked(session)
    assert b"a.py: somebody changed it since" in bytes(memoryview(session.state().execution_state.approvals[asked].details))
    (folder / "fine").write_text("")
    answer(session, asked)
    assert handle.result(PATIENCE) == "I leave it"
    assert {p.name: p.read_text() for p in folder.iterdir()} == {"a.py": "a = 1\nb = 1\n", "left": "left\n", "fine": ""}
    (failed,) = bodies(session, "CheckFailed")
    assert (failed["kept"], failed["files"], failed["stays"]) == (["a.py"], ["new.py"], ["1.1/run_shell:2.1"])


def world_at(session: Session, events: list[Event], *, late: bool) -> dict[str, bytes]:
    """What the files hold after these events; `late`: before the newest write of a tool, which is told first, has happened."""
    held, start = {"a.py": b"a = 0\n"}, {"a.py": b"a = 0\n"}
    for number, event in enumerate(events):
        body = session.payload(event)
        if event.event_type == "FileWritten" and not (late and number == len(events) - 1):
            held[body["path"]] = session.blobs.read(body["after"])
        elif event.event_type == "FileRolledBack":
            held.pop(body["path"])
            held |= {path: data for path, data in start.items() if path == body["path"]}
    return held


def test_cut_off_at_any_event_it_ends_as_if_nothing_had_happened(engine: Engine, folder: Path, tmp_path: Path) -> None:
    play = Play(WRONG, "done", LOOK, RIGHT, "now it is right")
    whole = engine.start(talking(play, Check(SAYS)), "make a 2")
    assert whole.result(PATIENCE) == "now it is right"
    events = list(whole.session.events())
    begun = next(e.seq for e in events if e.event_type == "TaskStarted")
    ended = next(e.seq for e in events if e.event_type == "TaskCompleted")
    for seq in range(begun, ended):
        last = events[seq - 1].event_type
        for late in (False, True) if last == "FileWritten" else (False,):
            session = cut(whole.session, tmp_path / f"{seq} {late}", seq)
            for path in folder.iterdir():
                path.unlink()
            for name, data in world_at(whole.session, events[:seq], late=late).items():
                (folder / name).write_bytes(data)
            again = Play(WRONG, "done", LOOK, RIGHT, "now it is right")
            handle = launch.resume_task(session, talking(again, Check(SAYS)), options=RunOptions(headless=True))
            assert handle.result(PATIENCE) == "now it is right", (seq, last)
            assert {p.name: p.read_text() for p in folder.iterdir()} == {"a.py": "a = 2\n"}, (seq, last)
            (failed,) = bodies(session, "CheckFailed")
            assert failed.get("kept", []) == [], (seq, last)
            assert again.faults == [], (seq, last)
            answered = len([e for e in events[:seq] if e.event_type == "MessageAdded" and e.activity_id])
            assert len(again.sent) == 5 - answered, (seq, last, "no model request that had its answer was made again")
            assert len(of_type(session, "ApprovalRequested")) == 0, (seq, last)


def test_a_check_of_an_agent_gets_no_secrets_and_its_output_is_scrubbed(
    engine: Engine, folder: Path, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-verysecretvalue1234567890")
    (folder / "key").write_text("sk-verysecretvalue1234567890")
    play = Play("done", "sorry")
    session = engine.ended(engine.start(talking(play, Check("cat key; env; false", 1)), "go"), "failed")
    (failed,) = bodies(session, "CheckFailed")
    assert "<secret MY_API_KEY>" in failed["why"]
    stored = b"".join(p.read_bytes() for p in session.layout.root.rglob("*") if p.is_file())
    assert b"verysecretvalue" not in stored
    assert os.environ["MY_API_KEY"] not in str(failed)
