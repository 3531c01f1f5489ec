"""A real kill in the middle of an edit: the resumed task knows whether it happened, and the file is edited exactly once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ipyagent_sessions.run.definitions import Workflow
from ipyagent_sessions.run.launch import resume_task
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import Child

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")

PROGRAM = """
import os, sys, threading
from pathlib import Path
import msgspec
from ipyagent_sessions import Context, workflow
from ipyagent_sessions.agent.tools.edit_file import edit_file
from ipyagent_sessions.agent.tools.workbench import FileChange, Workbench, calling

STOP_AT = ""

def seam(name):
    if name == STOP_AT:
        print("reached", flush=True)
        threading.Event().wait()

def workbench(root, log):
    def report(item):
        if isinstance(item, FileChange):
            with open(log, "ab") as file:
                file.write(msgspec.json.encode(item) + b"\\n")
                file.flush()
                os.fsync(file.fileno())
            seam("told")

    def recall(call):
        lines = Path(log).read_bytes().splitlines() if Path(log).exists() else []
        changes = [msgspec.json.decode(line, type=FileChange) for line in lines]
        return next((change for change in reversed(changes) if change.call == call), None)

    return Workbench(Path(root), report=report, recall=recall)

@workflow
async def flow(ctx: Context, root: str, log: str) -> str:
    tool = edit_file(workbench(root, log))

    def edit(**arguments):
        seam("begun")
        with calling("c1"):
            said = tool(**arguments)
        seam("made")
        return said

    def happened(**arguments):
        with calling("c1"):
            return tool.verify(**arguments)

    return await ctx.run(edit, path="a", old="x", new="xx", effect=tool.effect, verify=happened, name=tool.name)
"""

MAIN = """
from ipyagent_sessions import Store, run_workflow
store, root, log, STOP_AT = sys.argv[1:]
handle = run_workflow(Store(store), flow, (root, log))
print("started", handle.session.id, flush=True)
handle.result()
"""


@pytest.mark.parametrize(("stop_at", "told"), [("begun", 1), ("told", 2), ("made", 1)])
def test_an_edit_cut_off_by_a_kill_is_made_exactly_once(
    store: Store, root: Path, tmp_path: Path, stop_at: str, told: int
) -> None:
    log = tmp_path / "changes"
    (root / "a").write_text("x")
    with Child(PROGRAM + MAIN, str(store.root), str(root), str(log), stop_at) as child:
        session = store.session(child.expect("started"))
        child.expect("reached")
        child.kill()
    assert (root / "a").read_text() == ("xx" if stop_at == "made" else "x")
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(PROGRAM, made)
    flow: Workflow = made["flow"]
    assert resume_task(session, flow).result() == "a edited at line 1"
    assert (root / "a").read_text() == "xx"
    assert len(log.read_bytes().splitlines()) == told
