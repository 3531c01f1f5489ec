"""The outages of the campaign are the system's own, and each is read as what it is (R128-R131)."""

from __future__ import annotations

import threading
import urllib.error
from collections.abc import Callable

import pytest
from tests.kill import outside
from tests.kill.workload import FAULTS

from ipyagent_sessions.run.outage import kind_of


@pytest.mark.parametrize(
    ("meet", "raised", "kind"),
    [
        (outside.refused, ConnectionRefusedError, "network"),
        (outside.hung_up, ConnectionResetError, "network"),
        (outside.silent, TimeoutError, "network"),
        (outside.dripping, TimeoutError, "network"),
        (outside.busy, urllib.error.HTTPError, "network"),
        (outside.full_disk, OSError, "resources"),
        (outside.full_quota, OSError, "resources"),
        (outside.no_memory, MemoryError, "resources"),
    ],
)
def test_an_outage_raises_what_the_system_says_then_and_leaves_no_thread(
    meet: Callable[[], None], raised: type[Exception], kind: str
) -> None:
    with pytest.raises(raised) as caught:
        meet()
    assert kind_of(caught.value) == kind
    assert [thread for thread in threading.enumerate() if thread.name == "outside"] == []


def test_the_workload_meets_each_of_them() -> None:
    assert {meet for _, meet in FAULTS} == {
        outside.refused,
        outside.hung_up,
        outside.silent,
        outside.dripping,
        outside.busy,
        outside.full_disk,
        outside.full_quota,
        outside.no_memory,
    }
