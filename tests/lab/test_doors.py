"""Nobody gets in who should not: every route and the socket, found in the running application, so that none is forgotten."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from http.cookies import SimpleCookie
from typing import Any, NamedTuple

import pytest
from jupyter_server.auth import Authorizer, User
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.serverapp import ServerApp
from tornado.httpclient import HTTPClientError, HTTPRequest, HTTPResponse
from tornado.routing import Rule, RuleRouter
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketHandler, websocket_connect

from ipyagent_lab.app import ROUTES
from ipyagent_lab.service import Service
from ipyagent_lab.testing import finished
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store

Fetch = Callable[..., Awaitable[HTTPResponse]]
BODIES = {
    "control": {"action": "rename", "args": {"title": "mine"}},
    "fork": {},
    "delete": {"events": 20},
}


class Door(NamedTuple):
    """A way into the extension; `method` is GET, POST, ... or SOCKET."""

    method: str
    path: str


class ReadOnly(Authorizer):
    """Lets everybody read and nobody write; remembers what it was asked."""

    asked: list[tuple[str, str]] = []  # noqa: RUF012  # shared on purpose: the server makes the object
    allowed = frozenset({"read"})

    def is_authorized(self, handler: JupyterHandler, user: User, action: str, resource: str) -> bool:
        if resource == "ipyagent":
            self.asked.append((action, resource))
            return action in self.allowed
        return True


class Closed(ReadOnly):
    """Lets nobody do anything with ipyagent."""

    allowed = frozenset[str]()


@pytest.fixture
def session(real: Store) -> Session:
    return finished(real)


@pytest.fixture
def doors(jp_web_app: Application, session: Session) -> list[Door]:
    """Every method of every handler of ours that the application has, with a session that exists."""
    found: list[Door] = []
    for pattern, handler in handlers(jp_web_app.default_router):
        if not handler.__module__.startswith("ipyagent_lab"):
            continue
        path = re.sub(r"\(\?P<session_id>[^)]*\)", session.id, pattern.rstrip("$"))
        path = re.sub(r"\(\?P<name>[^)]*\)", "0" * 64, path)
        assert "(" not in path, f"this test does not know how to fill {pattern}"
        kind = "SOCKET" if issubclass(handler, WebSocketHandler) else ""
        methods = ("get", "head", "post", "put", "patch", "delete")
        found.extend(Door(kind or m.upper(), path) for m in methods if getattr(handler, m) is not getattr(RequestHandler, m))
    return found


def handlers(router: RuleRouter) -> Iterator[tuple[str, type[RequestHandler]]]:
    for rule in router.rules:
        assert isinstance(rule, Rule)
        target: Any = rule.target
        if isinstance(target, RuleRouter):
            yield from handlers(target)
        elif isinstance(target, type) and issubclass(target, RequestHandler):
            yield getattr(rule.matcher, "regex").pattern, target  # noqa: B009  # only a PathMatches has it


@pytest.fixture
def knock(http_server_client: Any, jp_http_port: int) -> Callable[..., Awaitable[int]]:
    """The status that a door answers with."""

    async def status(door: Door, headers: dict[str, str] | None = None) -> int:
        path = door.path.replace("@", "%40") if "%40" not in door.path else door.path
        query = {"state": "?at=1", "aftermath": "?at=2", "compare": f"?with={path.split('/')[-2]}"}.get(
            path.rpartition("/")[2], ""
        )
        try:
            if door.method == "SOCKET":
                request = HTTPRequest(f"ws://127.0.0.1:{jp_http_port}{path}", headers=headers or {})
                (await websocket_connect(request)).close()
                return 101
            body = json.dumps(BODIES.get(path.rpartition("/")[2], {})) if door.method == "POST" else None
            answer = await http_server_client.fetch(
                path + query, method=door.method, headers=headers or {}, body=body, follow_redirects=False
            )
        except HTTPClientError as error:
            return error.code
        return int(answer.code)

    return status


Knock = Callable[..., Awaitable[int]]


def test_the_walk_finds_every_route_once(doors: list[Door]) -> None:
    assert len({door.path for door in doors}) == len(ROUTES)
    assert sum(door.method == "SOCKET" for door in doors) == 1
    assert {door.path.rpartition("/")[2] for door in doors if door.method == "POST"} == {"control", "fork", "delete"}


async def test_no_token_opens_nothing(doors: list[Door], service: Service, knock: Knock) -> None:
    assert {door: await knock(door) for door in doors} == dict.fromkeys(doors, 403)


async def test_a_wrong_token_opens_nothing(doors: list[Door], service: Service, knock: Knock) -> None:
    wrong = {"Authorization": "token 0123456789abcdef"}
    assert {door: await knock(door, wrong) for door in doors} == dict.fromkeys(doors, 403)


async def test_the_right_token_opens_everything(
    doors: list[Door], service: Service, knock: Knock, jp_auth_header: dict[str, str]
) -> None:
    found = {door: await knock(door, jp_auth_header) for door in doors}
    expected = {"SOCKET": 101, "GET": 200, "POST": 200}
    for door, status in found.items():
        if "/blobs/" in door.path:
            assert status == 404, "the session has no such blob"
        elif door.path.endswith("/fork"):
            assert status == 201
        elif door.path.endswith("/delete"):
            assert status == 409, "it was renamed on the way here, so it has grown"
        else:
            assert status == expected[door.method], door


async def logged_in(fetch: Fetch) -> dict[str, str]:
    """The headers of a browser that has logged in: cookies, no token."""
    answer = await fetch("api", "status")
    jar: SimpleCookie = SimpleCookie()
    for line in answer.headers.get_list("Set-Cookie"):
        jar.load(line)
    return {"Cookie": "; ".join(f"{name}={found.value}" for name, found in jar.items())}


async def test_a_cookie_without_xsrf_token_changes_nothing(
    doors: list[Door], service: Service, knock: Knock, jp_fetch: Fetch, session: Session
) -> None:
    browser = await logged_in(jp_fetch)
    before = session.last_seq()
    found = {door: await knock(door, browser) for door in doors}
    assert {d: s for d, s in found.items() if d.method == "POST"} == {d: 403 for d in doors if d.method == "POST"}
    assert all(status in (101, 200, 404) for door, status in found.items() if door.method != "POST"), (
        "reading needs the cookie only"
    )
    assert session.last_seq() == before


async def test_a_page_of_another_site_gets_neither_answer_nor_socket(
    doors: list[Door], service: Service, knock: Knock, jp_fetch: Fetch
) -> None:
    browser = {**await logged_in(jp_fetch), "Origin": "https://evil.example", "Referer": "https://evil.example/"}
    assert {await knock(door, browser) for door in doors} <= {403, 404}


async def test_a_read_only_person_reads_everything_and_changes_nothing(
    doors: list[Door],
    service: Service,
    knock: Knock,
    jp_serverapp: ServerApp,
    jp_auth_header: dict[str, str],
    session: Session,
) -> None:
    authorizer = ReadOnly(parent=jp_serverapp)
    authorizer.asked.clear()
    jp_serverapp.web_app.settings["authorizer"] = authorizer
    before = session.last_seq()
    for door in doors:
        status = await knock(door, jp_auth_header)
        assert status == 403 if door.method == "POST" else status in (101, 200, 404), door
        wanted = "write" if door.method == "POST" else "read"
        assert authorizer.asked.pop() == (wanted, "ipyagent"), f"{door} asks for what it does"
    assert session.last_seq() == before


async def test_a_person_who_may_not_use_ipyagent_gets_nothing_of_it(
    doors: list[Door], service: Service, knock: Knock, jp_serverapp: ServerApp, jp_auth_header: dict[str, str]
) -> None:
    jp_serverapp.web_app.settings["authorizer"] = Closed(parent=jp_serverapp)
    assert {door: await knock(door, jp_auth_header) for door in doors} == dict.fromkeys(doors, 403)
