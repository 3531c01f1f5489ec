"""The sections of the settings: their shapes, and how they are read from a parsed YAML document.

An unknown key or a value of the wrong kind is a ConfigError that names its path.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeVar

from msgspec import Struct

from ipyagent_sessions.agent.tools.mcp_config import Server, check_name
from ipyagent_sessions.config import SECTIONS, mapping, seconds, sequence
from ipyagent_sessions.errors import ConfigError
from ipyagent_sessions.run.definitions import EFFECTS, Effect

Answer = Literal["ask", "auto", "never"]
"""What happens to a call: a person is asked, it runs, or it is refused."""

Provider = Literal["openai", "anthropic", "ollama"]

ANSWERS: Final[tuple[Answer, ...]] = ("ask", "auto", "never")
PROVIDERS: Final[tuple[Provider, ...]] = ("openai", "anthropic", "ollama")
KEYS: Final[Mapping[Provider, str]] = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "ollama": "OLLAMA_API_KEY",
}
DEFAULT_RETRIES: Final = 4
_COUNT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kM]?)")
_T = TypeVar("_T")


class ModelEntry(Struct, frozen=True):
    """A model under a name of your own.

    `base_url` is the address of a server that speaks the provider's protocol.  `api_key_env` names the variable of its key;
    None is the provider's own variable, or no key when there is a `base_url`.  `max_retries` is how often the engine sends
    a request again that failed in a passing way; `timeout_s` how long it waits for the server, in seconds.
    """

    provider: Provider
    name: str
    base_url: str | None = None
    api_key_env: str | None = None
    max_retries: int = DEFAULT_RETRIES
    timeout_s: float | None = None


class Permissions(Struct, frozen=True):
    """What happens to a tool call: `tools` by name goes before `effects`.  A request to a person is denied after `expires_s`
    seconds without an answer; None is never."""

    tools: Mapping[str, Answer] = {}
    effects: Mapping[str, Answer] = {}
    expires_s: float | None = None

    def answer(self, tool: str, effect: Effect) -> Answer:
        """What the settings say about a call of `tool`; a person is asked where they say nothing."""
        return self.tools.get(tool) or self.effects.get(effect, "ask")


class Allowance(Struct, frozen=True):
    """How much may be used; None is no limit.  `usd` in US dollars, `tokens` in and out together, `steps` in model requests,
    `time_s` in seconds."""

    usd: float | None = None
    tokens: int | None = None
    steps: int | None = None
    time_s: float | None = None


class Budget(Struct, frozen=True):
    """Limits of one task and of its whole session."""

    task: Allowance = Allowance()
    session: Allowance = Allowance()


class Tools(Struct, frozen=True):
    """`without` names built-in tools to leave out; `workspace` is the folder that file tools stay in, beside the notebook."""

    without: tuple[str, ...] = ()
    workspace: str = "."


def read(document: Any) -> dict[str, Any]:
    """The fields of `Settings` that a document gives.  Raises ConfigError with the path of the first thing that is wrong."""
    root = _section(document, "(top)", {*SECTIONS})
    budget = _section(root.get("budget"), "budget", {"task", "session"})
    return {
        "model": _text(root.get("model"), "model"),
        "models": _each(root.get("models"), "models", _model),
        "mcp": _each(root.get("mcp"), "mcp", _server),
        "permissions": _permissions(root.get("permissions")),
        "budget": Budget(*(allowance(budget.get(part), f"budget.{part}") for part in ("task", "session"))),
        "tools": _tools(root.get("tools")),
        "secrets": _names(root.get("secrets"), "secrets"),
    }


def allowance(value: Any, where: str) -> Allowance:
    """Limits from a mapping with `usd`, `tokens` (50k, 2M), `steps`, `time` (10m).  Raises ConfigError naming `where`."""
    block = _section(value, where, {"usd", "tokens", "steps", "time"})
    time = block.get("time")
    return Allowance(
        _money(block.get("usd"), f"{where}.usd"),
        _count(block.get("tokens"), f"{where}.tokens"),
        _count(block.get("steps"), f"{where}.steps"),
        None if time is None else seconds(time, f"{where}.time"),
    )


def _model(value: Any, where: str) -> ModelEntry:
    if ":" in where.removeprefix("models."):
        raise ConfigError(f"{where}: a name of your own has no colon", hint="with one it would look like provider:name")
    entry = _section(value, where, {"provider", "name", "base_url", "api_key_env", "max_retries", "timeout"})
    timeout, retries = entry.get("timeout"), _count(entry.get("max_retries"), f"{where}.max_retries")
    return ModelEntry(
        provider=_one_of(_needed(entry, "provider", where), f"{where}.provider", PROVIDERS),
        name=_needed(entry, "name", where),
        base_url=_text(entry.get("base_url"), f"{where}.base_url"),
        api_key_env=_text(entry.get("api_key_env"), f"{where}.api_key_env"),
        max_retries=DEFAULT_RETRIES if retries is None else retries,
        timeout_s=None if timeout is None else seconds(timeout, f"{where}.timeout"),
    )


def _server(value: Any, where: str) -> Server:
    check_name(where.partition(".")[2])
    entry = _section(value, where, {"command", "args", "env", "cwd", "url", "headers", "effects", "approval"})
    if ("command" in entry) == ("url" in entry):
        raise ConfigError(
            f"{where}: an MCP server has either a command or a url", hint="command starts it, url is its address"
        )
    other = {"headers"} if "command" in entry else {"args", "env", "cwd"}
    if odd := sorted(other & entry.keys()):
        raise ConfigError(f"{where}.{odd[0]}: has no meaning beside {'command' if 'command' in entry else 'url'}")
    return Server(
        command=_text(entry.get("command"), f"{where}.command"),
        args=[*_names(entry.get("args"), f"{where}.args")],
        env=_each(entry.get("env"), f"{where}.env", _scalar),
        url=_text(entry.get("url"), f"{where}.url"),
        headers=_each(entry.get("headers"), f"{where}.headers", _scalar),
        effects=_each(entry.get("effects"), f"{where}.effects", _effect),
        cwd=_text(entry.get("cwd"), f"{where}.cwd"),
        approval=None if entry.get("approval") is None else _answer(entry["approval"], f"{where}.approval"),
    )


def _permissions(value: Any) -> Permissions:
    block = _section(value, "permissions", {"tools", "effects", "expires"})
    expires = block.get("expires")
    effects: Mapping[str, Answer] = _each(block.get("effects"), "permissions.effects", _answer)
    for effect in effects:
        _one_of(effect, f"permissions.effects.{effect}", EFFECTS)
    return Permissions(
        _each(block.get("tools"), "permissions.tools", _answer),
        effects,
        None if expires is None else seconds(expires, "permissions.expires"),
    )


def _tools(value: Any) -> Tools:
    block = _section(value, "tools", {"without", "workspace"})
    return Tools(_names(block.get("without"), "tools.without"), _text(block.get("workspace"), "tools.workspace") or ".")


def _section(value: Any, where: str, allowed: set[str]) -> dict[str, Any]:
    """A mapping with known keys; nothing is an empty one, and a key with nothing is as if it were not there."""
    block = {} if value is None else value
    if isinstance(block, dict):
        for key in block:
            if key not in allowed and (near := get_close_matches(str(key), allowed, 1)):
                raise ConfigError(f"{where}.{key}: unknown key", hint=f"did you mean {near[0]}?")
    return {key: inner for key, inner in mapping(block, where, allowed).items() if inner is not None}


def _each(value: Any, where: str, reader: Callable[[Any, str], _T]) -> dict[str, _T]:
    if value is not None and not isinstance(value, dict):
        raise ConfigError(f"{where}: must be a mapping, not {type(value).__name__}")
    return {str(key): reader(inner, f"{where}.{key}") for key, inner in (value or {}).items()}


def _names(value: Any, where: str) -> tuple[str, ...]:
    return tuple(_scalar(item, f"{where}[{i}]") for i, item in enumerate(sequence([] if value is None else value, where)))


def _needed(entry: dict[str, Any], key: str, where: str) -> str:
    text = _text(entry.get(key), f"{where}.{key}")
    if not text:
        raise ConfigError(f"{where}: {key} is missing", hint=f"add {key}")
    return text


def _text(value: Any, where: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{where}: must be a text, not {type(value).__name__}")
    return value


def _scalar(value: Any, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(f"{where}: must be a text, not {type(value).__name__}", hint="put it in quotes")
    return str(value)


def _one_of(value: Any, where: str, known: tuple[_T, ...]) -> _T:
    if value not in known:
        raise ConfigError(f"{where}: {value!r} is not known", hint=", ".join(str(item) for item in known))
    return known[known.index(value)]


def _answer(value: Any, where: str) -> Answer:
    return _one_of(value, where, ANSWERS)


def _effect(value: Any, where: str) -> Effect:
    return _one_of(value, where, EFFECTS)


def _money(value: Any, where: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= sys.float_info.max:
        raise ConfigError(f"{where}: {value!r} is not an amount of money", hint="write US dollars: 1 or 0.25")
    return float(value)


def _count(value: Any, where: str) -> int | None:
    if value is None:
        return None
    match = None if isinstance(value, bool) else _COUNT.fullmatch(str(value))
    number = float(match[1]) * {"": 1, "k": 1000, "M": 1_000_000}[match[2]] if match else math.inf
    if number == math.inf:
        raise ConfigError(f"{where}: {value!r} is not a number", hint="write 100, 50k or 2M")
    return round(number)
