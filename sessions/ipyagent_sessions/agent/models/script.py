"""The file of a scripted model: conversations made of turns (docs/agents-offline.md describes it for users).

    - when: "substring of the first prompt"     # optional; without it the conversation takes every prompt
      turns:
        - expect: "substring of the last message"        # or {regex: "..."}
          think: text
          say: text
          call: [{tool: name, args: {key: value}}]
          usage: {input: 120, output: 30}
          cost: 0.002                            # US dollars
          delay_s: 0.5                           # before the first word
          tokens_per_s: 40                       # a word counts as a token
          error: {status: 429, retry_after: 1, message: text, times: 1}

A file may also be just the list of turns of one conversation.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from ipyagent_sessions.config import mapping, naming, read_yaml, seconds, sequence
from ipyagent_sessions.errors import ConfigError, UsageError

_TURN: Final = {"expect", "think", "say", "call", "usage", "cost", "delay_s", "tokens_per_s", "error"}


class Call(Struct, frozen=True):
    """A call of a tool, or of the output tool, by its name."""

    tool: str
    args: dict[str, Any]


class Failure(Struct, frozen=True):
    """An HTTP error instead of an answer: the first `times` requests of this turn in a process; None is each of them."""

    status: int
    retry_after_s: float | None
    message: str
    times: int | None


class Turn(Struct, frozen=True):
    """What the model answers once.  `expect` is a pattern that the last message has to contain."""

    expect: re.Pattern[str] | None = None
    expected: str = ""
    think: str = ""
    say: str = ""
    calls: tuple[Call, ...] = ()
    tokens: tuple[int, int] | None = None
    cost: float | None = None
    delay_s: float = 0.0
    tokens_per_s: float | None = None
    failure: Failure | None = None


class Conversation(Struct, frozen=True):
    """Turns for the conversations whose first prompt contains `when`."""

    when: str
    turns: tuple[Turn, ...]


def load(path: Path) -> tuple[Conversation, ...]:
    """Its conversations.  Raises UsageError for a missing file, ConfigError naming file and path of an error."""
    if not os.path.exists(path):
        raise UsageError(f"there is no script {path}", hint="a relative name starts at the notebook's folder")
    document = read_yaml(path)
    with naming(path):
        return _conversations(document)


def _conversations(document: Any) -> tuple[Conversation, ...]:
    items = sequence(document, "(top)")
    if not items:
        raise ConfigError("(top): a script has at least one turn", hint="for example: - say: Hello")
    grouped = [isinstance(item, dict) and "turns" in item for item in items]
    if not any(grouped):
        return (Conversation("", _turns(items, "(top)")),)
    if not all(grouped):
        raise ConfigError(
            f"(top)[{grouped.index(False)}]: a turn among conversations", hint="give each entry `turns`, or none of them"
        )
    return tuple(_conversation(item, f"(top)[{i}]") for i, item in enumerate(items))


def _conversation(item: Any, where: str) -> Conversation:
    entry = mapping(item, where, {"when", "turns"})
    return Conversation(_text(entry, "when", where), _turns(sequence(entry["turns"], f"{where}.turns"), f"{where}.turns"))


def _turns(items: list[Any], where: str) -> tuple[Turn, ...]:
    return tuple(_turn(item, f"{where}[{i}]") for i, item in enumerate(items))


def _turn(item: Any, where: str) -> Turn:
    entry = mapping(item, where, _TURN)
    calls = tuple(_call(call, f"{where}.call[{i}]") for i, call in enumerate(sequence(entry.get("call", []), f"{where}.call")))
    failure = _failure(entry.get("error"), f"{where}.error")
    says, thinks = _text(entry, "say", where), _text(entry, "think", where)
    plays = bool(says or thinks or calls)
    if not plays and failure is None:
        raise ConfigError(f"{where}: a turn that does nothing", hint="give it say, call or error")
    if failure is not None and not plays:
        if failure.times is not None:
            raise ConfigError(f"{where}.error.times: nothing follows the error", hint="add say or call to the same turn")
    elif failure is not None and failure.times is None:
        failure = Failure(failure.status, failure.retry_after_s, failure.message, 1)
    pattern, expected = _expectation(entry.get("expect"), f"{where}.expect")
    return Turn(
        pattern,
        expected,
        thinks,
        says,
        calls,
        _usage(entry.get("usage"), f"{where}.usage"),
        None if "cost" not in entry else _number(entry["cost"], f"{where}.cost"),
        seconds(entry.get("delay_s", 0), f"{where}.delay_s"),
        None if "tokens_per_s" not in entry else _number(entry["tokens_per_s"], f"{where}.tokens_per_s", above=0.0),
        failure,
    )


def _call(item: Any, where: str) -> Call:
    entry = mapping(item, where, {"tool", "args"})
    name, args = _text(entry, "tool", where), entry.get("args") or {}
    if not name:
        raise ConfigError(f"{where}: tool is missing", hint="write {tool: NAME, args: {...}}")
    if not isinstance(args, dict):
        raise ConfigError(f"{where}.args: must be a mapping, not {type(args).__name__}")
    return Call(name, {str(key): value for key, value in args.items()})


def _failure(item: Any, where: str) -> Failure | None:
    if item is None:
        return None
    entry = mapping(item, where, {"status", "retry_after", "message", "times"})
    status, times = entry.get("status", 500), entry.get("times")
    if not isinstance(status, int) or not 400 <= status <= 599:
        raise ConfigError(f"{where}.status: {status!r} is not an HTTP error", hint="400 to 599")
    if times is not None and (not isinstance(times, int) or isinstance(times, bool) or times < 1):
        raise ConfigError(f"{where}.times: {times!r} is not a number of requests", hint="1 or more")
    wait = entry.get("retry_after")
    return Failure(
        status,
        None if wait is None else seconds(wait, f"{where}.retry_after"),
        _text(entry, "message", where) or f"the script says {status}",
        times,
    )


def _expectation(item: Any, where: str) -> tuple[re.Pattern[str] | None, str]:
    if item is None:
        return None, ""
    if isinstance(item, dict):
        source = _text(mapping(item, where, {"regex"}), "regex", where)
        try:
            return re.compile(source), f"/{source}/"
        except re.error as error:
            raise ConfigError(f"{where}.regex: {source!r} is not a regular expression: {error}") from error
    return re.compile(re.escape(str(item))), repr(str(item))


def _usage(item: Any, where: str) -> tuple[int, int] | None:
    if item is None:
        return None
    entry = mapping(item, where, {"input", "output"})
    return int(_number(entry.get("input", 0), f"{where}.input")), int(_number(entry.get("output", 0), f"{where}.output"))


def _number(value: Any, where: str, above: float = -1.0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not max(above, -0.5) < value < float("inf"):
        raise ConfigError(f"{where}: {value!r} is not a number that fits here")
    return float(value)


def _text(entry: dict[str, Any], key: str, where: str) -> str:
    value = entry.get(key)
    if value is not None and not isinstance(value, str | int | float):
        raise ConfigError(f"{where}.{key}: must be a text, not {type(value).__name__}")
    return "" if value is None else str(value)
