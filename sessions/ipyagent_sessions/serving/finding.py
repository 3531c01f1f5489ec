"""From what came over a wire to what it means: ids, bodies, sessions.  Nothing is used before it was checked here."""

from __future__ import annotations

from typing import Final, TypeVar, cast

import msgspec
from msgspec import Struct

from ipyagent_sessions.decoding import from_json
from ipyagent_sessions.errors import NotFound, UsageError
from ipyagent_sessions.place import is_id
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store

MAX_SEQ: Final = 2**53 - 1
"""The largest number that JavaScript holds exactly."""

_TEXT: Final = 2000

S = TypeVar("S", bound=Struct)


def session_of(store: Store, session_id: str) -> Session:
    """The session of that id, which exists.  Raises NotFound."""
    if is_id(session_id) and (store.sessions_folder / session_id).is_dir():
        return store.session(session_id)
    shown = session_id if is_id(session_id) else "of that id"
    raise NotFound(f"there is no session {shown}", hint="it may have been deleted, or be in another store")


def checked_id(session_id: str) -> str:
    """An id from a page that has the form of one.  Raises UsageError, without repeating what it was given."""
    if not is_id(session_id):
        raise UsageError("that is not the id of a session", hint="2 to 40 lower-case letters and digits")
    return session_id


def parse(raw: bytes | str | msgspec.Raw, kind: type[S], what: str) -> S:
    """JSON from a page as a `kind`.  Raises UsageError that says where it differs, and when a text is too long."""
    try:
        found = from_json(raw, kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{what} is not what is expected: {error}") from error
    for name in kind.__struct_fields__:
        value = getattr(found, name)
        texts = [value] if isinstance(value, str) else cast(list[str], value) if isinstance(value, list) else []
        if len(texts) > 64 or any(len(text) > _TEXT for text in texts):
            raise UsageError(f"{what}: {name} is too long", hint=f"a text has at most {_TEXT} characters, a list 64 items")
    return found
