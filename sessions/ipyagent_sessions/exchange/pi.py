"""Transcripts of Pi: `~/.pi/agent/sessions/--<folder>--/<time>_<id>.jsonl`, versions 1 to 3 of its format.

The first line is `{"type": "session", "version", "id", ...}`; the others are entries with `id` and `parentId`, a tree in which
each prompt may begin another branch.  Pi goes on where the last line is, so what leads from the root to the last entry is the
conversation; each branch that leaves it is named by an alarm.  In version 1 the entries have no ids and follow one another.
What each answer used and cost stands in it.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from msgspec import Struct

from ipyagent_sessions.exchange.spoken import (
    Answer,
    Call,
    Item,
    Outcome,
    Problem,
    Prompt,
    Spoken,
    dollars,
    fields,
    parts,
    shown,
    text,
    tokens,
)

NAME: Final = "pi"
_VERSION: Final = 3
_SUMMARIES: Final = frozenset({"compaction", "branch_summary"})
_NAMED: Final = 60


def knows(record: dict[str, Any]) -> bool:
    """Whether a line is the first one of Pi."""
    return record.get("type") == "session" and isinstance(record.get("id"), str)


class _Entry(Struct):
    line: int
    at: str
    record: dict[str, Any]
    parent: str | None


class Reader:
    """Takes the lines one after another; what was said is known when all of them are there."""

    def __init__(self) -> None:
        self._spoken = Spoken()
        self._problems: list[Problem] = []
        self._entries: dict[str, _Entry] = {}
        self._linear = False
        self._last: str | None = None

    def problem(self, problem: Problem) -> None:
        """A line that could not be read."""
        self._problems.append(problem)

    def take(self, line: int, at: str, record: dict[str, Any]) -> None:
        """The next line, written at `at`."""
        if record.get("type") == "session":
            self._head(line, record)
            return
        if record.get("type") == "session_info":
            self._spoken.title = text(record.get("name")) or self._spoken.title
        name, parent = text(record.get("id")), record.get("parentId")
        if self._linear:
            name, parent = str(line), self._last
        if not name or not (parent is None or isinstance(parent, str)):
            self.problem(Problem(line, "an entry without a place in the tree"))
        elif name in self._entries:
            self.problem(Problem(line, f"line {self._entries[name].line} has the same id"))
        else:
            self._entries[name] = _Entry(line, at, record, parent)
            self._last = name

    def _head(self, line: int, record: dict[str, Any]) -> None:
        version = record.get("version", 1)
        self._linear = version == 1
        if version not in range(1, _VERSION + 1):
            self.problem(
                Problem(line, f"version {version!r:.20} of the format; up to {_VERSION} is known, what is new is passed over")
            )

    def finished(self) -> list[Spoken]:
        """The conversation of the branch that the last entry is on."""
        path = self._path()
        on_it = set(path)
        self._branches(on_it)
        items: list[Item] = list(self._problems)
        for name in path:
            entry = self._entries[name]
            found = self._item(entry)
            if found is not None:
                items.append(found)
        self._spoken.items = _in_place(items)
        return [self._spoken]

    def _path(self) -> list[str]:
        """The ids from the root to the last entry."""
        path: list[str] = []
        seen, name = set[str](), self._last
        while name is not None and name in self._entries and name not in seen:
            seen.add(name)
            path.append(name)
            name = self._entries[name].parent
        if name is not None:
            what = "follows from itself" if name in seen else "follows an entry that is not in the file"
            self.problem(Problem(self._entries[path[-1]].line, f"it {what}: the conversation begins here, nothing before it"))
        path.reverse()
        return path

    def _branches(self, on_it: set[str]) -> None:
        """Name the branches that leave the path, each where it begins."""
        first: dict[str, str] = {}
        sizes: dict[str, int] = {}
        for name, entry in self._entries.items():
            if name in on_it:
                continue
            start = first.get(entry.parent or "", name)
            first[name] = start
            sizes[start] = sizes.get(start, 0) + 1
        for start, size in sizes.items():
            entry = self._entries[start]
            said = " ".join(shown(fields(entry.record.get("message")).get("content")).split())[:_NAMED]
            many = "1 entry" if size == 1 else f"{size} entries"
            self.problem(Problem(entry.line, f"another branch begins with it, of {many}" + (f": {said}" if said else "")))

    def _item(self, entry: _Entry) -> Item | None:
        """What an entry says, None for one that is no part of the conversation."""
        kind, line, at = text(entry.record.get("type")), entry.line, entry.at
        if kind == "message":
            return self._message(line, at, fields(entry.record.get("message")))
        if kind in _SUMMARIES:
            return Prompt(line, at, text(entry.record.get("summary")), system=True)
        if kind == "custom_message":
            return Prompt(line, at, shown(entry.record.get("content")), system=True)
        self._spoken.skip(kind or "unnamed")
        return None

    def _message(self, line: int, at: str, message: dict[str, Any]) -> Item | None:
        role = text(message.get("role"))
        content = message.get("content")
        if role in ("user", "custom", "hookMessage") and isinstance(content, list | str):
            return Prompt(line, at, shown(content), system=role != "user")
        if role == "assistant" and isinstance(content, list | str):
            return _answer(line, at, message)
        if role == "toolResult":
            return Outcome(line, at, text(message.get("toolCallId")), shown(content), message.get("isError") is True)
        if role == "bashExecution" and message.get("excludeFromContext") is not True:
            told = f"$ {text(message.get('command'))}\n{text(message.get('output'))}"
            return Prompt(line, at, told, system=True)
        if role in ("user", "assistant", "custom", "hookMessage"):
            return Problem(line, f"a message of role {role} without content")
        self._spoken.skip(role or "unnamed")
        return None


def _answer(line: int, at: str, message: dict[str, Any]) -> Answer:
    answer = Answer(line, at, text(message.get("model")))
    for part in parts(message["content"]):
        if part.get("type") == "text":
            answer.text += text(part.get("text"))
        elif part.get("type") == "thinking":
            answer.thinking += text(part.get("thinking"))
        elif part.get("type") == "toolCall":
            answer.calls.append(Call(text(part.get("id")), text(part.get("name")) or "unnamed", part.get("arguments")))
    if message.get("stopReason") in ("error", "aborted"):
        answer.text += f"[{message['stopReason']}: {text(message.get('errorMessage')) or 'no more is known'}]"
    usage = fields(message.get("usage"))
    answer.input_tokens = tokens(usage, "input", "cacheRead", "cacheWrite")
    answer.output_tokens = tokens(usage, "output")
    answer.cost_usd = dollars(fields(usage.get("cost")).get("total"))
    return answer


def _in_place(items: list[Item]) -> list[Item]:
    """The items of the conversation in its order, and before each the problems of lines above it."""
    problems = deque(sorted((item for item in items if isinstance(item, Problem)), key=lambda item: item.line))
    placed: list[Item] = []
    for item in items:
        if isinstance(item, Problem):
            continue
        while problems and problems[0].line < item.line:
            placed.append(problems.popleft())
        placed.append(item)
    return [*placed, *problems]
