"""write_file: a whole file."""

from __future__ import annotations

from ipyagent_sessions.agent.tools.changing import change, read_only
from ipyagent_sessions.agent.tools.declare import Tool
from ipyagent_sessions.agent.tools.workbench import Workbench, this_call


def write_file(bench: Workbench) -> Tool:
    """The tool for this workbench.  Effect idempotent: writing the same again leaves the same file."""

    def write_file(path: str, content: str) -> str:
        """Write a text file of the workspace, the whole of it; what it held before is replaced and kept for the user.

        Args:
            path: the file, relative to the workspace; folders that are missing are made.
            content: all that the file shall hold.
        """
        path = bench.workspace.normal(path)
        data = content.encode("utf-8", "replace")
        before = bench.workspace.read_if_there(path)
        if before == data:
            return f"{path} holds exactly that ({len(data):,} bytes)"
        change(bench, "write_file", this_call("write_file", {"path": path, "content": content}), path, before, data)
        return f"{path} written, {len(data):,} bytes" + ("" if before is None else f"; it had {len(before):,}")

    return Tool(write_file, effect="idempotent", sequential=True, unusable=lambda: read_only(bench))
