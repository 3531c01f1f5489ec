"""A kill beside the running of tasks (export, import, delete, what sessions share, the query cache) leaves the store whole,
and the same again does what was wanted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.kill.nursery import child_environment
from tests.kill.sides import WORKS

from ipyagent_sessions import Context, run_workflow, workflow
from ipyagent_sessions.exchange.pack import export
from ipyagent_sessions.exchange.unpack import bring_in
from ipyagent_sessions.history.sql import query
from ipyagent_sessions.log.files import SIDE_SEAMS
from ipyagent_sessions.store import Store
from ipyagent_sessions.verify import whole

ELSEWHERE = {"file": "tests/effects/test_rollback.py", **dict.fromkeys(("backup", "upgrade"), "tests/golden/test_upgrade.py")}
"""Where the kills at the other seams are, by the word in them."""
SEAMS = [seam for seam in SIDE_SEAMS if seam.split()[1] not in ELSEWHERE]


@workflow(default_effect="none")
async def squares(ctx: Context, many: int) -> list[int]:
    return [await ctx.run(pow, n, 2, key=n) for n in range(many)]


@pytest.fixture
def filled(tmp_path: Path) -> Store:
    """A store of three sessions that nobody has touched for a while, and beside it an archive of the first."""
    store = Store(tmp_path / "store")
    for number in range(3):
        run_workflow(store, squares, (10 + number,)).result(30)
    export(store.session(first(store)), tmp_path / "given")
    for path in store.sessions_folder.iterdir():
        os.utime(path, (time.time() - 100, time.time() - 100))
    return store


def first(store: Store) -> str:
    return min(store.session_ids())


def counted(store: Store) -> Any:
    return query(store, "SELECT count(*) AS n, count(DISTINCT event_id) AS d FROM events").rows()


def look_at(store: Store) -> None:
    """Every session of it can be read, and nothing in it differs from what can be derived again."""
    assert [s.problem for s in store.sessions() if s.problem] == []
    assert whole.store(store).findings == []


@pytest.mark.parametrize("seam", SEAMS)
def test_a_kill_leaves_the_store_whole_and_the_same_again_does_it(filled: Store, seam: str) -> None:
    root, session_id, work = filled.root, first(filled), seam.split()[1]
    there = set(filled.session_ids())
    events = counted(filled)
    for fits in ((-signal.SIGKILL,), (-signal.SIGKILL, 0)):  # the second finds what the first has left, perhaps all
        dead = subprocess.run(
            [sys.executable, "-m", "tests.kill.sides", str(root), session_id, seam],
            env=child_environment(),
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
        assert dead.returncode in fits, dead.stderr.decode()
        look_at(Store(root))
        if root.with_name("other").exists():
            look_at(Store(root.with_name("other")))
    again = Store(root)
    WORKS[work](again, session_id)
    look_at(again)
    if work == "delete":
        assert set(again.session_ids()) == there - {session_id}
        return
    assert set(again.session_ids()) == there
    assert counted(again) == events
    if work == "import":
        assert list(Store(root.with_name("other")).session_ids()) == [session_id]
    elif work == "memory":
        assert again.memory.get("notes", "one") == 1
    elif work == "export":
        assert bring_in(Store(root.with_name("copy")), root.with_name("archive")).new == [session_id]
        look_at(Store(root.with_name("copy")))
