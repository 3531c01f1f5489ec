"""The requests of a widget, answered in the kernel: the paths, bodies and answers are those of the server's routes.

Nothing here knows of widgets: a request comes as text and leaves as a status and JSON, whatever carries it.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ipyagent_sessions.errors import NotFound
from ipyagent_sessions.serving.arguments import Arguments, moment, moments, portion
from ipyagent_sessions.serving.asking import Wish, fork
from ipyagent_sessions.serving.branches import aftermath, compared
from ipyagent_sessions.serving.finding import checked_id, parse, session_of
from ipyagent_sessions.serving.following import Followed
from ipyagent_sessions.serving.pages import blob_of, cards_at, page_of
from ipyagent_sessions.serving.shapes import ControlBody, Detail, ForkBody, States
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.views.markdown import html_of

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
        if method == "POST":
            return self._post(session, "/".join(parts[2:]), body)
        what, name = [*parts[2:4], "", ""][:2]
        return self._get(session, what, name, Arguments(split.query))

    def _get(self, session: Session, what: str, name: str, asked: Arguments) -> Reply:
        if what == "blobs":
            return Reply(HTTPStatus.OK, blob_of(session, name))
        looks: dict[str, Callable[[], Struct]] = {
            "": lambda: self._detail(session),
            "events": lambda: page_of(session, portion(asked)),
            "state": lambda: States(cards_at(session, moments(asked))),
            "aftermath": lambda: aftermath(session, moment(asked)),
            "compare": lambda: compared(Followed(session), Followed(self._other(asked.text("with") or ""))),
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
