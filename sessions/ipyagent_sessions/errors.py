"""Every error this package raises on purpose.

A message says what happened, where, and what to do next; `hint` carries the last part so that a front end can set it apart.
A type exists only where somebody catches it.  Front ends translate at their edge (one line in a cell, an exit code in a
terminal, a status on HTTP) and never show a traceback for an `IpyagentError`.
"""

from __future__ import annotations

import errno
from typing import Final

UPDATE = "install the ipyagent that wrote it, or a newer one: pip install -U ipyagent"
"""What to do about a format that is newer than this version."""
_MEND: Final = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO), "free some space, or mend the disk"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "see who may read and write there"),
    errno.EISDIR: "a folder stands where a file has to be: move it away and restore the file; ipyagent verify says which",
    errno.ENOTDIR: "a file stands where a folder has to be: name another store, or move that file",
}
"""What to do when a disk refuses."""


class IpyagentError(Exception):
    """Base of all errors of the package.

    `hint` says what the person can do next, or is empty; it goes on the sentence that `message` begins.  A command in it is
    written as in a terminal (`ipyagent ls`); a notebook shows it as `%agent ls` (`commands.door.here`).
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        return f"{self.message}{' ' if self.message.endswith(('.', '?', '!')) else '; '}{self.hint}"


class UsageError(IpyagentError):
    """The call, command or workflow definition is wrong; nothing was started and nothing was written."""


class NotFound(IpyagentError):
    """No session, task, approval, checkpoint or event of that name."""


class ConfigError(IpyagentError):
    """A configuration value is wrong; the message carries the path of the key."""


class LeaseHeld(IpyagentError):
    """Somebody else may append to this session now; the message says who."""


class LeaseLost(IpyagentError):
    """This holder was fenced: a newer epoch exists, and nothing more was acknowledged here."""


class PersistenceError(IpyagentError):
    """An event could not be put on disk.  Nothing that depends on it has happened."""


def refused_by_disk(error: OSError) -> PersistenceError:
    """What a front end tells of an error of the system that nobody inside knew more about."""
    return PersistenceError(
        f"{error.filename or 'the store'}: {error.strerror or error}", hint=_MEND.get(error.errno or 0, "")
    )


class DamageError(IpyagentError):
    """Stored bytes do not verify, or the log has a gap; the message carries the place."""


class NewerFormat(IpyagentError):
    """Written by a newer version of ipyagent, in a form this version must not guess at."""


class IllegalTransition(IpyagentError):
    """The lifecycle table has no such change of state, or not for this actor."""


class ControlRefused(IpyagentError):
    """A pause, resume, cancel or answer came too late or does not fit the task's present state."""


class ControlPending(ControlRefused):
    """Nobody has answered a request yet: its holder is silent.  It stays in the inbox and is answered when somebody can."""


class NotSerialisable(IpyagentError):
    """A value cannot be written as JSON or one of the native kinds; the message names its path and type."""


class IdentityError(IpyagentError):
    """An activity cannot be told apart from another, or differs from what was recorded under its identity."""


class ActivityError(IpyagentError):
    """An activity ended without a result.  Raised into the workflow, alike in the first run and in a resumed one.

    `name` is the activity's name, `error_type` and `error` are the class name and the text of what the function raised.
    """

    def __init__(self, name: str, error_type: str, error: str, *, hint: str = "") -> None:
        super().__init__(f"{name} failed: {error_type}: {error}" if error else f"{name} failed: {error_type}", hint=hint)
        self.name = name
        self.error_type = error_type
        self.error = error


class ActivityTimeout(ActivityError):
    """The activity ran longer than its timeout.  `still_running` is true when the work could not be stopped."""

    def __init__(self, name: str, error: str, *, still_running: bool = False) -> None:
        super().__init__(name, "ActivityTimeout", error)
        self.still_running = still_running


class ResultLost(ActivityError):
    """The activity had its effect, but its result could not be stored; it will not run again."""


class CheckFailed(IpyagentError):
    """A checked section failed its check as often as it may; `checkpoint` is the seq of the one that it is rolled back to."""

    def __init__(self, message: str, *, checkpoint: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.checkpoint = checkpoint


class TaskNotCompleted(IpyagentError):
    """A foreground task ended or paused in another state than completed; `state` and `task_id` say which."""

    def __init__(self, message: str, *, task_id: str, state: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.task_id = task_id
        self.state = state
