"""What every route does: authenticate, authorise, read arguments with care, answer JSON, translate errors.

A handler's method carries `route`, which does the first two and the last; there is no other way to answer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final, TypeVar, cast

import msgspec
from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import APIHandler
from msgspec import Struct
from tornado import web

from ipyagent_lab.service import Service
from ipyagent_sessions.serving import problems
from ipyagent_sessions.serving.arguments import Arguments
from ipyagent_sessions.serving.finding import parse
from ipyagent_sessions.serving.problems import Problem, TooLarge

RESOURCE: Final = "ipyagent"
"""The name under which an authorizer decides: `read` for GET and the socket, `write` for POST."""

SETTING: Final = "ipyagent_service"
MAX_BODY: Final = 64 * 1024

S = TypeVar("S", bound=Struct)
Method = TypeVar("Method", bound=Callable[..., Any])
_permits: Any = authorized  # its type variables cannot be solved for an argument that is not a function


def route(action: str) -> Callable[[Method], Method]:
    """A method that only a person who may do `action` (read or write) reaches, and whose errors become answers."""

    def wrap(method: Method) -> Method:
        @functools.wraps(method)
        async def answered(self: Handler, *args: Any, **kwargs: Any) -> None:
            try:
                await method(self, *args, **kwargs)
            except web.HTTPError:
                raise
            except Exception as error:  # noqa: BLE001  # the edge: every error becomes an answer, unknown ones without details
                self.fail(error)

        guarded: Any = web.authenticated(_permits(action, RESOURCE)(answered))
        return cast(Method, guarded)

    return wrap


def socket_route(method: Method) -> Method:
    """The `get` of a socket, which only a person who may read reaches."""
    guarded: Any = ws_authenticated(_permits("read", RESOURCE)(method))
    return cast(Method, guarded)


class Handler(APIHandler):
    """Base of the routes."""

    auth_resource = RESOURCE

    @property
    def service(self) -> Service:
        found: Service = self.settings[SETTING]
        return found

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")

    # Answers

    async def reply(self, body: Struct, status: int = HTTPStatus.OK) -> None:
        """Answer with `body` as JSON."""
        self.set_status(status)
        await self.finish(msgspec.json.encode(body))

    def fail(self, error: Exception) -> None:
        """Answer with what may be told of `error`."""
        if not problems.is_known(error):
            self.log.error("ipyagent: %s %s failed", self.request.method, self.request.path, exc_info=error)
        self._problem(problems.problem_of(error, self.service.root))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """The server's own refusals (not authenticated, not authorised, no XSRF token), in the same shape."""
        try:
            phrase = HTTPStatus(status_code).phrase
        except ValueError:
            phrase = "Error"
        error = kwargs.get("exc_info", (None, None))[1]
        text = error.log_message if isinstance(error, web.HTTPError) and error.log_message else phrase
        self._problem(Problem(phrase.replace(" ", ""), text, "", status_code))

    def _problem(self, problem: Problem) -> None:
        self.set_status(problem.status)
        _ = self.finish(msgspec.json.encode(problem))

    # Arguments

    @property
    def arguments(self) -> Arguments:
        """What the address says behind its `?`."""
        return Arguments(self.request.query)

    def body(self, kind: type[S]) -> S:
        """The body, checked against `kind`.  Raises UsageError and TooLarge."""
        raw = self.request.body
        if len(raw) > MAX_BODY:
            raise TooLarge(f"the body has {len(raw)} bytes, {MAX_BODY} are allowed")
        return parse(raw, kind, "the body")
