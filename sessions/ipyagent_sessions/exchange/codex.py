"""Transcripts of Codex: `~/.codex/sessions/<year>/<month>/<day>/rollout-<time>-<id>.jsonl`.

A line is `{"timestamp", "type", "payload"}`; those of type `response_item` are items as the Responses API has them,
`event_msg` of type `token_count` tells what a response used, `turn_context` the model.  Before September 2025 the items
stood in the lines themselves.  Items that follow each other without a result or a prompt between them are one response.
"""

from __future__ import annotations

import re
from typing import Any, Final

from ipyagent_sessions.exchange.spoken import (
    Answer,
    Call,
    Outcome,
    Problem,
    Prompt,
    Spoken,
    decoded,
    fields,
    parts,
    shown,
    text,
    tokens,
)

NAME: Final = "codex"
_LINES: Final = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_ITEMS: Final = frozenset(
    {
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "local_shell_call",
        "web_search_call",
    }
)
_SURROUNDINGS: Final = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md",
    "<turn_aborted>",
    "<user_shell_command>",
    "<subagent_notification>",
)
"""How messages begin that the program sends in the name of the user."""
_EXIT: Final = re.compile(r"(?:Exit code:|(?:.*\n){0,3}Process exited with code) (-?\d+)$", re.MULTILINE)
"""How the output of a command begins where it is a text that tells its exit code."""


def knows(record: dict[str, Any]) -> bool:
    """Whether a line looks like one of Codex."""
    kind = text(record.get("type"))
    return (kind in _LINES and isinstance(record.get("payload"), dict)) or (kind in _ITEMS and "message" not in record)


class Reader:
    """Takes the lines one after another."""

    def __init__(self) -> None:
        self.spoken = Spoken()
        self._model = ""
        self._open: Answer | None = None
        self._newest: Answer | None = None
        self._used: Any = None

    def problem(self, problem: Problem) -> None:
        """A line that could not be read."""
        self.spoken.items.append(problem)

    def finished(self) -> list[Spoken]:
        """The conversation."""
        return [self.spoken]

    def take(self, line: int, at: str, record: dict[str, Any]) -> None:
        """The next line, written at `at`."""
        kind, payload = text(record.get("type")), fields(record.get("payload"))
        if kind in _ITEMS:
            self._item(line, at, kind, record)
        elif kind == "response_item":
            self._item(line, at, text(payload.get("type")), payload)
        elif kind == "turn_context":
            self._model = text(payload.get("model")) or self._model
        elif kind == "event_msg" and payload.get("type") == "token_count":
            self._count(fields(payload.get("info")))
        else:
            self.spoken.skip(kind or "unnamed")

    def _item(self, line: int, at: str, kind: str, item: dict[str, Any]) -> None:
        if kind == "message" and item.get("role") == "assistant":
            self._answer(line, at).text += shown(item.get("content"))
        elif kind == "message":
            said = shown(item.get("content"))
            system = item.get("role") != "user" or said.lstrip().startswith(_SURROUNDINGS)
            self._open = None
            self.spoken.items.append(Prompt(line, at, said, system))
        elif kind == "reasoning":
            told = [*parts(item.get("summary")), *parts(item.get("content"))]
            self._answer(line, at).thinking += "\n".join(text(part.get("text")) for part in told)
        elif kind in ("function_call", "custom_tool_call"):
            given = item.get("arguments") if kind == "function_call" else item.get("input")
            self._call(line, at, item, text(item.get("name")) or "unnamed", _decoded(given))
        elif kind == "local_shell_call":
            self._call(line, at, item, "local_shell", item.get("action"))
        elif kind == "web_search_call":  # made and answered on the other side: the line is call and result
            self._call(line, at, {"call_id": f"line {line}"}, "web_search", item.get("action"))
            done = item.get("status", "completed") == "completed"
            self.spoken.items.append(Outcome(line, at, f"line {line}", item.get("status"), failed=not done))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            self._open = None
            result, failed = _outcome(item.get("output"))
            self.spoken.items.append(Outcome(line, at, text(item.get("call_id")), result, failed))
        else:
            self.spoken.skip(kind or "unnamed")

    def _answer(self, line: int, at: str) -> Answer:
        if self._open is None:
            self._open = self._newest = Answer(line, at, self._model)
            self.spoken.items.append(self._open)
        return self._open

    def _call(self, line: int, at: str, item: dict[str, Any], name: str, arguments: Any) -> None:
        self._answer(line, at).calls.append(Call(text(item.get("call_id")), name, arguments))

    def _count(self, info: dict[str, Any]) -> None:
        """What the newest response used.  The same total is told again when nothing was used since; a count may have none."""
        usage, total = fields(info.get("last_token_usage")), info.get("total_token_usage")
        if self._newest is None or not usage:
            self.spoken.skip("token_count")
            return
        if total is not None and total == self._used:
            return
        self._used = total
        self._newest.input_tokens = tokens(usage, "input_tokens")
        self._newest.output_tokens = tokens(usage, "output_tokens")


def _decoded(given: Any) -> Any:
    """Arguments are JSON in a text; what is none stays a text."""
    if not isinstance(given, str):
        return given
    try:
        return decoded(given)
    except (ValueError, RecursionError):
        return given


def _outcome(output: Any) -> tuple[Any, bool]:
    """The output of a call and whether it failed: parts, an object with `success` or `metadata`, or a text that may be one."""
    if isinstance(output, list):
        return shown(output), False
    body = fields(_decoded(output))
    code = fields(body.get("metadata")).get("exit_code")
    if code is None and "success" not in body:
        told = _EXIT.match(output) if isinstance(output, str) else None
        return output, told is not None and told[1] != "0"
    failed = body.get("success") is False or (isinstance(code, int) and code != 0)
    inner = body.get("output", body.get("content"))
    return (inner if isinstance(inner, str) else output), failed
