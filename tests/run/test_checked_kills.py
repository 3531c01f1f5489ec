"""kill -9 anywhere in a checked section, also between the failing check, the undos, each file and the event that tells of it:
a resume ends with the same files, values and attempts as if nothing had happened.

One process imports the engine and forks for each case, and again for the resume, so that a case costs milliseconds."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.run.harness import bodies, of_type, refolded

from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import Child
from ipyagent_sessions.undo.ledger import ledger
from ipyagent_sessions.verify import whole

CAMPAIGN = """
import json, os, signal, sys
from pathlib import Path
from ipyagent_sessions.run import launch
from ipyagent_sessions.run.definitions import workflow
from ipyagent_sessions.run.task import RunOptions
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FakeIds, FaultyDisk
import psutil, pyarrow.parquet, tenacity, zstandard  # what is imported late is imported now

deeds = 0

def deed(what):
    "Something that happens in the world; the process dies right after one of them."
    global deeds
    with open("../witness", "a") as file:
        file.write(what + chr(10))
    deeds += 1
    if deeds == die_after:
        os.kill(os.getpid(), signal.SIGKILL)

def change(number):
    for name in ("a", "b", "new"):
        Path(name).write_text(f"{name} {number}")
        deed(f"write {name} {number}")
    Path("gone").unlink(missing_ok=True)
    deed(f"unlink {number}")

def book(number):
    deed(f"book {number}")

def cancel_booking(number):
    deed(f"cancel {number}")

def good(number):
    deed(f"check {number}")
    return number == 3 or f"{number} is not good"

@workflow(default_effect="idempotent")
async def flow(ctx):
    ctx.set("list", ["start"])

    async def part(failure):
        number = 1 if failure is None else int(failure.split()[0]) + 1
        ctx.append("list", number)
        await ctx.run(book, number, compensate=cancel_booking)
        await ctx.run(change, number)
        return number

    value = await ctx.checked("good", part, check=good, files="*")
    ctx.emit("Published", {"value": value})
    return value

def work(root, mode, seam, at, resume):
    global die_after
    die_after = at if seam == "deed" and not resume else 0
    disk = FaultyDisk()
    if seam != "deed" and not resume:
        disk.kill(seam, at=at)
    folder = Path(root, "work")
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    store = Store(Path(root, "store"), disk=disk, ids=FakeIds())
    options = RunOptions(durability=mode, headless=True)
    if not resume:
        for name in ("a", "b", "gone"):
            Path(name).write_text(f"{name} 0")
        handle = launch.run_workflow(store, flow, options=options)
    else:
        (listed,) = store.sessions()
        session = store.session(listed.session_id)
        if session.state().system_state.status in ("completed", None):
            return
        handle = launch.resume_task(session, flow, options=options)
    handle.wait(60)
    while handle.outcome.state == "suspended":
        from ipyagent_sessions.run import control
        with open("../asked", "a") as file:
            file.write("asked" + chr(10))
        for key, asked in handle.session.state().execution_state.approvals.items():
            if asked.answer is None:
                control.request(handle.session, "answer", actor="user:anna", approval_id=key, answer="approved",
                    digest=asked.digest)
        handle = launch.resume_task(handle.session, flow, options=options)
        handle.wait(60)
    handle.result()

def forked(*case):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work(*case)
            status = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1]

for line in open(sys.argv[1]):
    case = json.loads(line)
    died, resumed = forked(*case, False), forked(*case, True)
    print(json.dumps([case, os.WTERMSIG(died), resumed]), flush=True)
print("over", flush=True)
"""

SEAMS = ("before journal sync", "after journal sync")
CASES: list[tuple[str, str, int]] = [
    *(("sync", seam, at) for i, seam in enumerate(SEAMS) for at in range(1 + i, 32, 2)),
    *(("sync", "after file rolled back", at) for at in range(1, 9)),
    *(("exit", "after file rolled back", at) for at in (2, 7)),
    *(("sync", "deed", at) for at in range(1, 17)),
    *(("exit", "deed", at) for at in (5, 7, 12, 13)),
]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, int], Path]:
    """The folder of each case, killed and resumed to its end."""
    folder = tmp_path_factory.mktemp("kills")
    roots = {case: folder / " ".join(map(str, case)) for case in CASES}
    (folder / "cases").write_text("\n".join(json.dumps([str(root), *case]) for case, root in roots.items()))
    killed = 0
    with Child(CAMPAIGN, str(folder / "cases")) as child:
        while (line := child.line(timeout=60)) != "over":
            case, signal, resumed = json.loads(line)
            killed += signal == 9
            assert resumed == 0, case
        assert child.wait() == 0
    assert killed >= len(CASES) * 0.9, "most cases are met by a kill"
    return roots


@pytest.mark.parametrize("seam", [*SEAMS, "after file rolled back", "deed"])
def test_after_a_kill_a_resume_ends_as_if_nothing_had_happened(campaign: dict[tuple[str, str, int], Path], seam: str) -> None:
    for case, root in campaign.items():
        if case[1] == seam:
            check(root, case)


def check(root: Path, case: tuple[str, str, int]) -> None:
    store = Store(root / "store")
    (listed,) = store.sessions()
    session = store.session(listed.session_id)
    if session.state().system_state.status is None:
        assert case[2] < 4, "the task had not begun"
        return
    assert {p.name: p.read_text() for p in (root / "work").iterdir()} == {"a": "a 3", "b": "b 3", "new": "new 3"}, case
    assert session.state().business_state.values == {"list": ["start", 3]}, case
    failed = of_type(session, "CheckFailed")
    assert [b["why"] for b in bodies(session, "CheckFailed")] == ["1 is not good", "2 is not good"], case
    assert all(session.state(e.seq).business_state.values == {"list": ["start"]} for e in failed), case
    assert bodies(session, "Published") == [{"value": 3}], case
    assert session.state() == refolded(session), case
    assert not whole.session(session).damaged, case
    done = Counter((root / "witness").read_text().splitlines())
    repeated = {what: n for what, n in done.items() if n > 1}
    assert set(repeated.values()) <= {2}, (case, repeated)
    assert {what for what in done if what.startswith("cancel")} == {"cancel 1", "cancel 2"}, case
    if case[0] == "sync":
        assert len({what.split()[0] for what in repeated}) <= 2, (case, repeated, "more than what was under way ran again")
    known(session, case)
    asked = (root / "asked").exists()
    assert not asked or inside_a_part(case), (case, "a kill outside of a part leaves no doubt about a file")
    if not asked:
        assert all(not b.get("kept") for b in bodies(session, "CheckFailed")), case


def known(session: Session, case: tuple[str, str, int]) -> None:
    """Every file of a failed attempt is told as rolled back or as left."""
    last = of_type(session, "CheckFailed")[-1].seq
    left: set[Any] = {name for b in bodies(session, "CheckFailed") for name in b.get("kept", [])}
    wrong = [e for e in ledger(session.events()) if e.what == "file" and e.seq < last and e.state != "rolled back"]
    assert {e.name for e in wrong} <= left, case


def inside_a_part(case: tuple[str, str, int]) -> bool:
    """Whether such a kill may be met while a part runs."""
    return case[1] != "after file rolled back"
