"""What most tests start from: a store in a folder of its own, with a clock, ids and a disk that the test owns."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ipyagent_sessions.log.lease import Holder, this_process
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FakeClock, FakeIds, FaultyDisk

# Many tests write files: the time of one example says nothing, and a failure must come again on the next run.
settings.register_profile(
    "here",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("here")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock, disk: FaultyDisk) -> Store:
    return Store(tmp_path / "store", clock=clock, ids=FakeIds(), disk=disk)


@pytest.fixture
def session(store: Store) -> Session:
    return store.create(title="test", notebook="a.ipynb")


@pytest.fixture
def me() -> Holder:
    return this_process(by="tests")
