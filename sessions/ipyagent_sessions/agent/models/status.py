"""Which models are usable here, and why the others are not (R236, R239, R240, R242).

Looked at afresh each time: nothing is remembered.  Nothing is asked outside this machine, so a key is seen but not tried.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import json
import os
from collections.abc import Mapping
from typing import Final
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from msgspec import Struct

from ipyagent_sessions.agent.models.naming import Choice, chosen, how_to_set
from ipyagent_sessions.agent.sections import PROVIDERS, Provider
from ipyagent_sessions.agent.settings import Settings
from ipyagent_sessions.errors import IpyagentError

_PACKAGES: Final[Mapping[Provider, str]] = {"openai": "openai", "anthropic": "anthropic", "ollama": "openai"}
_PATIENCE_S: Final = 0.5


class ModelStatus(Struct, frozen=True):
    """A line of `%agent models`: a name, if it can be used here, why or why not, and how to use it or make it usable."""

    name: str
    usable: bool
    why: str
    how: str


def listed(
    settings: Settings, environ: Mapping[str, str] = os.environ, *, patience_s: float = _PATIENCE_S
) -> list[ModelStatus]:
    """The settings' own names, the providers, and the two that need no provider.

    A server on this machine is asked what it serves, for at most `patience_s` seconds each.
    """
    names = [*settings.models, *(f"{provider}:NAME" for provider in PROVIDERS)]
    rows = [_status(name, settings, environ, patience_s) for name in names]
    return [
        *rows,
        ModelStatus("scripted:FILE", True, "plays turns from a YAML file", "--model scripted:FILE"),
        ModelStatus("cassette:SESSION", True, "answers from a recorded session", "--model cassette:SESSION"),
    ]


def _status(name: str, settings: Settings, environ: Mapping[str, str], patience_s: float) -> ModelStatus:
    try:
        choice = chosen(name, settings, environ)
    except IpyagentError as error:
        return ModelStatus(name, False, error.message, error.hint)
    package = _PACKAGES[choice.entry.provider]
    if importlib.util.find_spec(package) is None:
        return ModelStatus(name, False, f"the package {package} is missing", f"pip install {package}")
    has_key = bool(choice.key_env and environ.get(choice.key_env, "").strip())
    if choice.needs_key and not has_key:
        return ModelStatus(name, False, f"{choice.key_env} is not set", how_to_set(choice))
    key = f"{choice.key_env} is set (not tried)" if has_key else "needs no key"
    if choice.base_url is None:
        return ModelStatus(name, True, key, f"--model {name}")
    return _reached(name, choice, key, patience_s)


def _reached(name: str, choice: Choice, key: str, patience_s: float) -> ModelStatus:
    url = choice.base_url or ""
    address = f"{urlsplit(url).scheme}://{urlsplit(url).netloc.rpartition('@')[2]}"
    if not _on_this_machine(urlsplit(url).hostname or ""):
        return ModelStatus(name, True, f"{key}; {address} is not on this machine and was not asked", f"--model {name}")
    try:
        served = _served(url, patience_s)
    except (OSError, ValueError):  # refused, timed out, not HTTP
        start = (
            "start it with `ollama serve`" if choice.entry.provider == "ollama" else "start the server, or correct base_url"
        )
        return ModelStatus(name, False, f"no server answers at {address}", start)
    offers = f"; it serves {', '.join(served[:8])}" if served else ""
    first = f"{choice.entry.provider}:{served[0]}" if served and choice.alias is None else name
    return ModelStatus(name, True, f"{address} answers{offers}", f"--model {first}")


def _on_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _served(url: str, patience_s: float) -> list[str]:
    """The names of the models a server lists; none when it answers but has no list.  Raises OSError when nobody answers."""
    asked = Request(f"{url.rstrip('/')}/models", headers={"Accept": "application/json"})
    try:
        # without proxies: one in the environment would carry the question off this machine
        with build_opener(ProxyHandler({})).open(asked, timeout=patience_s) as answer:
            document = json.loads(answer.read(1_000_000))
    except URLError as error:
        if hasattr(error, "code"):  # an HTTP status: somebody is there
            return []
        raise
    entries = document.get("data", []) if isinstance(document, dict) else []
    return [str(entry["id"]) for entry in entries if isinstance(entry, dict) and "id" in entry]
