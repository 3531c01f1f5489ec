"""Transcripts of Claude Code: `~/.claude/projects/<folder>/<session>.jsonl`.

There is no published schema; this follows what versions 1 and 2 write.  A line has `type`; those of type user and assistant
hold a `message` as the Messages API has it, the others are about the program.  A response is written in several lines of one
`message.id`, each with what it had used by then; results of its first calls may stand between them.  What was said stays in
the order of the lines, also where a person went back and said something else.

Lines of sub-agents (`isSidechain`) are conversations of their own: told apart by `agentId`, in older versions by the line that
their `parentUuid` leads to.  Newer versions write each into a file of its own, in which all lines are such ones.
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
_TITLES: Final = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}
"""The lines that give a title, and the field that has it."""
_SYNTHETIC: Final = "<synthetic>"
"""The model of an answer that no model gave: the program tells of an error that way."""
_INTERRUPTED: Final = frozenset({"[Request interrupted by user]", "[Request interrupted by user for tool use]"})
_COMMANDS: Final = ("command-name", "command-message", "command-args", "local-command-stdout", "local-command-stderr")
_SHELL: Final = ("local-command-caveat", "bash-input", "bash-stdout", "bash-stderr")
_TAGS: Final = tuple(f"<{name}>" for name in (*_COMMANDS, *_SHELL))
"""How texts begin that the program writes in the name of the user: what was typed at it, and not at the model."""


def knows(record: dict[str, Any]) -> bool:
    """Whether a line looks like one of Claude Code."""
    return text(record.get("type")) in KINDS and ("message" in record or "sessionId" in record or "summary" in record)


class Reader:
    """Takes the lines one after another and gives each to its conversation."""

    def __init__(self) -> None:
        self._main = _Conversation()
        self._sub: dict[str, _Conversation] = {}
        self._agent_of: dict[str, str] = {}

    def problem(self, problem: Problem) -> None:
        """A line that could not be read."""
        self._main.spoken.items.append(problem)

    def take(self, line: int, at: str, record: dict[str, Any]) -> None:
        """The next line, written at `at`."""
        kind = text(record.get("type"))
        spoken = self._main.spoken
        if kind in _TITLES:
            spoken.title = text(record.get(_TITLES[kind])) or spoken.title
        elif kind not in ("assistant", "user"):
            spoken.skip(kind or "unnamed")
        elif record.get("isSidechain") is True:
            self._sub.setdefault(self._agent(record), _Conversation()).take(line, at, record)
        else:
            self._main.take(line, at, record)

    def _agent(self, record: dict[str, Any]) -> str:
        parent = text(record.get("parentUuid"))
        agent = text(record.get("agentId")) or self._agent_of.get(parent) or text(record.get("uuid"))
        self._agent_of[text(record.get("uuid"))] = agent
        return agent

    def finished(self) -> list[Spoken]:
        """The conversation and those of its sub-agents, or of a sub-agent alone."""
        subs = [found.spoken for found in self._sub.values()]
        if subs and all(isinstance(item, Problem) for item in self._main.spoken.items):
            first = subs.pop(0)
            first.items[:0] = self._main.spoken.items
            first.title, first.passed = self._main.spoken.title, self._main.spoken.passed
            return [first, *subs]
        return [self._main.spoken, *subs]


class _Conversation:
    """What one agent was told and said."""

    def __init__(self) -> None:
        self.spoken = Spoken()
        self._first: dict[str, Answer] = {}
        self._open: Answer | None = None
        self._open_id = ""

    def take(self, line: int, at: str, record: dict[str, Any]) -> None:
        message = fields(record.get("message"))
        if record.get("type") == "assistant":
            self._assistant(line, at, message)
        else:
            self._user(line, at, message, system=record.get("isMeta") is True or record.get("isCompactSummary") is True)

    def _assistant(self, line: int, at: str, message: dict[str, Any]) -> None:
        if not isinstance(message.get("content"), list | str):
            self.spoken.items.append(Problem(line, "an answer without content"))
            return
        name, model = text(message.get("id")), text(message.get("model"))
        answer = self._answer(line, at, name, model)
        for part in parts(message["content"]):
            if part.get("type") == "text":
                answer.text += text(part.get("text"))
            elif part.get("type") == "thinking":
                answer.thinking += text(part.get("thinking"))
            elif part.get("type") == "tool_use":
                answer.calls.append(Call(text(part.get("id")), text(part.get("name")) or "unnamed", part.get("input")))
        if model != _SYNTHETIC:
            _count(self._first.get(name, answer), fields(message.get("usage")))

    def _answer(self, line: int, at: str, name: str, model: str) -> Answer:
        """The answer that a line is part of: the newest, or what follows a person's prompt and is no request of its own."""
        if self._open is None or not name or name != self._open_id:
            asked = model != _SYNTHETIC
            self._open = Answer(line, at, model if asked else "", asked=asked and name not in self._first)
            self._open_id = name
            self.spoken.items.append(self._open)
        if name:
            self._first.setdefault(name, self._open)
        return self._open

    def _user(self, line: int, at: str, message: dict[str, Any], *, system: bool) -> None:
        content = message.get("content")
        if not isinstance(content, list | str):
            self.spoken.items.append(Problem(line, "a message without content"))
            return
        said = [part for part in parts(content) if part.get("type") != "tool_result"]
        for part in parts(content):
            if part.get("type") == "tool_result":
                result, failed = shown(part.get("content")), part.get("is_error") is True
                self.spoken.items.append(Outcome(line, at, text(part.get("tool_use_id")), result, failed))
        of_program = [part for part in said if _of_program(part)]
        if of_program:
            self.spoken.items.append(Prompt(line, at, shown(of_program), system=True))
        of_person = [part for part in said if not _of_program(part)]
        if of_person:
            self.spoken.items.append(Prompt(line, at, shown(of_person), system))
            self._open = self._open if system else None


def _of_program(part: dict[str, Any]) -> bool:
    """Whether a text in the name of the user is the program's own."""
    said = text(part.get("text")).strip()
    return said in _INTERRUPTED or said.startswith(_TAGS)


def _count(answer: Answer, usage: dict[str, Any]) -> None:
    """What a response used: each of its lines tells what it was by then, so the most counts."""
    read = tokens(usage, "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    written = tokens(usage, "output_tokens")
    answer.input_tokens = max((count for count in (answer.input_tokens, read) if count is not None), default=None)
    answer.output_tokens = max((count for count in (answer.output_tokens, written) if count is not None), default=None)
