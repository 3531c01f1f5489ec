"""What a transcript of another agent says, whoever wrote it: prompts, answers with calls, results, and what could not be read.

The readers of a format take JSON from a file that anybody may have written; these helpers give a value of the wanted kind or
nothing, and never raise.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from ipyagent_sessions import codec

_DEEPEST: Final = 200
"""Levels of JSON: pydantic writes messages of 255."""
_MOST_TOKENS: Final = 2**53
_MOST_DOLLARS: Final = 1e9


class Call(Struct):
    """A call of a tool; `id` is what its result names."""

    id: str
    name: str
    arguments: Any


class Prompt(Struct):
    """What a person said, or with `system` what the program told the model about itself and its surroundings."""

    line: int
    at: str
    text: str
    system: bool = False


class Answer(Struct):
    """One response of a model; `asked` is false when the program speaks in its place, and for the rest of a response that was
    told before.  Tokens and cost (US dollars) are None when the transcript does not say."""

    line: int
    at: str
    model: str = ""
    text: str = ""
    thinking: str = ""
    calls: list[Call] = []
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    asked: bool = True


class Outcome(Struct):
    """The result of a call."""

    line: int
    at: str
    call: str
    result: Any
    failed: bool = False


class Problem(Struct):
    """A line that could not be used, and why."""

    line: int
    what: str


Item = Prompt | Answer | Outcome | Problem


class Spoken(Struct):
    """A transcript in its order.  `passed` counts, by kind, the lines that hold no part of the conversation."""

    items: list[Item] = []
    title: str = ""
    passed: dict[str, int] = {}

    def skip(self, kind: str) -> None:
        """Count a line that holds no part of the conversation."""
        self.passed[kind] = self.passed.get(kind, 0) + 1


def decoded(body: str) -> Any:
    """JSON as JavaScript writes it, with lone surrogates.  Raises ValueError, and RecursionError for what is too deep."""
    if codec.deeper(body.encode("utf-8", "surrogatepass"), _DEEPEST):
        raise RecursionError
    return json.loads(body, parse_constant=str)


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def fields(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def parts(value: Any) -> Iterator[dict[str, Any]]:
    """The objects of a list; a text counts as one text part."""
    if isinstance(value, str):
        yield {"type": "text", "text": value}
    elif isinstance(value, list):
        yield from (part for part in value if isinstance(part, dict))


def shown(value: Any) -> str:
    """The text of a content; what is no text is named."""
    pieces = [text(part.get("text")) or f"[{text(part.get('type')) or 'data'}]" for part in parts(value)]
    return "\n".join(pieces)


def tokens(usage: dict[str, Any], *names: str) -> int | None:
    """The sum of the fields that hold a credible number, None when none does."""
    found = [usage[name] for name in names if type(usage.get(name)) is int and 0 <= usage[name] < _MOST_TOKENS]
    return sum(found) if found else None


def dollars(value: Any) -> float | None:
    """A credible cost, None for what is none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < _MOST_DOLLARS and math.isfinite(value) else None
