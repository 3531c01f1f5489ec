"""Work that exceeds a real memory limit is suspended as short of resources, and goes on with a bigger one (R128, R129)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.run.groups import memory_group
from tests.run.harness import PATIENCE, Engine, Witness

from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow, workflow

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="limits as Linux has them"),
    pytest.mark.skipif(
        find_spec("cloudpickle") is None and "IPYAGENT_TEST_INSTALLED" not in os.environ,
        reason="cloudpickle, which the wheel requires, is not in this environment",
    ),
]

MB = 2**20
SMALL, ENOUGH = 64 * MB, 512 * MB
NEEDED = 160 * MB
"""More than SMALL, less than ENOUGH."""

Enter = Callable[[int], None]
"""Puts the process that calls it under a limit of so many bytes."""


def flow_of(witness: Witness, enter: Enter, limit: Path) -> Workflow:
    def fill() -> int:
        """Keep more and more, in small pieces as programs do, until it is NEEDED."""
        witness("fill")
        enter(int(limit.read_text()))
        kept: list[bytes] = []
        for _ in range(NEEDED // 1000):
            kept.append(os.urandom(1000))  # noqa: PERF401  what was kept is still there when the error is told
        return len(kept)

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> int:
        return int(await ctx.run(fill, isolate="process"))

    return flow


def address_space(limit: int) -> None:
    """At most `limit` bytes more than there are: the allocation that passes it fails."""
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + limit, used + limit))


@pytest.fixture(autouse=True)
def _functions_travel_by_value() -> Iterator[None]:
    """As those of a notebook do: a child cannot import a test module."""
    import cloudpickle
    from tests.run import harness

    for module in (sys.modules[__name__], harness):
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in (sys.modules[__name__], harness):
        cloudpickle.unregister_pickle_by_value(module)


def test_a_child_whose_allocation_fails_is_read_as_short_of_memory(engine: Engine, witness: Witness, tmp_path: Path) -> None:
    goes_on_with_more(engine, witness, address_space, tmp_path / "limit")


def test_a_child_that_the_kernel_kills_for_its_memory_is_read_so(engine: Engine, witness: Witness, tmp_path: Path) -> None:
    with memory_group(ENOUGH) as group:
        limit, entrance = str(group.limit), str(group.entrance)

        def enter(size: int) -> None:
            Path(limit).write_text(str(size))
            Path(entrance).write_text("0")

        goes_on_with_more(engine, witness, enter, tmp_path / "limit")


def goes_on_with_more(engine: Engine, witness: Witness, enter: Enter, limit: Path) -> None:
    limit.write_text(str(SMALL))
    flow = flow_of(witness, enter, limit)
    handle = engine.start(flow)
    assert handle.wait(PATIENCE * 3)
    system = handle.session.state().system_state
    assert (system.status, system.reason) == ("suspended", "resources"), system
    limit.write_text(str(ENOUGH))
    assert engine.resume(handle, flow).result(PATIENCE * 3) == NEEDED // 1000
    assert witness.order == ["fill", "fill"]
