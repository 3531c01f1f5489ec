"""Files go back to what they held, never over a later edit by a person, never outside the folder; a crash costs nothing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Terminal, folder, terminal

from ipyagent_sessions import payloads as p
from ipyagent_sessions.effects.rollback import carry_out, workspace_of
from ipyagent_sessions.errors import LeaseHeld, PersistenceError
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.blobs import Blobs
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FaultyDisk
from ipyagent_sessions.undo.files import plan
from ipyagent_sessions.undo.ledger import ledger
from ipyagent_sessions.verify import whole

__all__ = ["folder", "terminal"]
TEXT = b"one\ntwo\nthree\nfour\nfive\nsix\nseven\n"


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Agent:
    """Writes files as a tool of an agent does: told first, then written; the seqs of what it told are in `told`."""

    def __init__(self, session: Session, me: Holder) -> None:
        self.session, self.me = session, me
        self.told: list[int] = []

    def write(self, path: str, data: bytes, *, happens: bool = True, keep: bool = True) -> None:
        file = Path(path)
        before = file.read_bytes() if file.exists() else None
        kept = {} if before is None else {Blobs.name(before): before}
        body = p.FileWritten(path, digest(data), len(data), tool="write_file", call="c")
        if before is not None:
            body.before, body.before_checksum = Blobs.name(before), digest(before)
        if keep:
            body.after = Blobs.name(data)
            kept[body.after] = data
        appender = self.session.append(self.me)
        try:
            if not self.told:
                task = f"{self.session.id}.1"
                appender.emit("TaskQueued", p.TaskQueued("m:f"), task_id=task)
                appender.emit("TaskStarted", p.TaskStarted(), task_id=task)
                appender.emit("TaskCompleted", p.TaskCompleted(), task_id=task)
            self.told.append(appender.emit("FileWritten", body, blobs=kept).seq)
        finally:
            appender.close()
        if happens:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)


@pytest.fixture
def agent(folder: Path, me: Holder) -> Agent:
    return Agent(Store(folder / "store").create(title="t"), me)


def back(terminal: Terminal, *words: str) -> dict[str, Any]:
    said = terminal("rollback", *words, "--json")
    assert said.status == 0, said.err
    return json.loads(said.out)  # type: ignore[no-any-return]


def hows(told: dict[str, Any]) -> dict[str, str]:
    return {file["path"]: file["how"] for file in told["files"]}


def test_a_dry_run_changes_nothing_and_yes_restores_and_removes(folder: Path, agent: Agent, terminal: Terminal) -> None:
    (folder / "old.txt").write_bytes(b"old\n")
    agent.write("old.txt", b"new\n")
    agent.write("old.txt", b"newer\n")
    agent.write("made/new.txt", b"made\n")
    told = back(terminal, agent.session.id)
    assert hows(told) == {"old.txt": "restore", "made/new.txt": "remove"}
    assert (folder / "old.txt").read_bytes() == b"newer\n"
    assert back(terminal, agent.session.id, "--yes")["done"]
    assert (folder / "old.txt").read_bytes() == b"old\n"
    assert not (folder / "made/new.txt").exists()
    assert {e.state for e in ledger(agent.session.events())} == {"rolled back"}
    assert agent.session.state().business_state.files["old.txt"]["checksum"] == digest(b"old\n")
    assert "made/new.txt" not in agent.session.state().business_state.files
    assert hows(back(terminal, agent.session.id)) == {}
    assert not whole.session(agent.session).damaged


def test_to_goes_back_to_an_event_and_file_to_one_file(folder: Path, agent: Agent, terminal: Terminal) -> None:
    agent.write("a.txt", b"1")
    agent.write("a.txt", b"2")
    agent.write("b.txt", b"1")
    back(terminal, agent.session.id, "--to", str(agent.told[0]), "--file", "a.txt", "--yes")
    assert (folder / "a.txt").read_bytes() == b"1"
    assert (folder / "b.txt").read_bytes() == b"1"
    assert terminal("rollback", agent.session.id, "--file", "other.txt").status == 2


def test_a_later_edit_by_a_person_is_refused_with_the_difference_and_nothing_is_changed(
    folder: Path, agent: Agent, terminal: Terminal
) -> None:
    (folder / "a.txt").write_bytes(TEXT)
    agent.write("a.txt", TEXT.replace(b"two", b"TWO"))
    agent.write("b.txt", b"made")
    (folder / "a.txt").write_bytes(TEXT.replace(b"two", b"TWO").replace(b"six", b"six, by a person"))
    told = back(terminal, agent.session.id)
    assert hows(told) == {"a.txt": "refused", "b.txt": "remove"}
    assert "+six, by a person" in next(f["difference"] for f in told["files"] if f["path"] == "a.txt")
    said = terminal("rollback", agent.session.id, "--yes")
    assert said.status == 2
    assert "nothing was changed" in said.err
    assert (folder / "b.txt").exists()
    assert not [e for e in agent.session.events() if e.event_type == "FileRolledBack"]


@pytest.mark.skipif(shutil.which("git") is None, reason="a merge needs git")
def test_a_merge_undoes_the_write_and_keeps_the_edit(folder: Path, agent: Agent, terminal: Terminal) -> None:
    (folder / "a.txt").write_bytes(TEXT)
    agent.write("a.txt", TEXT.replace(b"two", b"TWO"))
    agent.write("a.txt", TEXT.replace(b"two", b"TWO").replace(b"one", b"ONE"))
    edited = (folder / "a.txt").read_bytes().replace(b"six", b"six, by a person")
    (folder / "a.txt").write_bytes(edited)
    assert hows(back(terminal, agent.session.id, "--merge", "--yes")) == {"a.txt": "merge"}
    assert (folder / "a.txt").read_bytes() == TEXT.replace(b"six", b"six, by a person")
    event = next(e for e in agent.session.events() if e.event_type == "FileRolledBack")
    assert agent.session.blobs.read(json.loads(bytes(event.payload))["before"]) == edited


@pytest.mark.skipif(shutil.which("git") is None, reason="a merge needs git")
def test_a_merge_of_the_same_lines_is_refused(folder: Path, agent: Agent, terminal: Terminal) -> None:
    (folder / "a.txt").write_bytes(TEXT)
    agent.write("a.txt", TEXT.replace(b"two", b"TWO"))
    (folder / "a.txt").write_bytes(TEXT.replace(b"two", b"zwei"))
    told = back(terminal, agent.session.id, "--merge")
    assert hows(told) == {"a.txt": "refused"}
    assert "<<<<<<<" in told["files"][0]["why"]


def test_what_the_task_made_and_a_person_changed_or_removed_stays(folder: Path, agent: Agent, terminal: Terminal) -> None:
    agent.write("made.txt", b"made")
    (folder / "made.txt").write_bytes(b"made, and a person went on")
    (folder / "old.txt").write_bytes(b"old")
    agent.write("old.txt", b"new")
    (folder / "old.txt").unlink()
    told = back(terminal, agent.session.id, "--merge")
    assert hows(told) == {"made.txt": "refused", "old.txt": "refused"}


def test_a_write_that_was_told_and_did_not_happen_is_back_already(folder: Path, agent: Agent, terminal: Terminal) -> None:
    (folder / "a.txt").write_bytes(b"0")
    agent.write("a.txt", b"1")
    agent.write("a.txt", b"2", happens=False)
    agent.write("b.txt", b"1", happens=False)
    assert hows(back(terminal, agent.session.id, "--yes")) == {"a.txt": "restore", "b.txt": "already"}
    assert (folder / "a.txt").read_bytes() == b"0"


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_crash_in_the_middle_is_resumed(folder: Path, agent: Agent, me: Holder, at: int) -> None:
    for name in ("a", "b", "c"):
        (folder / name).write_bytes(b"0")
        agent.write(name, b"1")
        agent.write(name, b"2")
    disk = FaultyDisk()

    def crash() -> None:
        raise KeyboardInterrupt

    disk.do("after file rolled back", crash, at=at)
    session = Store(folder / "store", disk=disk).session(agent.session.id)
    workspace = workspace_of(session, folder)
    with pytest.raises(KeyboardInterrupt):
        carry_out(session, workspace, plan(session, workspace, ledger(session.events()), 0), actor="user")
    assert sum((folder / name).read_bytes() == b"0" for name in "abc") == at
    steps = plan(session, workspace, ledger(session.events()), 0)
    assert sum(step.how == "already" for step in steps) == 1
    carry_out(session, workspace, steps, actor="user")
    assert [(folder / name).read_bytes() for name in "abc"] == [b"0"] * 3
    assert sum(e.event_type == "FileRolledBack" for e in session.events()) == 3
    assert {e.state for e in ledger(session.events())} == {"rolled back"}


def test_an_edit_between_the_plan_and_the_deed_is_not_destroyed(folder: Path, agent: Agent) -> None:
    (folder / "a.txt").write_bytes(b"0")
    agent.write("a.txt", b"1")
    session, workspace = agent.session, workspace_of(agent.session, folder)
    steps = plan(session, workspace, ledger(session.events()), 0)
    (folder / "a.txt").write_bytes(b"by a person")
    with pytest.raises(Exception, match="changed by somebody else"):
        carry_out(session, workspace, steps, actor="user")
    assert (folder / "a.txt").read_bytes() == b"by a person"


def test_what_cannot_be_kept_is_not_replaced(folder: Path, me: Holder, disk: FaultyDisk) -> None:
    agent = Agent(Store(folder / "store", disk=disk).create(title="t"), me)
    (folder / "a.txt").write_bytes(b"0")
    agent.write("a.txt", b"1", keep=False)
    session, workspace = agent.session, workspace_of(agent.session, folder)
    disk.fail("before blob rename", times=9)
    with pytest.raises(PersistenceError, match="it was not rolled back"):
        carry_out(session, workspace, plan(session, workspace, ledger(session.events()), 0), actor="user")
    assert (folder / "a.txt").read_bytes() == b"1"


def test_no_link_and_no_path_leads_out_of_the_folder(folder: Path, agent: Agent, terminal: Terminal, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "a.txt").write_bytes(b"1")
    (folder / "in").mkdir()
    agent.write("in/a.txt", b"1")
    (folder / "in/a.txt").unlink()
    (folder / "in").rmdir()
    os.symlink(outside, folder / "in")
    agent.write(f"../{outside.name}/a.txt", b"2")
    agent.write("store/store.json", (folder / "store/store.json").read_bytes() + b" ")
    told = back(terminal, agent.session.id)
    assert set(hows(told).values()) == {"refused"}
    assert (outside / "a.txt").read_bytes() == b"2"
    shutil.rmtree(outside)


def test_nothing_is_rolled_back_while_somebody_works_in_the_session(folder: Path, agent: Agent, me: Holder) -> None:
    agent.write("a.txt", b"1")
    session, workspace = agent.session, workspace_of(agent.session, folder)
    held: Appender = session.append(me)
    try:
        with pytest.raises(LeaseHeld):
            carry_out(session, workspace, plan(session, workspace, ledger(session.events()), 0), actor="user")
    finally:
        held.close()
    assert (folder / "a.txt").exists()
