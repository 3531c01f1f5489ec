"""kill -9 at every named seam: no acknowledged event is lost, none is doubled, and the session opens again.

One process imports the engine and forks for each case, so that a case costs milliseconds.  What was acknowledged is
written to a witness outside the store.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ipyagent_sessions import folding
from ipyagent_sessions import state as states
from ipyagent_sessions.log import checkpoints
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.log.reader import Reader
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import Child, activities

CAMPAIGN = """
import json, os, sys
from ipyagent_sessions.log import journal
from ipyagent_sessions.log.lease import this_process
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FakeIds, FaultyDisk, activities

journal.SEAL_EVENTS = 10

def work(root, witness, seam, at):
    disk = FaultyDisk()
    disk.kill(seam, at=at)
    told = os.open(witness, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    session = Store(root, disk=disk, ids=FakeIds()).create(title="victim")
    os.write(told, b"1\\n")
    for opening in range(3):
        appender = session.append(this_process())
        for n in range(6):
            activities(appender, 1)
            blobs = {}
            _, name = appender.put(b'"%d %b"' % (n, b"x" * 33_000), blobs)
            appender.emit("Noted", {"result_blob": name}, ignorable=True, blobs=blobs)
            appender.checkpoint("manual" if n % 2 else "time", str(n) if n % 2 else "")
            appender.acknowledge()
            os.write(told, b"%d\\n" % appender.durable_seq)
        appender.close(rest=True)
        with open(session.layout.journals()[-1].path, "ab") as file:
            file.write(b'{"c":"torn')

work(sys.argv[2], sys.argv[2] + ".witness", "before journal write", 10**6)  # whatever is imported late is imported now
for line in open(sys.argv[1]):
    root, witness, seam, at = json.loads(line)
    pid = os.fork()
    if pid == 0:
        try:
            work(root, witness, seam, at)
        finally:
            os._exit(0)
    status = os.waitpid(pid, 0)[1]
    print(json.dumps([root, os.WTERMSIG(status)]), flush=True)
print("over", flush=True)
"""

SEAMS = [
    f"{when} {what}"
    for when in ("before", "after")
    for what in (
        "journal write",
        "journal sync",
        "blob rename",
        "seal rename",
        "checkpoint rename",
        "epoch created",
        "tail rename",
        "header rename",
    )
]
RARE = {"header rename": (1,), "tail rename": (1, 2), "epoch created": (1, 2, 4, 6), "seal rename": (1, 2, 3, 4)}
CASES = [(seam, at) for seam in SEAMS for at in RARE.get(seam.split(" ", 1)[1], (1, 2, 5, 13))]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and a witness for each case, after all of them were killed."""
    folder = tmp_path_factory.mktemp("kills")
    cases = [json.dumps([str(folder / f"{seam} {at}"), str(folder / f"{seam} {at}.witness"), seam, at]) for seam, at in CASES]
    (folder / "cases").write_text("\n".join(cases))
    killed = 0
    with Child(CAMPAIGN, str(folder / "cases"), str(folder / "warm")) as child:
        while (line := child.line(timeout=60)) != "over":
            killed += json.loads(line)[1] == 9
        assert child.wait() == 0
    assert killed >= len(CASES) * 0.9, "most cases are met by a kill"
    return folder


@pytest.mark.parametrize("seam", SEAMS)
def test_after_a_kill_nothing_acknowledged_is_lost_and_nothing_doubled(campaign: Path, seam: str, me: Holder) -> None:
    for _, at in [case for case in CASES if case[0] == seam]:
        store = Store(campaign / f"{seam} {at}")
        witness = campaign / f"{seam} {at}.witness"
        acknowledged = int(witness.read_text().split()[-1]) if witness.exists() and witness.read_text() else 0
        for listed in store.sessions():
            session = store.session(listed.session_id)
            if not session.layout.header.exists():
                assert acknowledged == 0
                continue
            check(session, acknowledged, me, f"{seam} {at}")


def check(session: Session, acknowledged: int, me: Holder, where: str) -> None:
    seqs = [e.seq for e in Reader(session.layout).events()]
    assert seqs == list(range(1, len(seqs) + 1)), where
    assert len(seqs) >= acknowledged, where
    assert all(info.complete for info in session.checkpoints()), where
    assert max(checkpoints.sequence(session.layout), default=0) <= len(seqs), (
        f"{where}: a snapshot past the last durable event"
    )
    appender = session.append(me)
    activities(appender, 1)
    appender.close(rest=True)
    reader = Reader(session.layout)
    events = list(reader.events())
    assert [e.seq for e in events] == list(range(1, len(events) + 1)), where
    assert (reader.damage, reader.missing) == ([], []), where
    assert states.encode(session.state()) == states.encode(folding.fold(events)), where
    assert not list(session.layout.root.rglob("*.tmp")), where
    plain: list[Any] = [
        seq for s in session.layout.segments() for seq in pq.read_table(s.path, columns=["seq"])["seq"].to_pylist()
    ]
    assert sorted(plain) == list(range(1, len(events) + 1)), f"{where}: another program would count an event twice"
