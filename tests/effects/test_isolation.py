"""A fork with `--isolate` works in a workspace of its own: what one branch writes is not in the other."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Terminal, folder, terminal
from tests.effects.test_rollback import Agent, agent
from tests.run.harness import PATIENCE
from tests.turn.play import Play, agent_of

from ipyagent_sessions import workflow
from ipyagent_sessions.agent import turn
from ipyagent_sessions.agent.permission import Rules
from ipyagent_sessions.agent.records import Records
from ipyagent_sessions.agent.settings import Settings
from ipyagent_sessions.agent.surroundings import here
from ipyagent_sessions.agent.tools.write_file import write_file
from ipyagent_sessions.effects import isolation
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.launch import resume_task, run_workflow
from ipyagent_sessions.run.task import RunOptions
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store

__all__ = ["agent", "folder", "terminal"]

FLOW = """
from ipyagent_sessions import workflow

@workflow(default_effect="none")
async def flow(ctx):
    (ctx.folder / "first.txt").write_text("1")
    ctx.wrote(ctx.folder / "first.txt")
    await ctx.approve("Go on?")
    (ctx.folder / "second.txt").write_text("2")
    ctx.wrote("second.txt")
    return str(ctx.folder)
"""


@pytest.fixture
def repository(folder: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("needs git")
    git(folder, "init", "-q")
    (folder / ".gitignore").write_text("store/\nignored/\n__pycache__/\n")
    (folder / "kept.txt").write_text("committed\n")
    (folder / "changed.txt").write_text("committed\n")
    (folder / "removed.txt").write_text("committed\n")
    git(folder, "add", "-A")
    git(folder, "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "first")
    (folder / "changed.txt").write_text("not committed\n")
    (folder / "new.txt").write_text("untracked\n")
    (folder / "removed.txt").unlink()
    (folder / "ignored").mkdir()
    (folder / "ignored/large.bin").write_text("ignored\n")
    return folder


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def forked(terminal: Terminal, session: Session, at: int) -> tuple[Session, Path, dict[str, Any]]:
    said = terminal("fork", session.id, "--at", str(at), "--isolate", "--json")
    assert said.status == 0, said.err
    told = json.loads(said.out)
    child = Store(session.place.root).session(told["session_id"])
    assert str(child.workspace) == told["workspace"]
    return child, Path(told["workspace"]), told


def test_a_worktree_has_what_is_committed_and_what_is_not_and_the_original_is_untouched(
    repository: Path, agent: Agent, terminal: Terminal
) -> None:
    agent.write("kept.txt", b"by the agent\n")
    at = agent.told[0] - 1
    agent.write("made.txt", b"by the agent\n")
    agent.write("ignored/out.txt", b"by the agent\n")
    before = git(repository, "status", "--porcelain")
    _, own, _ = forked(terminal, agent.session, at)
    assert (own / "kept.txt").read_text() == "committed\n"
    assert (own / "changed.txt").read_text() == "not committed\n"
    assert (own / "new.txt").read_text() == "untracked\n"
    assert not (own / "removed.txt").exists()
    assert not (own / "made.txt").exists()
    assert not (own / "ignored").exists()
    assert (repository / "kept.txt").read_text() == "by the agent\n"
    assert git(repository, "status", "--porcelain") == before
    assert (own / ".git").is_file()


def test_what_git_ignores_and_the_agent_had_written_by_then_comes_along(
    repository: Path, agent: Agent, terminal: Terminal
) -> None:
    agent.write("ignored/out.txt", b"1")
    at = agent.told[0]
    agent.write("ignored/out.txt", b"2")
    _, own, _ = forked(terminal, agent.session, at)
    assert (own / "ignored/out.txt").read_bytes() == b"1"
    assert not (own / "ignored/large.bin").exists()
    assert (repository / "ignored/out.txt").read_bytes() == b"2"


def test_a_folder_below_the_top_of_the_repository_stays_that_folder(
    repository: Path, agent: Agent, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "below").mkdir()
    monkeypatch.chdir(repository / "below")
    agent.write("a.txt", b"1")
    child, own, _ = forked(terminal, agent.session, agent.told[0])
    assert own.name == "below"
    assert (own / "a.txt").read_bytes() == b"1"
    assert (own.parent / "kept.txt").exists()
    grandchild = child.fork()
    assert grandchild.workspace == own


def test_without_a_repository_it_is_a_copy_without_the_store(folder: Path, agent: Agent, terminal: Terminal) -> None:
    (folder / "sub").mkdir()
    (folder / "sub/data.txt").write_text("1")
    (folder / ".venv").mkdir()
    (folder / ".venv/large").write_text("1")
    (folder / "sub/link").symlink_to("data.txt")
    agent.write("made.txt", b"1")
    _, own, _ = forked(terminal, agent.session, agent.told[0] - 1)
    assert (own / "sub/data.txt").read_text() == "1"
    assert (own / "sub/link").is_symlink()
    assert not (own / "store").exists()
    assert not (own / ".venv").exists()
    assert not (own / "made.txt").exists()
    (own / "sub/data.txt").write_text("2")
    assert (folder / "sub/data.txt").read_text() == "1"


def test_what_is_too_large_is_refused_and_nothing_is_left(
    folder: Path, agent: Agent, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.write("a.txt", b"1" * 100)
    monkeypatch.setattr(isolation, "BIGGEST", 50)
    said = terminal("fork", agent.session.id, "--isolate")
    assert said.status == 2
    assert "are copied" in said.err
    assert list((folder / "store/w").iterdir()) == []
    assert Store(folder / "store").session_ids() == [agent.session.id]


def test_a_workflow_of_the_fork_works_there_and_its_parent_where_it_was(folder: Path, terminal: Terminal) -> None:
    (folder / "own.py").write_text(FLOW)
    assert terminal("run", "own:flow").status == 1
    parent = Store(folder / "store").session(Store(folder / "store").session_ids()[0])
    asked = max(e.seq for e in parent.events() if e.event_type == "TaskSuspended")
    child, own, _ = forked(terminal, parent, asked)
    assert (own / "first.txt").read_text() == "1"
    terminal("approve", child.id)
    done = terminal("resume", child.id)
    assert done.out.strip() == repr(str(own)), done.err
    assert (own / "second.txt").exists()
    assert not (folder / "second.txt").exists()
    assert not [e for e in child.events(after=child.first) if e.event_type == "AlarmRaised"]
    assert sum(e.event_type == "FileWritten" for e in child.events()) == 2
    terminal("approve", parent.id)
    assert terminal("resume", parent.id).out.strip() == repr(str(folder))
    assert (folder / "second.txt").exists()
    sys.modules.pop("own", None)


def test_the_tools_of_an_agent_of_the_fork_write_there(folder: Path, terminal: Terminal) -> None:
    play = Play(
        [("write_file", {"path": "a.txt", "content": "1"})], [("write_file", {"path": "b.txt", "content": "2"})], "done"
    )

    @workflow
    async def talk(ctx: Context, prompt: str) -> Any:
        records = Records(ctx.task, here(), Settings.load(here().folder))
        tools = [write_file(records.bench).pydantic]
        return await turn.take(ctx, agent_of(play, tools), prompt, Rules(mode="auto"), records)

    store = Store(folder / "store")
    handle = run_workflow(store, talk, ("go",))
    handle.result(PATIENCE)
    first = next(
        e for e in handle.session.events() if e.event_type == "ActivityCompleted" and "write_file" in str(e.activity_id)
    )
    child, own, _ = forked(terminal, handle.session, first.seq)
    assert (own / "a.txt").read_text() == "1"
    assert not (own / "b.txt").exists()
    (folder / "b.txt").unlink()
    resume_task(child, talk, options=RunOptions()).result(PATIENCE)
    assert (own / "b.txt").read_text() == "2"
    assert not (folder / "b.txt").exists()
    assert [json.loads(bytes(e.payload))["path"] for e in child.events() if e.event_type == "FileWritten"] == [
        "a.txt",
        "b.txt",
    ]
    said = json.loads(terminal("rollback", child.id, "--yes", "--json").out)
    assert [f["path"] for f in said["files"]] == ["b.txt"]
    assert not (own / "b.txt").exists()


def test_delete_says_that_the_workspace_goes_and_takes_it_with_it(repository: Path, agent: Agent, terminal: Terminal) -> None:
    agent.write("a.txt", b"1")
    child, own, _ = forked(terminal, agent.session, agent.told[0])
    assert str(own) in terminal("delete", child.id).out
    assert own.exists()
    grandchild = Store(folder_store := repository / "store").session(child.fork().id)
    terminal("delete", child.id, "--yes")
    assert own.exists(), "the grandchild works there"
    assert Store(folder_store).session(grandchild.id).workspace == own
    terminal("delete", grandchild.id, "--yes")
    assert not own.exists()
    assert git(repository, "worktree", "list").count("\n") == 1


def test_a_fork_whose_workspace_is_gone_does_not_go_on_elsewhere(folder: Path, agent: Agent, terminal: Terminal) -> None:
    agent.write("a.txt", b"1")
    child, own, _ = forked(terminal, agent.session, agent.told[0])
    shutil.rmtree(own)
    with pytest.raises(UsageError, match="is not there"):
        _ = child.workspace


def test_a_header_that_names_a_place_outside_is_refused(folder: Path, agent: Agent, terminal: Terminal) -> None:
    agent.write("a.txt", b"1")
    child, _, _ = forked(terminal, agent.session, agent.told[0])
    header = json.loads(child.layout.header.read_text())
    for wanted in ("../../..", "aa/../../../..", "/etc"):
        child.layout.header.write_text(json.dumps({**header, "workspace": wanted}))
        with pytest.raises(UsageError):
            _ = Store(folder / "store").session(child.id).workspace
