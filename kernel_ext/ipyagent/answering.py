"""The requests of a widget, answered in the kernel: the paths, bodies and answers are those of the server's routes.

Nothing here knows of widgets: a request comes as text and leaves as a status and JSON, whatever carries it.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import Struct

from ipyagent_sessions.errors import NotFound, UsageError
from ipyagent_sessions.serving.asking import Wish, fork
from ipyagent_sessions.serving.branches import aftermath, compared
from ipyagent_sessions.serving.finding import MAX_SEQ, checked_id, parse, session_of
from ipyagent_sessions.serving.following import Followed
from ipyagent_sessions.serving.pages import blob_of, cards_at, page_of
from ipyagent_sessions.serving.shapes import ControlBody, Detail, ForkBody, States
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.views.markdown import html_of

MAX_EVENTS: Final = 10_000
MAX_STATES: Final = 256

Query = dict[str, str]
GoOn = Callable[[list[str]], Any]


class Reply(Struct):
    """An answer that is not an error; `body` is JSON, or the bytes of a blob."""

    status: int
    body: bytes


class Answers:
    """Answers about the sessions of `store`, in the name of `actor`.

    `go_on` performs a command of the magics, for what needs the definitions of this kernel (resume, rerun).  Called from
    several threads; blocks, and a control may wait some seconds for the holder of a lease.
    """

    def __init__(self, store: Store, actor: str, go_on: GoOn) -> None:
        self.store = store
        self._actor = actor
        self._go_on = go_on

    def answer(self, method: str, path: str, body: str) -> Reply:
        """The answer to one request.  Raises what the engine raises, and NotFound for a path that nobody serves."""
        split = urlsplit(path)
        parts = split.path.strip("/").split("/")
        if (method, parts) == ("POST", ["markdown"]):
            return Reply(HTTPStatus.OK, html_of(body).encode())
        if len(parts) < 2 or parts[0] != "sessions":
            raise NotFound("a widget answers about sessions only", hint="sessions/{id}/...")
        session = session_of(self.store, checked_id(parts[1]))
        query = dict(parse_qsl(split.query))
        if method == "POST":
            return self._post(session, "/".join(parts[2:]), body)
        return self._get(session, parts[2] if len(parts) > 2 else "", parts[3] if len(parts) > 3 else "", query)

    def _get(self, session: Session, what: str, name: str, query: Query) -> Reply:
        if what == "blobs":
            return Reply(HTTPStatus.OK, blob_of(session, name))
        looks: dict[str, Callable[[], Struct]] = {
            "": lambda: self._detail(session),
            "events": lambda: _events(session, query),
            "state": lambda: States(cards_at(session, _numbers(query.get("at", "")))),
            "aftermath": lambda: aftermath(session, _number(query, "at", 0, 0, MAX_SEQ)),
            "compare": lambda: compared(Followed(session), Followed(self._other(query.get("with", "")))),
        }
        if what not in looks:
            raise NotFound("a widget does not answer that")
        return Reply(HTTPStatus.OK, msgspec.json.encode(looks[what]()))

    def _post(self, session: Session, what: str, body: str) -> Reply:
        if what == "control":
            outcome = Wish.of(parse(body, ControlBody, "the body")).put_to(session, self._actor)
            status = HTTPStatus.ACCEPTED if outcome.outcome == "pending" else HTTPStatus.OK
            return Reply(status, msgspec.json.encode(outcome))
        if what == "fork":
            return Reply(HTTPStatus.CREATED, msgspec.json.encode(fork(session, parse(body, ForkBody, "the body"))))
        if what in ("resume", "rerun"):
            self._go_on([what, session.id, "--bg", *(["--yes"] if what == "rerun" else [])])
            return Reply(HTTPStatus.OK, b"{}")
        raise NotFound("a widget does not do that")

    def _other(self, session_id: str) -> Session:
        return session_of(self.store, checked_id(session_id))

    def _detail(self, session: Session) -> Detail:
        return Followed(session).detail(self.store.children(session.id))


def _events(session: Session, query: Query) -> Struct:
    after, limit = _number(query, "after", 0, 0, MAX_SEQ), _number(query, "limit", 1000, 1, MAX_EVENTS)
    longest = _number(query, "max_payload", 4096, 0, 2**20)
    return page_of(session, after, limit, longest, talk=query.get("only") == "talk")


def _numbers(text: str) -> list[int]:
    parts = text.split(",")
    if len(parts) > MAX_STATES:
        raise UsageError(f"at names {len(parts)} events, {MAX_STATES} are allowed")
    return sorted({_number({"at": part}, "at", 0, 1, MAX_SEQ) for part in parts})


def _number(query: Query, name: str, default: int, low: int, high: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and low <= int(text) <= high):
        raise UsageError(f"{name} must be a whole number from {low} to {high}")
    return int(text)
