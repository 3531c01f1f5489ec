"""Which MCP servers there are: a mapping from names to how each is reached, and what its tools do to the world.

    weather:
      command: python
      args: [-m, weather_server]
      env: {WEATHER_KEY: "${WEATHER_KEY}"}
      effects: {forecast: none, subscribe: irreversible}
      approval: ask
    tickets:
      url: https://tickets.example.org/mcp
      headers: {Authorization: "Bearer ${TICKETS_TOKEN}"}

`${NAME}` stands for a variable of the environment, so that no secret has to stand in a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from ipyagent_sessions.agent.tools.declare import Approval
from ipyagent_sessions.errors import ConfigError, UsageError
from ipyagent_sessions.run.definitions import Effect

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,32}")
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Server(Struct, frozen=True, forbid_unknown_fields=True):
    """One server: a command to start, or a URL.  `effects` are by the server's own names for its tools; `cwd` is the workspace
    unless given; `approval` is for all its tools."""

    command: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    effects: dict[str, Effect] = {}
    approval: Approval | None = None


def servers(config: Mapping[str, Any]) -> dict[str, Server]:
    """The servers of a parsed mapping.  Raises ConfigError that names the key."""
    found: dict[str, Server] = {}
    for name, entry in config.items():
        check_name(str(name))
        try:
            server = msgspec.convert(entry, Server)
        except msgspec.ValidationError as error:
            fields = ", ".join(Server.__struct_fields__)
            raise ConfigError(f"mcp.{name}: {error}", hint=f"its keys are {fields}") from None
        if (server.command is None) == (server.url is None):
            raise ConfigError(f"mcp.{name}: one of command and url is needed", hint="command starts a server, url reaches one")
        found[str(name)] = server
    return found


def check_name(name: str) -> None:
    """Raise ConfigError unless `name` may begin the names of a server's tools."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"mcp: {name!r} is no name for a server", hint="letters, digits, _ and -, at most 32")


def filled(server: Server, environment: Mapping[str, str]) -> Server:
    """`server` with variables of the environment in their places.  Raises UsageError naming one that is not set."""

    def text(template: str) -> str:
        return _VARIABLE.sub(lambda match: _variable(match[1], environment), template)

    return msgspec.structs.replace(
        server,
        command=None if server.command is None else text(server.command),
        url=None if server.url is None else text(server.url),
        args=[text(part) for part in server.args],
        env={name: text(value) for name, value in server.env.items()},
        headers={name: text(value) for name, value in server.headers.items()},
    )


def _variable(name: str, environment: Mapping[str, str]) -> str:
    value = environment.get(name)
    if value is None:
        raise UsageError(f"the variable {name} is not set")
    return value
