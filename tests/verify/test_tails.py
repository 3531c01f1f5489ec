"""A log that ends before what was on disk is damage, and what tells of the loss stays; what a crash may leave is none."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from ipyagent_sessions.log import live
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import Child, activities, wait_until
from ipyagent_sessions.verify import whole
from ipyagent_sessions.verify.finding import Finding

FLOW = """
import time
from ipyagent_sessions import activity, workflow

@activity
def one(n):
    return n

@activity
def last():
    print("here", flush=True)
    time.sleep(600)

@workflow
async def flow(ctx):
    for n in range(5):
        await ctx.run(one, n)
    await ctx.run(last)
"""
RUN = "import sys\nfrom ipyagent_sessions import cli\nsys.exit(cli.main(sys.argv[1:]))"


def killed(tmp_path: Path, durability: str) -> Session:
    """A session whose only task was killed in its sixth activity, once `live.json` told of the others."""
    (tmp_path / "flows.py").write_text(FLOW)
    root = tmp_path / "killed"
    words = ("--store", str(root), "run", "flows:flow", "--durability", durability)
    with Child(RUN, *words, env={"PYTHONPATH": ":".join([str(tmp_path), *sys.path])}) as child:
        child.expect("here")
        (session_id,) = Store(root).session_ids()
        session = Store(root).session(session_id)
        wait_until(lambda: (found := session.live()) is not None and found.durable_seq > 1)
        child.kill()
    return Store(root).session(session_id)


def damage(session: Session, *, repair: bool = False) -> list[Finding]:
    found = whole.session(session, repair=repair).findings
    return [f for f in found if f.level == "damage" and not f.repaired]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_what_a_kill_leaves_is_no_damage(tmp_path: Path, me: Holder, durability: str) -> None:
    session = killed(tmp_path, durability)
    assert damage(session) == []
    again = session.append(me, force=True)  # a new journal, in which nothing is yet
    again.abandon()
    assert damage(session) == []


def test_an_emptied_journal_is_damage_of_the_log_and_the_summary_stays(tmp_path: Path) -> None:
    session = killed(tmp_path, "sync")
    journal = session.layout.journals()[-1].path
    journal.write_bytes(b"")
    summary = session.layout.summary.read_bytes()
    for repair in (False, True, False):
        found = damage(session, repair=repair)
        assert (found[0].file, found[0].place) == (journal.name, "after event 1")
        assert "live.json tells of event " in found[0].what
        assert found[0].means.endswith("lost; a fork goes on from event 1")
        assert session.layout.summary.read_bytes() == summary


def test_a_journal_that_lost_its_last_line_is_damage(tmp_path: Path) -> None:
    session = killed(tmp_path, "sync")
    known = live.read_live(session.layout)
    assert known is not None
    journal = session.layout.journals()[-1].path
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[: known.durable_seq - 2]))
    (found,) = (f for f in damage(session) if f.file == journal.name)
    assert found.place == f"after event {known.durable_seq - 1}"
    assert found.means.startswith(f"event {known.durable_seq} lost")


@pytest.fixture
def told(session: Session, me: Holder) -> Session:
    """A session that nobody holds, with a checkpoint and a summary of its end, all in one journal."""
    appender = session.append(me)
    activities(appender, 3)
    appender.checkpoint("manual", "one")
    appender.barrier()
    live.write_summary(session.layout, summarise(session.id, appender.state), session.place.disk)
    appender.close()
    assert not damage(session)
    return session


@pytest.mark.parametrize("witness", ["summary.json", "checkpoints"])
def test_the_summary_or_a_checkpoint_alone_tells_of_the_loss(told: Session, witness: str) -> None:
    if witness == "summary.json":
        for path in told.layout.checkpoints.iterdir():
            path.unlink()
        later = msgspec.structs.replace(told.summary(), updated_at="2999-01-01T00:00:00.000Z")
        told.layout.summary.write_bytes(msgspec.json.encode(later))
    else:
        told.layout.summary.unlink()
    end = told.last_seq()
    journal = told.layout.journals()[-1].path
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    (found, *_) = (f for f in damage(told) if f.file == journal.name)
    assert witness in found.what
    assert found.what.endswith(f"tells of event {end}")


def test_a_log_without_any_file_is_damage(told: Session) -> None:
    later = msgspec.structs.replace(told.summary(), updated_at="2999-01-01T00:00:00.000Z")
    told.layout.summary.write_bytes(msgspec.json.encode(later))
    for journal in told.layout.journals():
        journal.path.unlink()
    assert "log" in [f.file for f in damage(told, repair=True)]
    assert told.layout.summary.exists()
