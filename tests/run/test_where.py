"""A workflow's body that fails says where: in the log, in SQL, and in the one line that a person sees."""

from __future__ import annotations

import linecache
from pathlib import Path

import pytest
from tests.run.harness import Engine, bodies

from ipyagent_sessions.errors import TaskNotCompleted
from ipyagent_sessions.run import frames
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow, workflow

CELL = """
@workflow
async def flow(ctx):
    return ratio(1, 0)


def ratio(a, b):
    return a / b
"""


def defined_in_a_cell(source: str, file: str) -> Workflow:
    """The workflow `flow` of a cell, compiled as a kernel does: under a name that no file has, its lines in `linecache`."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    here: dict[str, object] = {"workflow": workflow, "__name__": "__main__"}
    exec(compile(source, file, "exec"), here)
    flow = here["flow"]
    assert isinstance(flow, Workflow)
    return flow


def test_the_line_of_the_cell_stands_in_the_error_the_log_the_state_and_sql(engine: Engine) -> None:
    handle = engine.start(defined_in_a_cell(CELL, "/tmp/ipykernel_1/2468.py"))
    with pytest.raises(TaskNotCompleted, match=r"is failed: ZeroDivisionError: division by zero \(cell line 8\)"):
        handle.result(10)
    failed = bodies(handle.session, "TaskFailed")[0]
    assert failed["where"] == "cell line 8"
    assert failed["traceback"] == ("cell line 4, in flow\n    return ratio(1, 0)\ncell line 8, in ratio\n    return a / b")
    assert handle.session.state().system_state.detail == "ZeroDivisionError: division by zero (cell line 8)"
    rows = engine.store.sql("select traceback from failures where what = 'task'").rows()
    assert rows[0]["traceback"] == failed["traceback"]


@workflow(default_effect="none")
async def asks_a_library(ctx: Context) -> None:
    Path("\0").read_text()


def test_a_failure_inside_a_library_names_the_line_of_the_body(engine: Engine) -> None:
    handle = engine.start(asks_a_library)
    with pytest.raises(TaskNotCompleted, match=r"\(run/test_where\.py line \d+\)"):
        handle.result(10)
    told = bodies(handle.session, "TaskFailed")[0]["traceback"]
    assert 'Path("\\0").read_text()' in told
    assert "ipyagent_sessions" not in told, "the engine's own frames say nothing about the body"


def test_what_is_kept_of_a_deep_traceback_is_bounded() -> None:
    def deep(n: int) -> None:
        if n == 0:
            raise ValueError("x" * 100_000)
        deep(n - 1)

    with pytest.raises(ValueError, match="x") as caught:
        deep(300)
    told, _ = frames.of(caught.value, deep)
    assert told.count(", in ") == frames.KEPT
    assert len(told) < 1000
    assert frames.of(TimeoutError("never raised"), deep) == ("", "")
