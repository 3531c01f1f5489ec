"""Errors at the edge: one table from what the engine raises to an HTTP status, and the body that a page gets.

What the engine raises on purpose carries a message for a person, which is passed on with the store's path shortened.  Of
anything else a page learns only that it happened; the log of the server has the rest.
"""

from __future__ import annotations

import errno
import os
from http import HTTPStatus
from pathlib import Path
from typing import Final

from msgspec import Struct

from ipyagent_sessions import errors as e

STATUSES: Final[dict[type[e.IpyagentError], HTTPStatus]] = {
    e.UsageError: HTTPStatus.BAD_REQUEST,
    e.NotSerialisable: HTTPStatus.BAD_REQUEST,
    e.NotFound: HTTPStatus.NOT_FOUND,
    e.ControlRefused: HTTPStatus.CONFLICT,
    e.IllegalTransition: HTTPStatus.CONFLICT,
    e.IdentityError: HTTPStatus.CONFLICT,
    e.LeaseLost: HTTPStatus.CONFLICT,
    # 426 promises an Upgrade header (RFC 9110, 15.5.22), and no protocol is to be upgraded here
    e.NewerFormat: HTTPStatus.CONFLICT,
    e.DamageError: HTTPStatus.UNPROCESSABLE_ENTITY,
    e.LeaseHeld: HTTPStatus.LOCKED,
    e.PersistenceError: HTTPStatus.INSUFFICIENT_STORAGE,
    e.ConfigError: HTTPStatus.INTERNAL_SERVER_ERROR,
    e.IpyagentError: HTTPStatus.INTERNAL_SERVER_ERROR,
}
"""The table; a type that is not in it takes the row of its nearest base."""

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM})


class TooLarge(e.UsageError):
    """A body, a message or a blob is larger than this server takes or gives."""


STATUSES[TooLarge] = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class Problem(Struct):
    """The body of every answer that is not 2xx.

    `error` is the type (`NotFound`, `ControlRefused`, ...), `message` what happened and where, `hint` what to do next, or
    empty.
    """

    error: str
    message: str
    hint: str
    status: int


def problem_of(error: BaseException, root: Path | None = None) -> Problem:
    """What a page is told of `error`.  `root` is the store's folder, whose path is shortened in the text."""
    if isinstance(error, e.IpyagentError):
        status = next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)
        return Problem(type(error).__name__, _shortened(error.message, root), _shortened(error.hint, root), status)
    if isinstance(error, OSError) and error.errno in _FULL:
        return Problem(
            "PersistenceError",
            f"the store cannot be written: {os.strerror(error.errno or 0)}",
            "free some space or mend the disk; reading works meanwhile",
            HTTPStatus.INSUFFICIENT_STORAGE,
        )
    return Problem(
        "ServerError",
        "something went wrong in the server part of ipyagent",
        "its log has the details",
        HTTPStatus.INTERNAL_SERVER_ERROR,
    )


def is_known(error: BaseException) -> bool:
    """Whether a person has been told all there is to tell, so that no traceback is needed in the log."""
    return isinstance(error, e.IpyagentError) or (isinstance(error, OSError) and error.errno in _FULL)


def short_path(path: Path) -> str:
    """A path as it may be shown: the home folder as `~`, the middle left out when it is long."""
    text = str(path)
    home = str(Path.home())
    if text == home or text.startswith(home + os.sep):
        text = "~" + text[len(home) :]
    return text if len(text) <= 60 else f"{text[:20]}…{text[-39:]}"


def _shortened(text: str, root: Path | None) -> str:
    return text if root is None else text.replace(str(root), short_path(root))
