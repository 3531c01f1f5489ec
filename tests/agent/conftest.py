"""A provider on loopback, and settings without any file of this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.agent.server import FakeProvider

from ipyagent_sessions.agent.sections import ModelEntry
from ipyagent_sessions.agent.settings import Settings


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as server:
        yield server


@pytest.fixture
def settings(provider: FakeProvider) -> Settings:
    """Two names of our own, `gpt` and `claude`, for the provider on loopback."""
    gpt = ModelEntry("openai", "gpt-test", base_url=provider.openai, timeout_s=5)
    claude = ModelEntry("anthropic", "claude-test", base_url=provider.root, timeout_s=5)
    return Settings(models={"gpt": gpt, "claude": claude})


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
