"""What makes an activity the same one after a restart: stage, name, key, and the digest of its arguments.

    2.1/analyse:json      with a key
    2.1/scan#1            without one: the first call of `scan` in stage 2.1, in code order
    main/report#1         outside any stage

Occurrence in code order is only well defined while calls of one name follow one another, so an unkeyed call beside an
open one of the same name, or from one of several parallel coroutines, is refused."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from ipyagent_sessions import codec
from ipyagent_sessions.errors import IdentityError, NotSerialisable

MAIN: Final = "main"
_LONGEST_KEY: Final = 120


def arguments(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """The arguments as canonical JSON.  Raises NotSerialisable naming the activity and the argument."""
    try:
        return codec.canonical([list(args), kwargs] if kwargs else [list(args)])
    except NotSerialisable as error:
        raise NotSerialisable(
            f"{name}: {error.message}",
            hint="arguments are recorded: pass paths, ids or data, and open connections inside the activity",
        ) from error


def key_text(name: str, key: Any) -> str:
    """A key as part of an id.  Raises IdentityError when it is not text, a number or a tuple of those."""
    if isinstance(key, tuple):
        return ",".join(key_text(name, part) for part in key)
    if not isinstance(key, str | int | float) and not hasattr(key, "__fspath__"):
        raise IdentityError(
            f"{name}: a key is text or a number, not {type(key).__name__}",
            hint="use something that names the item: its path, its id",
        )
    text = str(key)
    body = text.encode("utf-8", "surrogatepass")
    shown = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
    if shown != text or len(text) > _LONGEST_KEY:  # a file name that is no UTF-8, or a text too long for an id
        return f"{shown[:80]}~{hashlib.blake2b(body, digest_size=8).hexdigest()}"
    return text


def changed(activity_id: str, recorded: bytes | None, now: bytes) -> IdentityError:
    """The error for arguments that differ from the recorded ones, showing the difference."""
    if recorded is None or not recorded.strip():
        shown = "its arguments are not those of the recorded call"
    else:
        shown = f"recorded {_short(recorded)}, now {_short(now)}"
    return IdentityError(
        f"{activity_id} was recorded with other arguments: {shown}",
        hint="undo the change, give the new call another key, or run it again with ipyagent resume --redo NAME[:KEY]",
    )


def _short(body: bytes, width: int = 160) -> str:
    text = body.decode("utf-8", "replace")
    return text if len(text) <= width else f"{text[: width // 2]} ... {text[-width // 2 :]}"
