"""The sessions that pages look at, with their states kept at hand."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from ipyagent_sessions.serving.following import Followed
from ipyagent_sessions.session import Session

KEPT: Final = 64


class Shelf:
    """The sessions that were looked at last; those that are watched are pinned.  Belongs to the event loop."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._items: OrderedDict[str, Followed] = OrderedDict()

    def of(self, session: Session) -> Followed:
        """The followed session of that id, which a page may be asking for again soon."""
        found = self._items.pop(session.id, None) or Followed(session)
        self._items[session.id] = found
        while len(self._items) > self._kept:
            self._items.popitem(last=False)
        return found

    def forget(self, session_id: str) -> None:
        self._items.pop(session_id, None)
