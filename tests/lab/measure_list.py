"""How fast the list is with many sessions; the numbers in the docs come from here.

    python tests/lab/measure_list.py [sessions] [events]

Starts a real Jupyter Server in this process over a store of 10,000 sessions of 300 events, one of them corrupt, and asks it
over HTTP as a page does.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_server.serverapp import ServerApp
from tornado.httpclient import AsyncHTTPClient
from traitlets.config import Config

from ipyagent_lab.service import Service
from ipyagent_lab.testing import finished, fleet, until
from ipyagent_sessions.store import Store


def rss() -> float:
    """Megabytes of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


class Page:
    """A page that follows the list."""

    def __init__(self) -> None:
        self.told: list[bytes] = []

    def tell(self, key: str, message: Callable[[], bytes]) -> None:
        self.told.append(message())


async def measured(root: Path, count: int, events: int) -> None:
    store = Store(root)
    began = time.perf_counter()
    ids = fleet(store, count, events=events, waiting=50)
    (store.sessions_folder / ids[count // 2] / "summary.json").write_text("{torn")
    for journal in store.session(ids[count // 2]).layout.journals():
        journal.path.unlink()
        journal.path.write_bytes(b"\0" * 500)
    print(f"store: {count} sessions of {store.session(ids[0]).last_seq()} events made in {time.perf_counter() - began:.1f} s")

    ServerApp.clear_instance()
    app = ServerApp.instance(
        config=Config(
            {
                "ServerApp": {
                    "jpserver_extensions": {"ipyagent_lab": True},
                    "open_browser": False,
                    "port": 0,
                    "allow_root": True,
                    "log_level": 40,
                },
                "IdentityProvider": {"token": "measure"},
                "IpyagentLab": {"store": str(root)},
            }
        )
    )
    app.initialize(argv=[])
    service: Service = app.web_app.settings["ipyagent_service"]
    url = f"http://127.0.0.1:{app.port}/ipyagent/api/"
    before = rss()
    client = AsyncHTTPClient()

    async def get(path: str) -> tuple[Any, float]:
        start = time.perf_counter()
        answer = await client.fetch(url + path, headers={"Authorization": "token measure"}, request_timeout=60)
        return json.loads(answer.body), 1000 * (time.perf_counter() - start)

    start = time.perf_counter()
    page, ms = await get("sessions?limit=100")
    print(f"cold first page, server just started: {ms:.0f} ms ({len(page['rows'])} rows, filling {page['filling']})")
    await until(lambda: not service.index.filling, "all sessions are read", within=300)
    print(f"all sessions in the index after {time.perf_counter() - start:.1f} s; memory of the index {rss() - before:.0f} MB")
    for query in ("limit=100", "limit=1000", "limit=100&q=fleet+99", "limit=100&sort=-cost", "limit=100&state=needs_you"):
        times = sorted([(await get(f"sessions?{query}"))[1] for _ in range(11)])
        print(f"warm {query}: median {times[5]:.1f} ms, slowest {times[-1]:.1f} ms")
    service.index.revision += 1
    print(f"warm limit=100 after a change: {(await get('sessions?limit=100'))[1]:.1f} ms")
    times = [(await get(f"sessions/{i}"))[1] for i in ids[100:105]]
    again = (await get(f"sessions/{ids[104]}"))[1]
    print(f"one session, never looked at: {min(times):.1f} to {max(times):.1f} ms; again: {again:.1f} ms")

    used = time.process_time()
    await asyncio.sleep(20)
    share = 100 * (time.process_time() - used) / 20
    print(f"at rest: {share:.1f} % of a core for looks and sweeps")

    listener = Page()
    service.audience.follow_list(listener, wanted=True)
    start = time.perf_counter()
    new = finished(store)
    await until(lambda: new.id in service.index, "the new one is seen", within=60)
    print(f"a new session is in the list after {1000 * (time.perf_counter() - start):.0f} ms")
    long = finished(store, events=10_000)
    shown, ms = await get(f"sessions/{long.id}")
    print(f"session of {shown['shown']['card']['seq']} events: first look {ms:.0f} ms", end="")
    events_page, ms = await get(f"sessions/{long.id}/events?limit=10000&max_payload=512")
    print(f", all events {ms:.0f} ms ({len(events_page['events'])})", end="")
    _, ms = await get(f"sessions/{long.id}/state?at=5000")
    print(f", one card of the past {ms:.0f} ms", end="")
    _, ms = await get(f"sessions/{long.id}/state?at={','.join(str(n) for n in range(39, 9990, 39))}")
    print(f", 256 of them {ms:.0f} ms")
    await service.stop()


if __name__ == "__main__":
    arguments = [int(a) for a in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measured(Path(folder) / "store", *(arguments or [10_000]), *([300] if len(arguments) < 2 else [])))
