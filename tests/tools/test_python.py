"""Code in the notebook: its outputs reach the model bounded, its pictures reach whoever can see them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai.messages import BinaryContent
from tests.tools.conftest import Told

from ipyagent_sessions import codec
from ipyagent_sessions.agent.tools.results import LIMIT
from ipyagent_sessions.agent.tools.run_python import run_python
from ipyagent_sessions.agent.tools.workbench import CellError, CellResult, Picture, Workbench
from ipyagent_sessions.errors import UsageError

PNG = b"\x89PNG\r\n\x1a\n"


def run(bench: Workbench, found: CellResult, code: str = "x") -> Any:
    """What the model gets of a cell with this outcome."""

    async def run_cell(code: str) -> CellResult:
        return found

    bench.run_cell = run_cell
    return asyncio.run(run_python(bench)(code))


def test_what_a_cell_gives_is_told_in_parts(bench: Workbench) -> None:
    assert run(bench, CellResult("out\n", "warn\n", "42")) == "out\n[errors]\nwarn\n[value]\n42"
    assert run(bench, CellResult()) == "[no output]"


def test_an_error_keeps_what_was_said_before_and_names_the_line(bench: Workbench) -> None:
    found = CellResult("half\n", error=CellError("ZeroDivisionError", "division by zero", 3))
    assert run(bench, found) == "half\n[failed] ZeroDivisionError: division by zero (line 3)"


def test_a_flood_keeps_its_beginning_and_end_and_fits(bench: Workbench) -> None:
    said = run(bench, CellResult("begin" + "x" * 10**6 + "end", "y" * 10**6, "z" * 10**6, CellError("E", "m" * 10**6)))
    assert len(said) < LIMIT
    assert said.endswith("mmm")
    assert said.startswith("begin")
    assert "end\n[errors]" in said


def test_pictures_are_shown_to_a_model_that_sees_and_told_to_one_that_does_not(bench: Workbench, told: Told) -> None:
    found = CellResult("plotted", pictures=(PNG, PNG))
    assert run(bench, found) == "plotted\n[2 pictures shown to the user and not to you]"
    bench.sees_pictures = True
    picture = BinaryContent(PNG, media_type="image/png")
    assert run(bench, found) == ["plotted", picture, picture]
    assert told == [Picture(PNG)] * 4


def test_too_many_or_too_large_pictures_are_not_sent(bench: Workbench, told: Told) -> None:
    bench.sees_pictures = True
    said = run(bench, CellResult(pictures=(PNG + b"x" * 2_000_000, *[PNG] * 6)))
    assert len(said) == 5
    assert said[0] == "[3 pictures shown to the user and not to you]"
    assert len(told) == 7


def test_a_result_with_pictures_can_be_recorded(bench: Workbench) -> None:
    bench.sees_pictures = True
    said = run(bench, CellResult("plotted", pictures=(PNG,)))
    assert codec.loads(codec.dumps(said)) == said


def test_without_a_kernel_it_says_why_it_cannot_work(bench: Workbench) -> None:
    tool = run_python(bench)
    assert "no notebook" in (tool.unusable() or "")
    with pytest.raises(UsageError, match="no notebook"):
        asyncio.run(tool("1"))
    with pytest.raises(UsageError, match="no code"):
        run(bench, CellResult(), "  ")
    assert tool.unusable() is None  # the same tool, now that there is one


def test_stopping_stops_the_cell(bench: Workbench) -> None:
    stopped: list[str] = []

    async def run_cell(code: str) -> CellResult:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(code)
            raise
        raise AssertionError

    bench.run_cell = run_cell

    async def main() -> None:
        task = asyncio.create_task(run_python(bench)("forever"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert stopped == ["forever"]
