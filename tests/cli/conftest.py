"""A folder with an importable workflow, and the terminal command called in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ipyagent_sessions.cli import main

WORKFLOWS = """
from pathlib import Path
from ipyagent_sessions import activity, workflow

def mark(text):
    with open("witness", "a") as file:
        file.write(text + "\\n")

@activity(effect="none")
def square(i):
    mark(f"square {i}")
    if i == 3 and Path("broken").exists():
        raise ValueError("three is broken")
    return i * i

@activity(effect="irreversible")
def send(total):
    mark(f"send {total}")
    return f"sent {total}"

@workflow(default_effect="none")
async def audit(ctx, n: int = 4, title: str = "none"):
    ctx.expect(n + 1)
    async with ctx.stage("squares"):
        values = await ctx.gather(*[ctx.run(square, i, key=i) for i in range(n)], limit=2)
    if not await ctx.approve("Send it?", details={"total": sum(values)}):
        return "kept"
    return await ctx.run(send, sum(values))
"""


class Said(NamedTuple):
    status: int
    out: str
    err: str


Terminal = Callable[..., Said]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "flows.py").write_text(WORKFLOWS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYAGENT_STORE", str(tmp_path / "store"))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("flows", None)


@pytest.fixture
def terminal(folder: Path, capsys: pytest.CaptureFixture[str]) -> Terminal:
    def call(*words: str) -> Said:
        status = main(list(words))
        out, err = capsys.readouterr()
        return Said(status, out, err)

    return call
