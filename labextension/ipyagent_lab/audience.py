"""The pages that listen: who watches which session, who follows the list, and what they are told.

Belongs to the event loop.  Per watched session one picture at a time is made for all its pages, at most ten a second; per page
at most one message of a kind waits.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

import msgspec

from ipyagent_lab.index import Index
from ipyagent_lab.pace import CARD_GAP, LIST_GAP, Paced
from ipyagent_lab.shapes import ListMessage, Message, Notice, NoticeMessage
from ipyagent_sessions.clock import Clock
from ipyagent_sessions.serving.problems import Problem, is_known
from ipyagent_sessions.serving.shapes import CardMessage, ProblemMessage, Shown

RECENT: Final = 50
"""How many notices are kept for pages that come (back) later."""
_encoder = msgspec.json.Encoder()


def encode(message: Message) -> bytes:
    """A message as JSON."""
    return _encoder.encode(message)


class Listener(Protocol):
    """A page, as far as it is told things.  A later message under the same `key` replaces one that was not sent yet."""

    def tell(self, key: str, message: Callable[[], bytes]) -> None: ...


class Audience:
    """`picture` makes what is shown of a session, `problem` what is told of an error that it raised."""

    def __init__(
        self,
        index: Index,
        picture: Callable[[str], Awaitable[Shown]],
        problem: Callable[[BaseException], Problem],
        clock: Clock,
        log: logging.Logger,
    ) -> None:
        self._index = index
        self._picture = picture
        self._problem = problem
        self._clock = clock
        self._log = log
        self._topics: dict[str, _Topic] = {}
        self._followers: dict[Listener, set[str]] = {}
        self._list: Paced | None = None
        self._notices: deque[Notice] = deque(maxlen=RECENT)
        self._unsaid: dict[Listener, int] = {}

    def subscribed(self) -> list[str]:
        """The sessions that pages watch."""
        return list(self._topics)

    def subscribe(self, page: Listener, ids: set[str]) -> None:
        """`page` watches these and no others; it is told at once what is known of them."""
        for session_id in ids:
            topic = self._topics.get(session_id)
            if topic is None:
                topic = self._topics[session_id] = _Topic(session_id, self._refresh, self._clock, self._log)
            elif page not in topic.pages and topic.latest is not None:
                page.tell(session_id, _constant(topic.latest))
            topic.pages.add(page)
            topic.paced.poke()
        for session_id in [i for i, topic in self._topics.items() if page in topic.pages and i not in ids]:
            self._unsubscribe(page, session_id)

    def _unsubscribe(self, page: Listener, session_id: str) -> None:
        topic = self._topics[session_id]
        topic.pages.discard(page)
        if not topic.pages:
            topic.paced.stop()
            del self._topics[session_id]

    def follow_list(self, page: Listener, wanted: bool) -> None:
        """`page` is told of changed rows, beginning with how many sessions there are."""
        if not wanted:
            self._followers.pop(page, None)
            self._unsaid.pop(page, None)
            return
        if self._list is None:
            self._list = Paced(self._tell_list, LIST_GAP, self._clock, self._log)
        self._followers.setdefault(page, set())
        page.tell("list", lambda: self._list_message(page))
        if self._notices and page not in self._unsaid:
            self._unsaid[page] = len(self._notices)
            page.tell("notices", lambda: self._notice_message(page))

    def announce(self, notice: Notice) -> None:
        """Tell the pages that follow the list."""
        self._notices.append(notice)
        for page in self._followers:
            self._unsaid[page] = self._unsaid.get(page, 0) + 1
            page.tell("notices", lambda page=page: self._notice_message(page))  # type: ignore[misc]  # as below

    def _notice_message(self, page: Listener) -> bytes:
        """Made when its turn comes, of all that the page has not been told and that still holds."""
        count = min(self._unsaid.get(page, 0), len(self._notices))
        self._unsaid[page] = 0
        return encode(NoticeMessage([n for n in list(self._notices)[len(self._notices) - count :] if self._holds(n)]))

    def _holds(self, notice: Notice) -> bool:
        """Whether nobody has answered what it asks for."""
        entry = self._index.get(notice.session_id)
        return notice.kind != "needs_you" or (entry is not None and entry.row.needs_you > 0)

    def leave(self, page: Listener) -> None:
        """The page is gone."""
        self.subscribe(page, set())
        self._followers.pop(page, None)
        self._unsaid.pop(page, None)

    def session_changed(self, ids: Iterable[str]) -> None:
        for session_id in ids:
            topic = self._topics.get(session_id)
            if topic is not None:
                topic.paced.poke()

    def list_changed(self, ids: set[str]) -> None:
        """Rows have changed, or, with no ids, only the counts."""
        for pending in self._followers.values():
            pending |= ids
        if self._list is not None and self._followers:
            self._list.poke()

    def stop(self) -> None:
        for topic in self._topics.values():
            topic.paced.stop()
        self._topics.clear()
        self._followers.clear()
        if self._list is not None:
            self._list.stop()

    async def _tell_list(self) -> None:
        for page in self._followers:
            page.tell("list", lambda page=page: self._list_message(page))  # type: ignore[misc]  # mypy cannot infer the default

    def _list_message(self, page: Listener) -> bytes:
        """Made when its turn comes, of all that has changed until then."""
        pending = self._followers.get(page, set())
        rows = [(i, self._index.get(i)) for i in sorted(pending)]
        pending.clear()
        return encode(
            ListMessage(
                [e.row for _, e in rows if e is not None],
                [i for i, e in rows if e is None],
                self._index.counts(),
                self._index.revision,
                self._index.filling,
            )
        )

    async def _refresh(self, topic: _Topic) -> None:
        """Make a picture and tell the pages that watch."""
        message: Message
        try:
            message = CardMessage(await self._picture(topic.session_id))
        except Exception as error:  # noqa: BLE001  # whatever a session does, its pages are told and the others go on
            if not is_known(error):
                self._log.exception("ipyagent: session %s cannot be shown", topic.session_id)
            message = ProblemMessage(topic.session_id, self._problem(error))
        topic.latest = encode(message)
        for page in topic.pages:
            page.tell(topic.session_id, _constant(topic.latest))


class _Topic:
    """A watched session."""

    def __init__(
        self, session_id: str, refresh: Callable[[_Topic], Awaitable[None]], clock: Clock, log: logging.Logger
    ) -> None:
        self.session_id = session_id
        self.pages: set[Listener] = set()
        self.latest: bytes | None = None
        self.paced = Paced(lambda: refresh(self), CARD_GAP, clock, log)


def _constant(body: bytes) -> Callable[[], bytes]:
    return lambda: body
