"""What a model is told of a tool's outcome: text or JSON of bounded length, or a short text about what went wrong."""

from __future__ import annotations

import functools
import inspect
import json
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ipyagent_sessions import events as ev
from ipyagent_sessions.errors import IpyagentError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

LIMIT: Final = 20_000
"""Characters of one result."""
_LONGEST_ERROR: Final = 2_000
_MORE: Final = "ask for a smaller part"


def bounded(value: Any, more: str = "", limit: int = LIMIT) -> Any:
    """`value` as a model can take it: at most `limit` characters, without lone surrogates and NUL.

    Text and JSON data stay what they are while they are short enough.  What JSON cannot say becomes its `str`.  Pictures and
    other binary parts pass; their sizes are bounded by the tool that makes them.  `more` says how to get what was cut.
    """
    from pydantic_ai.messages import BinaryContent, ToolReturn

    if value is None or isinstance(value, bool | int | BinaryContent):
        return value
    if isinstance(value, str):
        return _cut(ev.clean(value)[0], more, limit)
    if isinstance(value, ToolReturn):
        value.return_value = bounded(value.return_value, more, limit)
        if isinstance(value.content, str):
            value.content = bounded(value.content, more, limit)
        return value
    if isinstance(value, list | tuple) and any(isinstance(part, BinaryContent) for part in value):
        return [bounded(part, more, limit) for part in value]
    return _data(value, more, limit)


def _data(value: Any, more: str, limit: int) -> Any:
    try:
        text = _anything().dump_json(value).decode()
    except ValueError:  # a data frame, a cycle, bytes that are no text
        return _cut(ev.clean(str(value))[0], more, limit)
    return json.loads(text) if len(text) <= limit else _cut(text, more, limit)


@functools.cache
def _anything() -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="strings"))


def _cut(text: str, more: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut here: {len(text) - limit:,} of {len(text):,} characters are left out; {more or _MORE}]"


def explained(error: BaseException) -> str:
    """`error` in a few words for a model: type, message, and the last line of the user's own code that it passed."""
    if isinstance(error, IpyagentError):
        return ev.clean(str(error))[0][:_LONGEST_ERROR]
    text = "".join(traceback.format_exception_only(error)).strip()
    where = _where(traceback.extract_tb(error.__traceback__))
    return f"{ev.clean(text)[0][:_LONGEST_ERROR]}{where}"


def _where(frames: Sequence[traceback.FrameSummary]) -> str:
    for frame in reversed(frames):
        if not frame.filename.startswith(_not_the_users()):
            return f" (line {frame.lineno} of {frame.name})"
    return ""


@functools.cache
def _not_the_users() -> tuple[str, ...]:
    """Where code lies that the user did not write."""
    found = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return (*sorted(found), str(Path(__file__).parents[2]), "<frozen ")


def guarded(function: Callable[..., Any], more: str = "") -> Callable[..., Any]:
    """`function` for a model: its value bounded, its exceptions told as `ToolFailed`.

    What steers the run passes: a tool that asks for a retry, a limit that a sub-agent has reached, a log that cannot be
    written.
    """
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await _awaited(function(*args, **kwargs), more)

        return call

    @functools.wraps(function)
    def call_here(*args: Any, **kwargs: Any) -> Any:
        try:
            value = function(*args, **kwargs)
            return _awaited(value, more) if inspect.isawaitable(value) else bounded(value, more)
        except Exception as error:  # whatever a tool raises, the turn goes on
            raise failure(error) from error

    return call_here


async def _awaited(value: Any, more: str) -> Any:
    try:
        return bounded(await value, more)
    except Exception as error:  # as above
        raise failure(error) from error


def failure(error: Exception) -> Exception:
    """What to raise for `error`: itself when it steers the run, `ToolFailed` with a short text otherwise."""
    from pydantic_ai import exceptions as told

    from ipyagent_sessions.errors import LeaseLost, PersistenceError

    steering = (
        told.ModelRetry,
        told.ToolFailed,
        told.CallDeferred,
        told.ApprovalRequired,
        told.SkipToolExecution,
        told.RunCancelled,
        told.UsageLimitExceeded,
        LeaseLost,
        PersistenceError,
    )
    return error if isinstance(error, steering) else told.ToolFailed(explained(error))
