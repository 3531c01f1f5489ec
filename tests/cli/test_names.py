"""A session is named the same way everywhere: an id, a beginning of one, a task id, a title, or @last."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Said, Terminal

from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import NotFound, UsageError
from ipyagent_sessions.log import live
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import summarise
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import activities

SCRIPT = "- say: forty-two\n"
LOOKING = ("status", "log", "state", "checkpoints", "effects", "replay", "verify", "upgrade", "rollback")
TAKE_ONE: dict[str, list[str]] = {
    "status": [],
    "log": [],
    "state": [],
    "checkpoints": [],
    "effects": [],
    "replay": [],
    "fork": [],
    "rollback": [],
    "verify": [],
    "upgrade": [],
    "delete": [],
    "pause": [],
    "approve": [],
    "deny": [],
    "cancel": [],
    "resume": [],
    "rerun": [],
    "rename": ["again"],
    "export": ["out.zip"],
}


@pytest.fixture
def waiting(folder: Path, me: Holder) -> Store:
    """Two sessions: `abcd` titled "quarterly report" that waits for a person, and one titled like the beginning of its id."""
    store = Store(folder / "store", ids=iter(["abcd", "store1", "xyz9", *(f"more{n}" for n in range(90))]).__next__)
    for title in ("quarterly report", "ab"):
        session = store.create(title=title)
        appender = session.append(me)
        appender.emit("TaskQueued", p.TaskQueued("m:f"), task_id=f"{session.id}.1")
        appender.emit("TaskStarted", p.TaskStarted(), task_id=f"{session.id}.1")
        activities(appender, 1)
        appender.emit("TaskSuspended", p.TaskSuspended("approval", "Go on?"), task_id=f"{session.id}.1")
        appender.close()
    return store


def test_a_title_an_id_a_beginning_of_one_and_a_task_id_name_a_session(waiting: Store) -> None:
    for wanted in ("abcd", "abc", "a", "abcd.1", "quarterly report"):
        assert waiting.find(wanted).id == "abcd"
    for wanted in ("nothing", "", "Quarterly report", "abcd.x", "../abcd"):
        with pytest.raises(NotFound, match="there is no session"):
            waiting.find(wanted)


def test_what_fits_several_is_refused_with_the_candidates(waiting: Store) -> None:
    with pytest.raises(UsageError, match=r"'ab' fits 2 sessions: .*say which one by its id") as raised:
        waiting.find("ab")
    assert "abcd ('quarterly report', empty" in str(raised.value)
    assert "xyz9 ('ab', empty" in str(raised.value)
    waiting.create(title="quarterly report")
    with pytest.raises(UsageError, match="'quarterly report' fits 2 sessions"):
        waiting.find("quarterly report")
    assert waiting.find("abcd").id == "abcd", "a whole id means one session, whatever others are called"
    for n in range(10):
        waiting.create(title=f"{n}")
    with pytest.raises(UsageError, match=r"fits 11 sessions: .*, and 3 more"):
        waiting.find("more")


@pytest.mark.parametrize("command", sorted(TAKE_ONE))
def test_every_command_that_takes_a_session_takes_all_its_names(command: str, waiting: Store, terminal: Terminal) -> None:
    def call(name: str) -> Said:
        return terminal(command, name, *TAKE_ONE[command])

    said = call("no such title")
    assert (said.status, said.out) == (1, "")
    assert "there is no session 'no such title'" in said.err
    said = call("ab")
    assert (said.status, said.out) == (2, "")
    assert "'ab' fits 2 sessions: " in said.err
    assert "abcd" in said.err
    assert "xyz9" in said.err
    said = call("quarterly report")
    assert "there is no session" not in said.err
    if command in LOOKING:
        assert said == call("abcd")


@pytest.fixture
def second(waiting: Store, me: Holder) -> Store:
    """`abcd` is at its second task, which waits for a person; its first is over."""
    appender = waiting.session("abcd").append(me)
    appender.emit("TaskResumed", p.TaskResumed(2, "x"), task_id="abcd.1")
    appender.emit("TaskCompleted", p.TaskCompleted(), task_id="abcd.1")
    appender.emit("TaskQueued", p.TaskQueued("m:f"), task_id="abcd.2")
    appender.emit("TaskStarted", p.TaskStarted(), task_id="abcd.2")
    appender.emit("ApprovalRequested", p.ApprovalRequested("a1", "Go on?"), task_id="abcd.2")
    appender.emit("TaskSuspended", p.TaskSuspended("approval", "Go on?"), task_id="abcd.2")
    appender.close()
    live.write_summary(waiting.session("abcd").layout, summarise("abcd", appender.state), appender.disk)
    return waiting


@pytest.mark.parametrize("command", ["approve", "deny", "cancel", "pause", "resume", "rerun", "status", "delete"])
def test_what_is_done_to_a_task_is_not_done_to_another_one(command: str, second: Store, terminal: Terminal) -> None:
    before = second.session("abcd").last_seq()
    said = terminal(command, "abcd.1")
    assert (said.status, said.out) == (2, "")
    assert "task abcd.1 is over; the session is at abcd.2" in said.err
    for wanted in ("abcd.3", "abcd.0", "abcd.99"):
        said = terminal(command, wanted)
        assert (said.status, said.out) == (1, "")
        assert f"session abcd has no task {int(wanted[5:])}; it is at abcd.2" in said.err
    assert second.session("abcd").last_seq() == before
    assert "abcd.2 is over" not in terminal(command, "abcd.2").err


def test_an_older_task_names_its_session_for_whoever_only_looks(second: Store, terminal: Terminal) -> None:
    assert terminal("log", "abcd.1") == terminal("log", "abcd")
    assert "has no task 3" in terminal("log", "abcd.3").err


def test_the_label_of_a_checkpoint_comes_before_the_session(waiting: Store, terminal: Terminal) -> None:
    assert "fits 2 sessions" in terminal("checkpoint", "x", "ab").err
    assert "abcd" in terminal("checkpoint", "x", "quarterly report").out


def test_a_recorded_session_is_named_like_any_other_and_kept_by_its_id(folder: Path, terminal: Terminal) -> None:
    (folder / "play.yaml").write_text(SCRIPT)
    assert terminal("ask", "the answer", "--model", "scripted:play.yaml", "--title", "the recording").status == 0
    (recorded,) = (listed.session_id for listed in Store().sessions())
    for name in (recorded, recorded[:6], "the recording", "@last"):
        said = terminal("ask", "the answer", "--session", "new", "--title", "played", "--model", f"cassette:{name}")
        assert said.out == "'forty-two'\n", said.err
        played = next(listed for listed in Store().sessions() if listed.summary and listed.summary.title == "played")
        assert Store().session(played.session_id).state().system_state.model == f"cassette:{recorded}"
        assert terminal("delete", played.session_id, "--yes").status == 0
    said = terminal("ask", "the answer", "--session", "new", "--model", "cassette:nothing")
    assert (said.status, "there is no session 'nothing'" in said.err) == (1, True)


def test_a_recording_is_looked_for_in_the_store_that_the_command_names(folder: Path, terminal: Terminal) -> None:
    (folder / "play.yaml").write_text(SCRIPT)
    other = ("--store", "other")
    assert terminal(*other, "ask", "the answer", "--model", "scripted:play.yaml", "--title", "tape").status == 0
    assert terminal(*other, "ask", "the answer", "--session", "new", "--model", "cassette:tape").out == "'forty-two'\n"
    assert terminal("ask", "the answer", "--model", "cassette:tape").status == 1


def test_a_conversation_of_an_ambiguous_name_is_refused_and_no_new_one_is_begun(
    folder: Path, waiting: Store, terminal: Terminal
) -> None:
    (folder / "play.yaml").write_text(SCRIPT)
    said = terminal("ask", "hello", "--model", "scripted:play.yaml", "--session", "ab")
    assert (said.status, "fits 2 sessions" in said.err) == (2, True)
    assert len(waiting.session_ids()) == 2
