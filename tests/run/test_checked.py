"""A failing check rolls files and values back to the section's start and tries again with the failure as input (R132)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.run.harness import Engine, Witness, bodies, checkpoints, of_type, refolded

from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow, workflow


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    monkeypatch.chdir(made)
    return made


def test_first(engine: Engine, folder: Path, witness: Witness) -> None:
    (folder / "a.py").write_text("0")
    (folder / "gone.py").write_text("here")

    def write(text: str) -> None:
        witness(f"write {text}")
        (folder / "a.py").write_text(text)
        (folder / "new.py").write_text(text)
        (folder / "gone.py").unlink()

    def good(value: str) -> Any:
        witness(f"check {value}")
        return True if value == "2" else f"{value} is not 2; a holds {(folder / 'a.py').read_text()}"

    @workflow(default_effect="idempotent")
    async def flow(ctx: Context) -> Any:
        ctx.set("tries", [])

        async def part(failure: str | None) -> str:
            text = "1" if failure is None else "2"
            ctx.append("tries", [text, failure])
            ctx.set("x.y", text)
            await ctx.run(write, text)
            return text

        value = await ctx.checked("two", part, check=good, files="*.py")
        return [value, ctx.values]

    handle = engine.start(flow)
    session = engine.ended(handle, "completed")
    for e in session.events(): print(e.seq, e.event_type, e.activity_id, bytes(e.payload)[:300])
    print(handle.result())
    assert 0
