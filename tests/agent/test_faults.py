"""Each fault of a server has a kind, says if the same request may go again, and carries the wait that was asked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ContentFilterError, ModelHTTPError, ModelRequestTimeout
from tests.agent.server import FakeProvider, Fault, Reply

from ipyagent_sessions.agent.models import resolve
from ipyagent_sessions.agent.models.faults import Fault as Meaning
from ipyagent_sessions.agent.models.faults import Kind, classify
from ipyagent_sessions.agent.secrets import Secrets
from ipyagent_sessions.agent.sections import ModelEntry
from ipyagent_sessions.agent.settings import Settings
from ipyagent_sessions.errors import UsageError

HERE = Path(__file__).parent
WORDS = Reply("one two three four", drop_after=2)
GARBAGE = Reply("one two three four", garbage_after=1)
WHOLE = (False,)
STREAMED = (True,)
BOTH = (False, True)

CASES: list[tuple[str, Reply | Fault, tuple[bool, ...], Kind, float | None, bool]] = [
    ("429", Fault(429, kind="rate_limit_error", headers={"retry-after": "7"}), BOTH, "rate_limited", 7.0, True),
    ("429-ms", Fault(429, headers={"retry-after-ms": "1500"}), BOTH, "rate_limited", 1.5, True),
    ("429-silent", Fault(429), BOTH, "rate_limited", None, True),
    ("429-final", Fault(429, headers={"x-should-retry": "false"}), BOTH, "rate_limited", None, False),
    ("402", Fault(402, kind="billing_error"), BOTH, "refused", None, False),
    ("500", Fault(500), BOTH, "server", None, True),
    ("502", Fault(502, body="<html>bad gateway</html>"), BOTH, "server", None, True),
    ("503", Fault(503, headers={"retry-after": "2"}), BOTH, "server", 2.0, True),
    ("529", Fault(529, kind="overloaded_error"), BOTH, "server", None, True),
    ("408", Fault(408), BOTH, "server", None, True),
    ("401", Fault(401, kind="authentication_error"), BOTH, "auth", None, False),
    ("403", Fault(403, kind="permission_error"), BOTH, "auth", None, False),
    ("404", Fault(404, kind="not_found_error"), BOTH, "refused", None, False),
    ("400", Fault(400, kind="invalid_request_error"), BOTH, "refused", None, False),
    ("vllm-context", Fault(400, "This model's maximum context length is 8192 tokens"), BOTH, "context", None, False),
    ("anthropic-context", Fault(400, "prompt is too long: 200001 tokens > 200000"), BOTH, "context", None, False),
    ("llama-context", Fault(400, "the request exceeds the available context size"), BOTH, "context", None, False),
    ("drop", WORDS, STREAMED, "network", None, True),
    ("garbage", GARBAGE, STREAMED, "malformed", None, True),
    ("html", Fault(200, body="<html>hello</html>"), BOTH, "malformed", None, True),
    ("cut", Fault(200, body='{"id": "x", "choices": [{"ind'), BOTH, "malformed", None, True),
]


def settings_for(server: FakeProvider, timeout_s: float = 5) -> Settings:
    gpt = ModelEntry("openai", "gpt-test", base_url=server.openai, timeout_s=timeout_s)
    claude = ModelEntry("anthropic", "claude-test", base_url=server.root, timeout_s=timeout_s)
    return Settings(models={"gpt": gpt, "claude": claude})


async def failing(name: str, settings: Settings, *, stream: bool) -> tuple[Exception, str]:
    """What the request raises, and the text that had come before."""
    agent, text = Agent(resolve(name, settings, folder=HERE, environ={})), ""
    try:
        if not stream:
            await agent.run("hi")
        else:
            async with agent.run_stream("hi") as result:
                async for so_far in result.stream_text(debounce_by=None):
                    text = so_far
    except Exception as error:  # noqa: BLE001  whatever comes is what is asked for here
        return error, text
    raise AssertionError("the request succeeded")


@pytest.mark.parametrize("name", ["gpt", "claude"])
@pytest.mark.parametrize(("entry", "ways", "kind", "wait", "again"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
@pytest.mark.anyio
async def test_a_fault_has_its_kind(
    name: str, entry: Any, ways: tuple[bool, ...], kind: Kind, wait: float | None, again: bool, provider: FakeProvider
) -> None:
    provider.plan = [entry]
    for stream in ways:
        error, _ = await failing(name, settings_for(provider), stream=stream)
        meaning = classify(error)
        assert (meaning.kind, meaning.retry_after_s, meaning.retryable) == (kind, wait, again)
    assert len(provider.seen) == len(ways)  # nobody repeats a request behind our back


@pytest.mark.parametrize(
    ("entry", "meaning"),
    [
        (Fault(429, "buy more", code="insufficient_quota"), Meaning("refused", None, False, "429: buy more")),
        (Fault(400, "too long", code="context_length_exceeded"), Meaning("context", None, False, "400: too long")),
    ],
)
@pytest.mark.anyio
async def test_the_code_of_openai_says_more_than_the_status(entry: Fault, meaning: Meaning, provider: FakeProvider) -> None:
    provider.plan = [entry]
    error, _ = await failing("gpt", settings_for(provider), stream=False)
    assert classify(error) == meaning


@pytest.mark.parametrize("name", ["gpt", "claude"])
@pytest.mark.anyio
async def test_what_had_come_before_a_drop_is_there(name: str, provider: FakeProvider) -> None:
    provider.plan = [WORDS]
    _, text = await failing(name, settings_for(provider), stream=True)
    assert text == "one two "


@pytest.mark.parametrize("name", ["gpt", "claude"])
@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.anyio
async def test_slow_headers_end_with_the_timeout_of_the_settings(name: str, stream: bool, provider: FakeProvider) -> None:
    provider.plan = [Fault(silent=True)]
    error, _ = await failing(name, settings_for(provider, timeout_s=0.2), stream=stream)
    meaning = classify(error)
    assert (meaning.kind, meaning.retryable) == ("network", True)
    assert "timed out" in meaning.message


@pytest.mark.anyio
async def test_a_server_that_is_gone_is_a_network_fault() -> None:
    with FakeProvider() as gone:
        settings = settings_for(gone)
    error, _ = await failing("gpt", settings, stream=False)
    assert classify(error).kind == "network"


@pytest.mark.anyio
async def test_a_date_in_retry_after_is_read_as_seconds_from_now(provider: FakeProvider) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=3600), usegmt=True)
    provider.plan = [Fault(429, headers={"retry-after": later})]
    error, _ = await failing("gpt", settings_for(provider), stream=False)
    assert 3500 < (classify(error).retry_after_s or 0) <= 3600


@pytest.mark.anyio
async def test_a_key_that_the_provider_repeats_is_not_in_the_message(provider: FakeProvider) -> None:
    provider.plan = [Fault(401, "Incorrect API key provided: sk-canary-5e1f")]
    error, _ = await failing("gpt", settings_for(provider), stream=False)
    assert classify(error, scrub=Secrets({"MY_KEY": "sk-canary-5e1f"}).scrub) == Meaning(
        "auth", None, False, "401: Incorrect API key provided: <secret MY_KEY>"
    )


@pytest.mark.parametrize(
    ("error", "kind", "again"),
    [
        (ModelHTTPError(429, "m", retry_after=3), "rate_limited", True),
        (ModelHTTPError(500, "m"), "server", True),
        (ModelHTTPError(425, "m"), "server", True),
        (ModelHTTPError(401, "m"), "auth", False),
        (ModelHTTPError(413, "m"), "context", False),
        (ModelHTTPError(418, "m"), "refused", False),
        (ModelRequestTimeout("m", 3), "network", True),
        (ContentFilterError("filtered"), "refused", False),
        (ConnectionResetError("gone"), "network", True),
        (TimeoutError(), "network", True),
        (UsageError("the script is over"), "other", False),
        (TypeError("a bug"), "other", False),
    ],
)
def test_errors_without_a_server_are_read_too(error: Exception, kind: Kind, again: bool) -> None:
    meaning = classify(error)
    assert (meaning.kind, meaning.retryable) == (kind, again)
    assert meaning.message


def add(a: int, b: int) -> int:
    """A tool."""
    return a + b


@pytest.mark.anyio
async def test_calls_of_tools_arrive_over_both_protocols(provider: FakeProvider) -> None:
    for name in ("gpt", "claude"):
        for stream in BOTH:
            provider.plan = [Reply("Looking.", calls=(("add", {"a": 2, "b": 3}),)), Reply("Five.")]
            agent = Agent(resolve(name, settings_for(provider), folder=HERE, environ={}), tools=[add])
            if stream:
                async with agent.iter("2 + 3?") as run:
                    async for node in run:
                        if Agent.is_model_request_node(node):
                            async with node.stream(run.ctx) as events:
                                async for _ in events:
                                    pass
                assert run.result is not None
                assert run.result.output == "Five."
            else:
                assert (await agent.run("2 + 3?")).output == "Five."
            assert "5" in repr(provider.seen[-1].body["messages"][-1])
