"""Transcripts of Claude Code: `~/.claude/projects/<folder>/<session>.jsonl`.

There is no published schema; this follows what versions 1 and 2 write.  A line has `type`; those of type user and assistant
hold a `message` as the Messages API has it, the others are about the program.  A response is written in several lines of one
`message.id`, each with the same usage.  Lines of sub-agents (`isSidechain`) are a conversation of their own and are passed
over.
"""

from __future__ import annotations

from typing import Any, Final

from ipyagent_sessions.exchange.spoken import (
    Answer,
    Call,
    Outcome,
    Problem,
    Prompt,
    Spoken,
    fields,
    parts,
    shown,
    text,
    tokens,
)

NAME: Final = "claude-code"
KINDS: Final = frozenset({"user", "assistant", "summary", "system", "progress", "file-history-snapshot", "queue-operation"})


def knows(record: dict[str, Any]) -> bool:
    """Whether a line looks like one of Claude Code."""
    return record.get("type") in KINDS and ("message" in record or "sessionId" in record or "summary" in record)


class Reader:
    """Takes the lines one after another."""

    def __init__(self) -> None:
        self.spoken = Spoken()
        self._open: Answer | None = None
        self._open_id = ""
        self._counted: set[str] = set()

    def take(self, line: int, at: str, record: dict[str, Any]) -> None:
        """The next line, written at `at`."""
        kind = text(record.get("type"))
        if record.get("isSidechain") is True:
            self.spoken.skip("sub-agent")
        elif kind == "summary":
            self.spoken.title = text(record.get("summary")) or self.spoken.title
        elif kind == "assistant":
            self._assistant(line, at, fields(record.get("message")))
        elif kind == "user" and record.get("isMeta") is True:
            self._user(line, at, fields(record.get("message")), system=True)
        elif kind == "user":
            self._user(line, at, fields(record.get("message")), system=False)
        else:
            self.spoken.skip(kind or "unnamed")

    def _assistant(self, line: int, at: str, message: dict[str, Any]) -> None:
        if not isinstance(message.get("content"), list | str):
            self.spoken.items.append(Problem(line, "an answer without content"))
            return
        name = text(message.get("id"))
        if self._open is None or not name or name != self._open_id:
            self._open, self._open_id = Answer(line, at, text(message.get("model"))), name
            self.spoken.items.append(self._open)
        answer = self._open
        for part in parts(message["content"]):
            if part.get("type") == "text":
                answer.text += text(part.get("text"))
            elif part.get("type") == "thinking":
                answer.thinking += text(part.get("thinking"))
            elif part.get("type") == "tool_use":
                answer.calls.append(Call(text(part.get("id")), text(part.get("name")) or "unnamed", part.get("input")))
        usage = fields(message.get("usage"))
        if usage and name not in self._counted:
            self._counted.add(name)
            cached = ("cache_creation_input_tokens", "cache_read_input_tokens")
            answer.input_tokens = tokens(usage, "input_tokens", *cached)
            answer.output_tokens = tokens(usage, "output_tokens")
        elif usage and answer.output_tokens is not None:  # of several lines the last one has the whole
            answer.output_tokens = tokens(usage, "output_tokens") or answer.output_tokens

    def _user(self, line: int, at: str, message: dict[str, Any], *, system: bool) -> None:
        content = message.get("content")
        if not isinstance(content, list | str):
            self.spoken.items.append(Problem(line, "a message without content"))
            return
        self._open = None
        said = [part for part in parts(content) if part.get("type") != "tool_result"]
        for part in parts(content):
            if part.get("type") == "tool_result":
                result, failed = shown(part.get("content")), part.get("is_error") is True
                self.spoken.items.append(Outcome(line, at, text(part.get("tool_use_id")), result, failed))
        if said:
            self.spoken.items.append(Prompt(line, at, shown(said), system))
