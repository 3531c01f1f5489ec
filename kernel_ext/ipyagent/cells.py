"""Code of an agent, run as a cell of the notebook: in its namespace and main thread, with everything it puts out captured."""

from __future__ import annotations

import asyncio
import base64
import builtins
import contextlib
import getpass
import sys
import threading
import traceback
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
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

        with _lent(self._shell), capture_output() as captured:
            done = self._shell.run_cell(code, store_history=False)  # type: ignore[no-untyped-call]  # IPython has no types here
            sys.stdout.flush()
        if isinstance(done.error_in_exec, KeyboardInterrupt):
            self._main.was_interrupted()
        pictures = tuple(_png(output) for output in captured.outputs if "image/png" in (output.data or {}))
        shown = "\n".join(str(output.data["text/plain"]) for output in captured.outputs if "text/plain" in (output.data or {}))
        return CellResult(captured.stdout, captured.stderr, shown, _error(done), pictures)


@contextlib.contextmanager
def _lent(shell: InteractiveShell) -> Generator[None, None, None]:
    """`shell` as code of an agent may use it.

    An error of the code belongs to the agent: shown as one of the running cell it would stop a Run All.  The kernel is not the
    agent's to end.  Nobody types anything in: a task in the background has no cell for that, and the notebook would stand
    still.
    A top-level await gets a loop of its own: the kernel's is busy with this very call.
    """
    quiet = {"showtraceback": _nothing, "showsyntaxerror": _nothing, "ask_exit": _no_exit, "loop_runner": _on_a_loop}
    with _replaced(shell, **quiet), _replaced(builtins, input=_no_input), _replaced(getpass, getpass=_no_input):
        yield


@contextlib.contextmanager
def _replaced(owner: Any, **others: Any) -> Generator[None, None, None]:
    kept = {name: getattr(owner, name) for name in others}
    for name, other in others.items():
        setattr(owner, name, other)
    try:
        yield
    finally:
        for name, own in kept.items():
            setattr(owner, name, own)


def _nothing(*args: Any, **kwargs: Any) -> None:
    pass


def _no_exit() -> None:
    raise RuntimeError("the notebook is not ended from here; it goes on")


def _no_input(*args: Any, **kwargs: Any) -> str:
    raise EOFError("nobody types anything in here; ask in your answer instead")


def _on_a_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The value of `coroutine`, run to its end on a loop in a thread of its own; Ctrl-C cancels it."""
    loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
    task = loop.create_task(coroutine)
    ended: Future[Any] = Future()

    def work() -> None:
        try:
            ended.set_result(loop.run_until_complete(task))
        except BaseException as error:  # noqa: BLE001  # it is raised to whoever waits
            ended.set_exception(error)
        finally:
            loop.close()

    threading.Thread(target=work, name="ipyagent-cell", daemon=True).start()
    try:
        return ended.result()
    except KeyboardInterrupt:
        with contextlib.suppress(RuntimeError):  # it has just ended
            loop.call_soon_threadsafe(task.cancel)
        raise


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
