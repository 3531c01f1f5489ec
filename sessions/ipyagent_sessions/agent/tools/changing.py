"""One way to change a file: tell what it was, then replace it."""

from __future__ import annotations

import hashlib
import os

from ipyagent_sessions.agent.tools.list_files import no_folder
from ipyagent_sessions.agent.tools.workbench import FileChange, Workbench
from ipyagent_sessions.errors import UsageError


def change(bench: Workbench, tool: str, call: str, path: str, before: bytes | None, data: bytes) -> None:
    """Make `path`, which holds `before`, hold `data`.

    The change is reported first and is durable then, so whoever finds the call open after a crash can tell from the file
    whether it happened.  Raises UsageError when the file is not what the model has seen, or cannot be written.
    """
    bench.workspace.check_writable(path)
    known = bench.seen.get(path)
    was = None if before is None else hashlib.sha256(before).hexdigest()
    if known is not None and was is not None and known != was:
        raise UsageError(f"{path} was changed by somebody else since you read it", hint="read it again before you change it")
    after = hashlib.sha256(data).hexdigest()
    bench.will_change(FileChange(path, tool, call, before, was, after, len(data), data))
    bench.workspace.write(path, data, before=before)
    bench.saw(path, after)


def read_only(bench: Workbench) -> str | None:
    """Why files cannot be changed here."""
    missing = no_folder(bench)
    if missing is None and not os.access(bench.folder, os.W_OK):
        return f"the workspace {bench.folder} is read only"
    return missing
