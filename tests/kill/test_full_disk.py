"""A real file system without room: what was promised stays, no effect happens unrecorded, and it goes on later."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kill import looks
from tests.kill.bench import Bench
from tests.kill.looks import Reference
from tests.kill.nursery import Nursery

pytestmark = pytest.mark.timeout(180)
SIZE = 2 * 2**20


@pytest.fixture
def small(tmp_path: Path, nursery: Nursery) -> Iterator[Path]:
    """A file system of 2 MB, which no child uses any more when it goes."""
    folder = tmp_path / "small"
    folder.mkdir()
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        problem = done.stderr.strip() if done.returncode else ""
    except OSError as error:
        problem = str(error)
    if problem:
        pytest.skip(f"NOT TESTED: a full disk on a real file system, since none can be mounted here: {problem}")
    yield folder
    nursery.end_all()
    subprocess.run(["umount", str(folder)], timeout=30, check=True)


@pytest.mark.parametrize("room", [16, 64, 128, 200])
def test_a_full_disk_loses_nothing_and_the_task_goes_on_once_there_is_room(
    small: Path, tmp_path: Path, nursery: Nursery, reference: Reference, room: int
) -> None:
    bench = Bench(small, nursery, beside=tmp_path)
    filler = small / "filler"
    filler.write_bytes(b"\0" * (SIZE - room * 1024))

    assert bench.run(headless=True) == 0

    assert bench.said()[-1].startswith(("PersistenceError", "suspended: persistence")), bench.said()
    assert os.statvfs(small).f_bavail * os.statvfs(small).f_frsize < 96 * 1024
    for session in looks.with_header(bench.store):
        assert looks.lost(session, bench.witness) == []
        begun = {(e.activity_id or "").partition("/")[2] for e in session.events() if e.event_type == "ActivityStarted"}
        assert {n["id"] for n in bench.witness.notes("effect")} <= begun, "an effect without a durable intent"
    filler.unlink()
    bench.run(headless=True)
    bench.finish()
    assert looks.at_end(bench.store, bench.witness, "async", reference) == []
