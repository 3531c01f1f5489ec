"""Code of an agent, run as a cell of the notebook: in its namespace and main thread, with everything it puts out captured."""

from __future__ import annotations

import base64
import contextlib
import sys
import traceback
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from ipyagent.main_thread import MainThread
from ipyagent_sessions.agent.tools.workbench import CellError, CellResult

if TYPE_CHECKING:
    from IPython.core.interactiveshell import ExecutionResult, InteractiveShell


class Cells:
    """Runs code for tasks in `shell`."""

    def __init__(self, shell: InteractiveShell, main: MainThread) -> None:
        self._shell = shell
        self._main = main

    async def run(self, code: str) -> CellResult:
        """Execute `code` and return what it gave; an error of the code is part of that."""
        return await self._main.run(lambda: self._execute(code))

    def _execute(self, code: str) -> CellResult:
        from IPython.utils.capture import capture_output

        with _quiet(self._shell), capture_output() as captured:
            done = self._shell.run_cell(code, store_history=False)  # type: ignore[no-untyped-call]  # IPython has no types here
            sys.stdout.flush()
        pictures = tuple(_png(output) for output in captured.outputs if "image/png" in (output.data or {}))
        shown = "\n".join(str(output.data["text/plain"]) for output in captured.outputs if "text/plain" in (output.data or {}))
        return CellResult(captured.stdout, captured.stderr, shown, _error(done), pictures)


@contextlib.contextmanager
def _quiet(shell: InteractiveShell) -> Generator[None, None, None]:
    """An error of the code belongs to the agent: shown as one of the running cell it would stop a Run All."""
    names = ("showtraceback", "showsyntaxerror")
    for name in names:
        setattr(shell, name, lambda *args, **kwargs: None)
    try:
        yield
    finally:
        for name in names:
            delattr(shell, name)


def _png(output: Any) -> bytes:
    data = output.data["image/png"]
    return data if isinstance(data, bytes) else base64.b64decode(data)


def _error(done: ExecutionResult) -> CellError | None:
    """What the code raised, with the line of the cell it came from."""
    error = done.error_before_exec or done.error_in_exec
    if error is None:
        return None
    if isinstance(error, SyntaxError):
        return CellError(type(error).__name__, error.msg, error.lineno)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.name == "<module>"]
    return CellError(type(error).__name__, str(error), lines[-1] if lines else None)
