"""A name means a model; what is missing is one clear error; keys go where they belong and are shown nowhere."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.usage import RequestUsage
from tests.agent.server import FakeProvider, Fault, Reply

from ipyagent_sessions.agent.models import ModelStatus, cost_usd, listed, resolve
from ipyagent_sessions.agent.sections import ModelEntry
from ipyagent_sessions.agent.settings import Settings
from ipyagent_sessions.errors import ConfigError, IpyagentError, UsageError

HERE = Path(__file__).parent
CANARY = "sk-canary-5e1f-0002"
VARIABLES: tuple[str, ...] = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OLLAMA_API_KEY")
ADDRESSES = ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "OLLAMA_BASE_URL")


@pytest.fixture(autouse=True)
def _no_variables_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, *ADDRESSES):
        monkeypatch.delenv(name, raising=False)


async def ask(name: str, settings: Settings, environ: Mapping[str, str] | None = None) -> str:
    return (await Agent(resolve(name, settings, folder=HERE, environ=environ or {})).run("hi")).output


@pytest.mark.parametrize("name", ["gpt", "claude"])
@pytest.mark.anyio
async def test_a_name_of_our_own_reaches_the_server_of_the_settings(
    name: str, settings: Settings, provider: FakeProvider
) -> None:
    assert await ask(name, settings) == "Hello world"
    assert provider.seen[0].body["model"] == f"{name}-test"


@pytest.mark.parametrize("name", ["gpt", "claude"])
@pytest.mark.anyio
async def test_a_stream_comes_word_by_word_with_its_usage(name: str, settings: Settings) -> None:
    agent = Agent(resolve(name, settings, folder=HERE, environ={}))
    async with agent.run_stream("hi") as result:
        pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
    assert [piece for piece in pieces if piece] == ["Hello ", "world"]
    assert (result.usage.input_tokens, result.usage.output_tokens) == (11, 7)


@pytest.mark.anyio
async def test_no_key_of_the_environment_goes_to_an_address_of_the_settings(
    settings: Settings, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, f"{CANARY}-{name}")
    import os

    await ask("gpt", settings, os.environ)
    await ask("claude", settings, os.environ)
    assert CANARY not in repr(provider.seen)


@pytest.mark.anyio
async def test_the_key_that_the_settings_name_is_sent(provider: FakeProvider) -> None:
    entry = ModelEntry("openai", "x", base_url=provider.openai, api_key_env="MY_KEY")
    assert await ask("own", Settings(models={"own": entry}), {"MY_KEY": CANARY}) == "Hello world"
    assert provider.seen[0].headers["authorization"] == f"Bearer {CANARY}"


@pytest.mark.anyio
async def test_a_server_of_your_own_is_not_priced_as_the_provider(provider: FakeProvider) -> None:
    settings = Settings(models={"own": ModelEntry("openai", "gpt-4o", base_url=provider.openai)})
    answer = (await Agent(resolve("own", settings, folder=HERE, environ={})).run("hi")).all_messages()[-1]
    assert isinstance(answer, ModelResponse)
    assert answer.provider_name == provider.root.removeprefix("http://")
    assert cost_usd(answer) is None


@pytest.mark.parametrize(
    ("name", "variable", "path"),
    [("openai:m", "OPENAI_BASE_URL", "/v1"), ("anthropic:m", "ANTHROPIC_BASE_URL", ""), ("ollama:m", "OLLAMA_BASE_URL", "")],
)
@pytest.mark.anyio
async def test_the_providers_own_variable_names_an_address_and_needs_no_key(
    name: str, variable: str, path: str, provider: FakeProvider
) -> None:
    assert await ask(name, Settings(), {variable: provider.root + path}) == "Hello world"
    assert provider.seen[0].body["model"] == "m"


def test_openai_itself_is_spoken_to_by_responses_and_others_by_chat_completions(settings: Settings) -> None:
    assert isinstance(resolve("openai:m", Settings(), folder=HERE, environ={"OPENAI_API_KEY": CANARY}), OpenAIResponsesModel)
    assert isinstance(resolve("gpt", settings, folder=HERE, environ={}), OpenAIChatModel)


@pytest.mark.anyio
async def test_a_failed_request_is_sent_once(settings: Settings, provider: FakeProvider) -> None:
    provider.plan = [Fault(status=500), Reply("too late")]
    with pytest.raises(Exception, match="it broke"):
        await ask("gpt", settings)
    assert len(provider.seen) == 1


def test_the_default_model_is_that_of_the_settings(settings: Settings) -> None:
    assert resolve(None, Settings(model="gpt", models=settings.models), folder=HERE, environ={}).model_name == "gpt-test"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (None, "no model was chosen; add --model"),
        ("opena:gpt", "no provider is called 'opena'; did you mean openai:gpt?"),
        ("antropic", "'antropic' is not the name of a model; did you mean anthropic:NAME?"),
        ("gtp", "'gtp' is not the name of a model; did you mean gpt?"),
        ("zzz", "write provider:name, or one of your own names (gpt, claude)"),
        ("gemini:x", "no provider is called 'gemini'; known here: openai, anthropic, ollama, scripted, cassette"),
        ("openai:", "'openai:' names no model; write openai:NAME"),
        ("scripted:", "'scripted:' names no model; write scripted:NAME"),
        ("openai:gpt-5", "openai:gpt-5 needs a key: the environment variable OPENAI_API_KEY is not set"),
        ("anthropic:x", "anthropic:x needs a key: the environment variable ANTHROPIC_API_KEY is not set"),
        ("scripted:absent.yaml", "there is no script"),
        ("cassette:abc", "there is no store to read a recording from here"),
    ],
)
def test_what_is_missing_is_one_clear_error(name: str | None, says: str, settings: Settings) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(name, settings, folder=HERE, environ={})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_address_whose_variable_is_not_set_names_the_variable() -> None:
    settings = Settings(models={"own": ModelEntry("openai", "x", base_url="${LLM_URL}/v1")}, origins={("models",): "a.yaml"})
    with pytest.raises(ConfigError, match=r"a\.yaml: models\.own\.base_url: the environment variable LLM_URL is not set"):
        resolve("own", settings, folder=HERE, environ={})


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai.models.anthropic", None)
    with pytest.raises(UsageError, match="a package is missing"):
        resolve("claude", settings, folder=HERE, environ={})


def test_a_key_is_in_no_repr_and_no_status() -> None:
    environ = dict.fromkeys(VARIABLES, CANARY)
    for name in ("openai:m", "anthropic:m", "ollama:m"):
        model = resolve(name, Settings(), folder=HERE, environ=environ)
        assert CANARY not in repr(model) + str(model) + repr(model.settings)
    assert CANARY not in repr(listed(Settings(), environ, patience_s=0.01))


def rows(settings: Settings, environ: dict[str, str]) -> dict[str, ModelStatus]:
    return {row.name: row for row in listed(settings, environ, patience_s=2)}


def test_the_list_says_what_is_usable_and_why_the_others_are_not(settings: Settings, provider: FakeProvider) -> None:
    with FakeProvider() as gone:
        address = gone.root
    entry = ModelEntry("openai", "x", base_url="https://llm.example.org/v1", api_key_env="MY_KEY")
    own = {**settings.models, "far": entry, "lost": ModelEntry("openai", "x", base_url="${LLM_URL}")}
    before = rows(Settings(models=own), {"OLLAMA_BASE_URL": address})
    assert not before["openai:NAME"].usable
    assert before["openai:NAME"].why == "OPENAI_API_KEY is not set"
    assert before["openai:NAME"].how.startswith("set OPENAI_API_KEY")
    assert not before["ollama:NAME"].usable
    assert before["ollama:NAME"].why == f"no server answers at {address}"
    assert before["far"].why == "MY_KEY is not set"
    assert "LLM_URL is not set" in before["lost"].why
    assert before["gpt"].usable
    assert before["gpt"].why == f"{provider.root} answers; it serves tiny, small"
    assert before["scripted:FILE"].usable
    after = rows(Settings(models=own), {"OPENAI_API_KEY": "k", "MY_KEY": "k", "OLLAMA_BASE_URL": provider.root})
    assert after["openai:NAME"].usable
    assert after["far"].why == "MY_KEY is set (not tried); https://llm.example.org is not on this machine and was not asked"
    assert after["ollama:NAME"] == ModelStatus(
        "ollama:NAME", True, f"{provider.root} answers; it serves tiny, small", "--model ollama:tiny"
    )


def test_a_proxy_is_not_asked_about_this_machine(
    provider: FakeProvider, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeProvider() as gone:
        monkeypatch.setenv("http_proxy", gone.root)
    assert rows(settings, {})["gpt"].usable


def test_what_is_listed_as_usable_resolves_and_the_rest_does_not(settings: Settings) -> None:
    for environ in ({}, dict.fromkeys(VARIABLES, "k")):
        for row in listed(settings, environ, patience_s=0.01):
            if row.name.startswith(("scripted", "cassette", "ollama", "claude", "gpt")):
                continue
            try:
                resolve(row.name, settings, folder=HERE, environ=environ)
            except IpyagentError:
                assert not row.usable
            else:
                assert row.usable


def test_a_price_is_known_or_none() -> None:
    usage = RequestUsage(input_tokens=1000, output_tokens=100)

    def priced(model: str, provider: str, url: str | None = None) -> float | None:
        return cost_usd(
            ModelResponse([TextPart("x")], usage=usage, model_name=model, provider_name=provider, provider_url=url)
        )

    assert (priced("gpt-4o", "openai") or 0) > 0
    assert (priced("claude-sonnet-4-5", "anthropic") or 0) > 0
    assert priced("gpt-4o", "127.0.0.1:8080", "http://127.0.0.1:8080/v1/") is None
    assert priced("tiny", "ollama", "http://localhost:11434/v1/") is None
    assert priced("scripted:demo", "scripted") is None
    assert cost_usd(ModelResponse([TextPart("x")])) is None
    assert (
        cost_usd(ModelResponse([], usage=RequestUsage(unmeasured_requests=1), model_name="gpt-4o", provider_name="openai"))
        is None
    )


def test_naming_and_listing_import_no_client() -> None:
    code = (
        "import sys; from pathlib import Path; from ipyagent_sessions.agent.models import listed; "
        "from ipyagent_sessions.agent.settings import Settings; listed(Settings(), {}, patience_s=0.01); "
        "print([name for name in ('pydantic_ai', 'openai', 'anthropic', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
