"""Which model a name means, and making it.

A name is `openai:NAME`, `anthropic:NAME`, `ollama:NAME`, `scripted:FILE`, `cassette:SESSION`, or a name of your own from the
settings.  A model made here sends each request once: the engine retries, and logs each attempt.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from msgspec import Struct

from ipyagent_sessions.agent.sections import KEYS, PROVIDERS, ModelEntry, Provider
from ipyagent_sessions.agent.settings import Settings
from ipyagent_sessions.errors import UsageError

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings

    from ipyagent_sessions.agent.models.cassette import Exchange

Recording = Callable[[str], "Iterable[Exchange]"]
"""Gives the exchanges of a session by its id or name."""

OTHERS: Final = ("scripted", "cassette")
ADDRESSES: Final[Mapping[Provider, str]] = {
    "openai": "OPENAI_BASE_URL",
    "anthropic": "ANTHROPIC_BASE_URL",
    "ollama": "OLLAMA_BASE_URL",
}
OLLAMA: Final = "http://localhost:11434/v1"
_NO_KEY: Final = "no-key-needed"  # the clients insist on one


class Choice(Struct, frozen=True):
    """What a name means before anything is made.  `alias` is the name of your own, if it was one.

    `base_url` is None for the provider's own address; `foreign` is true when it comes from the settings: then the key of the
    provider's variable is never sent there.  `key_env` names the variable of the key, `needs_key` says if it has to be set.
    """

    entry: ModelEntry
    alias: str | None
    base_url: str | None
    foreign: bool
    key_env: str | None
    needs_key: bool


def chosen(name: str, settings: Settings, environ: Mapping[str, str] = os.environ) -> Choice:
    """What a model's name means, for the three providers.  Raises UsageError for an unknown name, ConfigError for an address
    whose variable is not set.
    """
    entry, alias = settings.models.get(name), name
    if entry is None:
        provider, colon, model = name.partition(":")
        if not colon or not model or provider not in PROVIDERS:
            raise _unknown(name, settings)
        return _from_environment(ModelEntry(PROVIDERS[PROVIDERS.index(provider)], model), None, environ)
    if entry.base_url is None:
        return _from_environment(entry, alias, environ)
    base_url = settings.text(entry.base_url, ("models", alias, "base_url"), environ)
    return Choice(entry, alias, base_url, True, entry.api_key_env, entry.api_key_env is not None)


def resolve(
    name: str | None,
    settings: Settings,
    *,
    folder: Path,
    recording: Recording | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Model:
    """The model that `name` means; None is the default model of the settings.

    `folder` is where a script's relative path starts; `recording` gives the exchanges of a session.  Raises UsageError, in one
    line, for an unknown name, a missing key, package, file or recording.
    """
    name = name or settings.model
    if not name:
        raise UsageError(
            "no model was chosen", hint="add --model openai:NAME, or `model: NAME` to ipyagent.yaml; see %agent models"
        )
    kind, _, rest = name.partition(":")
    if kind == "scripted" and rest:
        from ipyagent_sessions.agent.models.scripted import ScriptedModel

        return ScriptedModel.from_file(folder / Path(rest).expanduser())
    if kind == "cassette" and rest:
        from ipyagent_sessions.agent.models.cassette import CassetteModel

        if recording is None:
            raise UsageError(f"{name}: there is no store to read a recording from here")
        return CassetteModel(rest, recording(rest), scrub=settings.known_secrets(environ).scrub)
    choice = chosen(name, settings, environ)
    key = environ.get(choice.key_env, "").strip() if choice.key_env else ""
    if choice.needs_key and not key:
        raise UsageError(f"{name} needs a key: the environment variable {choice.key_env} is not set", hint=how_to_set(choice))
    try:
        return _made(choice, key or _NO_KEY)
    except ImportError as error:
        raise UsageError(
            f"{name}: a package is missing: {error.name or error}", hint="pip install ipyagent brings it"
        ) from error


def how_to_set(choice: Choice) -> str:
    """How to give the key of a choice."""
    return f"set {choice.key_env} before the kernel starts, or with %env in a cell that you do not save"


def _from_environment(entry: ModelEntry, alias: str | None, environ: Mapping[str, str]) -> Choice:
    """The provider's own address, or the one that its own variable names."""
    base_url = environ.get(ADDRESSES[entry.provider]) or None
    if entry.provider == "ollama":
        base_url = _with_path(base_url or OLLAMA)
    own_key = entry.api_key_env or KEYS[entry.provider]
    return Choice(entry, alias, base_url, False, own_key, entry.api_key_env is not None or base_url is None)


def _with_path(url: str) -> str:
    return url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/v1"


def _made(choice: Choice, key: str) -> Model:
    name, url = choice.entry.name, choice.base_url
    sent_once: ModelSettings = {"max_retries": 0}
    if choice.entry.timeout_s is not None:
        sent_once["timeout"] = choice.entry.timeout_s
    if choice.entry.provider == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel(name, provider=AnthropicProvider(api_key=key, base_url=url), settings=sent_once)
    if choice.entry.provider == "ollama":
        from pydantic_ai.models.ollama import OllamaModel
        from pydantic_ai.providers.ollama import OllamaProvider

        return OllamaModel(name, provider=OllamaProvider(base_url=_with_path(url or OLLAMA), api_key=key), settings=sent_once)
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    if choice.foreign and url is not None:
        # named after its address: a price is looked up under it, and what one service signed is not sent to another
        foreign = OpenAICompatibleProvider(urlsplit(url).netloc.rpartition("@")[2], base_url=url, api_key=key)
        return OpenAIChatModel(name, provider=foreign, settings=sent_once)
    provider = OpenAIProvider(base_url=url, api_key=key)
    # OpenAI itself is spoken to by its Responses API, as pydantic-ai does; what stands in for it knows chat completions
    kind = OpenAIResponsesModel if url is None else OpenAIChatModel
    return kind(name, provider=provider, settings=sent_once)


def _unknown(name: str, settings: Settings) -> UsageError:
    provider, colon, model = name.partition(":")
    kinds = [*PROVIDERS, *OTHERS]
    if colon and not model and provider in kinds:
        return UsageError(f"{name!r} names no model", hint=f"write {provider}:NAME")
    if not colon:
        near = get_close_matches(name, settings.models, 1) or [f"{kind}:NAME" for kind in get_close_matches(name, kinds, 1)]
        own = ", ".join(settings.models) or "none"
        hint = (
            f"did you mean {near[0]}?" if near else f"write provider:name, or one of your own names ({own}); see %agent models"
        )
        return UsageError(f"{name!r} is not the name of a model", hint=hint)
    near = get_close_matches(provider, kinds, 1)
    hint = f"did you mean {near[0]}:{model}?" if near else f"known here: {', '.join(kinds)}; or bring an Agent of your own"
    return UsageError(f"{name!r}: no provider is called {provider!r}", hint=hint)
