"""What a model that answers from a file reads off a request: how far the conversation is, and what came last."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    RetryFeedbackPart,
    ToolReturnPart,
    UserPromptPart,
)


def answered(messages: Sequence[ModelMessage], model_name: str | None = None) -> int:
    """How many complete answers the messages hold, of one model or of any.  One that was cut off does not count."""
    return sum(
        isinstance(message, ModelResponse) and message.state == "complete" and model_name in (None, message.model_name)
        for message in messages
    )


def opening(messages: Sequence[ModelMessage], model_name: str) -> str:
    """The prompt that a model's part of the conversation began with; the conversation may have begun with another model.

    A notice that stands beside the prompt, as after a resume, is not taken for it.
    """
    prompt, wanted = "", True
    for message in messages:
        if isinstance(message, ModelResponse):
            if message.model_name == model_name:
                break
            wanted = True
            continue
        for part in message.parts:
            if wanted and isinstance(part, UserPromptPart):
                prompt, wanted = _text(part), False
    return prompt


def last_message(messages: Sequence[ModelMessage]) -> str:
    """What the model has to answer now: the last prompt, the results of tools, the complaint about an output; one a line."""
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    return "\n".join(text for part in requests[-1].parts if (text := _text(part))) if requests else ""


def _text(part: ModelRequestPart) -> str:
    if isinstance(part, UserPromptPart):
        if isinstance(part.content, str):
            return part.content
        texts = [item if isinstance(item, str) else getattr(item, "content", None) for item in part.content]
        return "\n".join(text for text in texts if isinstance(text, str))
    if isinstance(part, ToolReturnPart):
        return part.model_response_str()
    if isinstance(part, RetryFeedbackPart):
        return part.model_response()
    return ""
