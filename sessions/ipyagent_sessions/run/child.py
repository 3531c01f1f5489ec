"""The child's side of `process`: read one call, make it, write its answer; end at once when the parent is gone.

Prints of the function go to standard error, so that they cannot garble the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import struct
import sys
import threading
from typing import Any

from ipyagent_sessions.run.frames import text_of


def main() -> None:
    """Run as `python -m ipyagent_sessions.run.child`."""
    import cloudpickle

    answer_to = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    size = struct.unpack(">Q", sys.stdin.buffer.read(8))[0]
    body = sys.stdin.buffer.read(size)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        function, args, kwargs = cloudpickle.loads(body)
        value = function(*args, **kwargs)
        if inspect.isawaitable(value):
            value = asyncio.run(_await(value))
        answer = cloudpickle.dumps((True, value))
    except BaseException as error:  # noqa: BLE001  # the parent raises it
        _let_go(error)
        answer = _packed(error)
    answer_to.write(struct.pack(">Q", len(answer)) + answer)
    answer_to.flush()
    os._exit(0)


def _packed(error: BaseException) -> bytes:
    """A failed call's answer that can be read again: the error, or what it is made of where its class needs other arguments
    than its text, or its words where it holds, say, a lock."""
    import cloudpickle

    for told in (error, _Bare(error)):
        with contextlib.suppress(Exception):
            answer: bytes = cloudpickle.dumps((False, told))
            cloudpickle.loads(answer)
            return answer
    words: bytes = cloudpickle.dumps((False, RuntimeError(f"{type(error).__name__}: {text_of(error)}")))
    return words


class _Bare:
    """Pickles as an error that is made again without its `__init__`."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> Any:
        return _made_again, (type(self._error), self._error.args, self._error.__dict__)


def _made_again(cls: type[BaseException], args: tuple[Any, ...], held: dict[str, Any]) -> BaseException:
    error = cls.__new__(cls, *args)
    error.__dict__.update(held)
    return error


def _let_go(error: BaseException | None) -> None:
    """Free what the function held when it failed: without memory for it, not even a MemoryError can be told."""
    while error is not None and error.__traceback__ is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


async def _await(value: object) -> object:
    return await value  # type: ignore[misc]  # main looked


def _end_with_parent() -> None:
    """Nobody is left to end what the function has started, so that goes first (R256)."""
    sys.stdin.buffer.read(1)
    end_tree(os.getpid())
    os._exit(1)


def end_tree(pid: int) -> None:
    """Kill what the process `pid` has started, and what that has started, also in sessions of their own; not itself."""
    import psutil

    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                process.kill()


if __name__ == "__main__":
    main()
