"""The file that is brought in, before anything of it is read."""

from __future__ import annotations

import stat
from pathlib import Path

from ipyagent_sessions.errors import UsageError


def size_of(path: Path) -> int:
    """Its size in bytes.  Raises UsageError when there is no such file, or it is none that has an end."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None
    except OSError as error:
        raise unreadable(path, error) from error
    if stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{path} is a folder", hint="give the archive that `export` made, or a transcript")
    if not stat.S_ISREG(found.st_mode):  # to read a pipe would wait for ever
        raise UsageError(f"{path} is no regular file", hint="write what it gives into a file, and import that")
    return found.st_size


def unreadable(path: Path, error: OSError) -> UsageError:
    """What a person is told of a file that the system does not give."""
    return UsageError(f"{path} cannot be read: {error.strerror or error}", hint="look at its permissions, or import a copy")
