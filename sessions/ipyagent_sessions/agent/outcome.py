"""What a tool call came to, in a form that the log can hold: a value, a request to try again, or a failure told to the
model."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final, cast

from pydantic import TypeAdapter
from pydantic_ai.exceptions import ModelRetry, ToolFailed, ToolFailedError, ToolRetryError
from pydantic_ai.messages import ToolReturn, UserContent, tool_return_content_ta, tool_return_ta
from pydantic_core import PydanticSerializationError

from ipyagent_sessions import events as ev

Outcome = dict[str, Any]
"""One of {"return": value, "content": ..., "metadata": ...}, {"retry": text}, {"failed": text}."""

WAITS: Final = {"approval required": True}
"""The outcome of a call that asked, instead of doing anything, for the approval of a person."""

APPROVED: Final = " approved"
"""What the key of such a call ends in when it is made again."""

_PLAIN: Final = (str, int, float, bool, type(None), list, dict)
_content: TypeAdapter[Any] = TypeAdapter(str | list[UserContent] | None)


def returned(value: Any) -> Outcome:
    """The outcome of a call that returned `value`.  What cannot be kept as JSON is kept, and told, as its text."""
    plain, content = (value.return_value, value.content) if isinstance(value, ToolReturn) else (value, None)
    kept: Outcome = {"return": _json_of(plain)}
    if content is not None:
        kept["content"] = _content.dump_python(content if isinstance(content, str) else list(content), mode="json")
    if isinstance(value, ToolReturn) and value.metadata is not None:
        kept["metadata"] = _json_of(value.metadata)
    return cast("Outcome", ev.cleaned(kept)[0])


def _json_of(value: Any) -> Any:
    try:
        return tool_return_ta.dump_python(value, mode="json")
    except (PydanticSerializationError, ValueError, RecursionError):  # no form, contains itself, too deep
        return repr(value)


def live(value: Any, kept: Outcome) -> Any:
    """What the loop gets of a call that has just returned `value`: what it would get of the record."""
    return value if type(value) in _PLAIN and kept["return"] == value else given(kept)


def raised(error: ToolRetryError | ToolFailedError | ModelRetry | ToolFailed) -> Outcome:
    """The outcome of a call that told the model something is wrong."""
    text = ev.clean(error.message if isinstance(error, ModelRetry | ToolFailed) else str(error))[0]
    return {"retry": text} if isinstance(error, ModelRetry | ToolRetryError) else {"failed": text}


def given(outcome: Outcome) -> Any:
    """What the loop gets of a recorded outcome.  Raises ModelRetry or ToolFailed as the call did."""
    if "retry" in outcome:
        raise ModelRetry(outcome["retry"])
    if "failed" in outcome:
        raise ToolFailed(outcome["failed"])
    value = tool_return_content_ta.validate_python(outcome["return"])
    if "content" in outcome:
        content = _content.validate_python(outcome["content"])
        return ToolReturn(value, content=content, metadata=outcome.get("metadata"))
    return ToolReturn(value, metadata=outcome["metadata"]) if "metadata" in outcome else value


def lost(tool: str) -> str:
    """What the model is told of a call that happened and whose result nobody has."""
    return f"{tool} was called and had its effect; what it returned is not known. Do not call it again for that."


async def noted(value: Awaitable[Any], note: str) -> Any:
    """What `value` comes to, with `note` for the model in the same message; raises what it raises, with the note in it.

    A note that the loop is given as a message of its own would ask the model once more after the output of a turn.
    """
    try:
        got = await value
    except (ModelRetry, ToolFailed) as told:
        raise type(told)(f"{told.message}\n{note}") from told
    if not isinstance(got, ToolReturn):
        return ToolReturn(got, content=note)
    known = [] if got.content is None else [got.content] if isinstance(got.content, str) else list(got.content)
    return ToolReturn(got.return_value, content=[*known, note], metadata=got.metadata)
