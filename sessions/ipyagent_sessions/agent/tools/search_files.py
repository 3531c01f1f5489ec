"""search_files: lines that hold a text or match an expression.

Expressions run in RE2, through Arrow: it takes time in proportion to the text, whatever expression a model thinks of, and
holds up nobody else meanwhile.  Python's own `re` can take hours for a line of thirty characters, and the kernel with it.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator
from typing import Final

from ipyagent_sessions.agent.tools.declare import Tool
from ipyagent_sessions.agent.tools.list_files import no_folder
from ipyagent_sessions.agent.tools.text import decoded
from ipyagent_sessions.agent.tools.workbench import Workbench
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.workspace.workspace import Workspace

_MOST_HITS: Final = 200
_MOST_BYTES: Final = 200_000_000
_BIGGEST: Final = 5_000_000
_WIDEST: Final = 300
"""Hits, bytes looked at in all, bytes of one file, characters of a line that is shown."""


def search_files(bench: Workbench) -> Tool:
    """The tool for this workbench.  Effect none."""

    def search_files(
        text: str, path: str = ".", pattern: str = "*", expression: bool = False, ignore_case: bool = False
    ) -> str:
        """Find the lines of text files that hold a text; gives path:line: content.

        Args:
            text: what to look for.
            path: the folder to search, or one file.
            pattern: look only into files of names that match, like *.py.
            expression: take the text as a regular expression (RE2: no look-around, no back-references).
            ignore_case: take capitals and small letters as the same.
        """
        if not text:
            raise UsageError("there is nothing to look for")
        matching = _expression(text, ignore_case) if expression else _literal(text, ignore_case)
        search = _Search(bench.workspace, pattern)
        hits = [f"{name}:{number}: {line}" for name, number, line in search.run(path, matching)]
        return "\n".join([*hits, *search.notes]) or f"no line of {search.files:,} files"

    return Tool(search_files, effect="none", unusable=lambda: no_folder(bench), more="search a folder, or be more exact")


_Matching = Callable[[list[str]], list[int]]
"""Which of some lines match, by index."""


class _Search:
    def __init__(self, workspace: Workspace, pattern: str) -> None:
        self._workspace = workspace
        self._pattern = pattern
        self.files = 0
        self.notes: list[str] = []

    def run(self, path: str, matching: _Matching) -> Iterator[tuple[str, int, str]]:
        hits = looked = 0
        for name, size in self._files(path):
            if looked + size > _MOST_BYTES:
                self.notes.append(f"[stopped before {name}: {_MOST_BYTES:,} bytes were looked at; search one folder]")
                return
            if size > _BIGGEST:
                self.notes.append(f"[{name} is larger than {_BIGGEST:,} bytes and was left out]")
                continue
            looked += size
            lines = self._lines(name)
            if lines is None:
                continue
            self.files += 1
            for index in matching(lines):
                if hits == _MOST_HITS:
                    self.notes.append(f"[more than {_MOST_HITS} lines; be more exact, or search one folder]")
                    return
                hits += 1
                line = lines[index]
                yield name, index + 1, line if len(line) <= _WIDEST else f"{line[:_WIDEST]} [cut]"

    def _files(self, path: str) -> Iterator[tuple[str, int]]:
        one = self._workspace.size(path)
        if one is not None:
            yield self._workspace.normal(path), one
            return
        for entry in self._workspace.walk(path):
            if entry.closed:
                self.notes.append(f"[{entry.path}/ was left out]")
            elif entry.kind == "file" and fnmatch.fnmatchcase(entry.path.rpartition("/")[2], self._pattern):
                yield entry.path, entry.size

    def _lines(self, name: str) -> list[str] | None:
        """The lines of a text file; None for others, and for one that went away meanwhile."""
        try:
            text = decoded(self._workspace.read(name, _BIGGEST))
        except UsageError as error:
            self.notes.append(f"[{error.message}]")
            return None
        return None if text is None else text.splitlines()


def _literal(text: str, ignore_case: bool) -> _Matching:
    if ignore_case:
        low = text.casefold()
        return lambda lines: [i for i, line in enumerate(lines) if low in line.casefold()]
    return lambda lines: [i for i, line in enumerate(lines) if text in line]


def _expression(text: str, ignore_case: bool) -> _Matching:
    import pyarrow as pa
    import pyarrow.compute as pc

    def matching(lines: list[str]) -> list[int]:
        hit = pc.match_substring_regex(pa.array(lines, pa.string()), text, ignore_case=ignore_case)
        return [i for i, yes in enumerate(hit.to_pylist()) if yes]

    try:
        matching([""])
    except pa.ArrowInvalid as error:
        raise UsageError(f"this is no expression: {error}", hint="RE2 has no look-around and no back-references") from None
    return matching
