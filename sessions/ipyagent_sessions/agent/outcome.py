"""What a tool call came to, in a form that the log can hold: a value, a request to try again, or a failure told to the
model."""

from __future__ import annotations

from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_ai.exceptions import ModelRetry, ToolFailed, ToolFailedError, ToolRetryError
from pydantic_ai.messages import ToolReturn, UserContent, tool_return_content_ta, tool_return_ta
from pydantic_core import PydanticSerializationError

Outcome = dict[str, Any]
"""One of {"return": value, "content": ...}, {"retry": text}, {"failed": text}."""

WAITS: Final = {"approval required": True}
"""The outcome of a call that asked, instead of doing anything, for the approval of a person."""

APPROVED: Final = " approved"
"""What the key of such a call ends in when it is made again."""

_content: TypeAdapter[Any] = TypeAdapter(str | list[UserContent] | None)


def returned(value: Any) -> Outcome:
    """The outcome of a call that returned `value`.  What cannot be kept as JSON is kept, and told, as its text."""
    plain, content = (value.return_value, value.content) if isinstance(value, ToolReturn) else (value, None)
    try:
        kept: Outcome = {"return": tool_return_ta.dump_python(plain, mode="json")}
    except PydanticSerializationError:
        kept = {"return": repr(plain)}
    if content is not None:
        kept["content"] = _content.dump_python(content if isinstance(content, str) else list(content), mode="json")
    return kept


def raised(error: ToolRetryError | ToolFailedError | ModelRetry | ToolFailed) -> Outcome:
    """The outcome of a call that told the model something is wrong."""
    if isinstance(error, ModelRetry):
        return {"retry": error.message}
    if isinstance(error, ToolFailed):
        return {"failed": error.message}
    return {"retry": str(error)} if isinstance(error, ToolRetryError) else {"failed": str(error)}


def given(outcome: Outcome) -> Any:
    """What the loop gets of a recorded outcome.  Raises ModelRetry or ToolFailed as the call did."""
    if "retry" in outcome:
        raise ModelRetry(outcome["retry"])
    if "failed" in outcome:
        raise ToolFailed(outcome["failed"])
    value = tool_return_content_ta.validate_python(outcome["return"])
    if "content" in outcome:
        return ToolReturn(value, content=_content.validate_python(outcome["content"]))
    return value


def lost(tool: str) -> str:
    """What the model is told of a call that happened and whose result nobody has."""
    return f"{tool} was called and had its effect; what it returned is not known. Do not call it again for that."
