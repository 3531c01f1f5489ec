"""git in a folder, with nothing of the git around this process."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from ipyagent_sessions.errors import IpyagentError

_PATIENCE_S: Final = 120.0


def git(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run git in `folder`.  Raises IpyagentError when there is no git or it hangs; its exit code is the caller's to judge."""
    found = shutil.which("git")
    if found is None:
        raise IpyagentError("there is no git here")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        return subprocess.run(
            [found, "-C", os.fspath(folder), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
            env={**clean, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise IpyagentError(f"git {words[0]} did not work: {error}") from error
