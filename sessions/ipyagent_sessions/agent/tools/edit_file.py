"""edit_file: one passage of a file."""

from __future__ import annotations

import hashlib

from ipyagent_sessions.agent.tools.changing import change, read_only
from ipyagent_sessions.agent.tools.declare import Tool
from ipyagent_sessions.agent.tools.text import decoded, kind
from ipyagent_sessions.agent.tools.workbench import Workbench, this_call
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.run.definitions import Done


def edit_file(bench: Workbench) -> Tool:
    """The tool for this workbench.  Effect irreversible: the text is another one afterwards.  Verified by hash."""

    def edit_file(path: str, old: str, new: str) -> str:
        """Replace one passage of a text file of the workspace.

        Args:
            path: the file, relative to the workspace.
            old: the passage as it stands in the file, with as much around it as makes it the only one.
            new: what shall stand there.
        """
        path = bench.workspace.normal(path)
        call = this_call("edit_file", {"path": path, "old": old, "new": new})
        before = bench.workspace.read(path)
        text = decoded(before)
        if text is None:
            raise UsageError(f"{path} is {kind(before)} and cannot be edited as text")
        after = _replaced(path, text, old, new)
        change(bench, "edit_file", call, path, before, after.encode("utf-8", "replace"))
        return _said(path, text, old)

    def happened(path: str, old: str, new: str) -> bool | Done:
        path = bench.workspace.normal(path)
        told = bench.reported(this_call("edit_file", {"path": path, "old": old, "new": new}))
        if told is None:
            return False  # it is told before the file is touched
        now = bench.workspace.read_if_there(path)
        digest = None if now is None else hashlib.sha256(now).hexdigest()
        if digest == told.after_sha256:
            return Done(_said(path, (told.before or b"").decode("utf-8", "replace"), old))
        if digest == told.before_sha256:
            return False
        raise UsageError(f"{path} is neither what it was before the edit nor what it was to become")

    return Tool(edit_file, effect="irreversible", verify=happened, unusable=lambda: read_only(bench))


def _replaced(path: str, text: str, old: str, new: str) -> str:
    """`text` with `old` replaced by `new`.  In a file of CRLF lines, line ends given as LF are taken for those."""
    if not old:
        raise UsageError("old is empty: say what is to be replaced", hint="write_file makes a new file")
    if old == new:
        raise UsageError("old and new are the same: there is nothing to do")
    if old not in text and "\r\n" in text:
        old, new = (part.replace("\r\n", "\n").replace("\n", "\r\n") for part in (old, new))
    count = text.count(old)
    if count == 0:
        raise UsageError(f"{path} does not hold that passage", hint="read the file again; blanks and line ends count")
    if count > 1 or text.find(old, text.find(old) + 1) >= 0:  # count leaves out passages that overlap
        lines = ", ".join(str(number) for number in _lines(text, old))
        raise UsageError(f"{path} holds that passage more than once (lines {lines})", hint="give more of what is around it")
    return text.replace(old, new)


def _lines(text: str, old: str) -> list[int]:
    """The lines where `old` begins, the first ten of them."""
    found: list[int] = []
    at = text.find(old)
    while at >= 0 and len(found) < 10:
        found.append(text.count("\n", 0, at) + 1)
        at = text.find(old, at + 1)
    return found


def _said(path: str, text: str, old: str) -> str:
    at = text.find(old)
    line = text.count("\n", 0, at) + 1 if at >= 0 else 1
    return f"{path} edited at line {line}"
