"""SQL over many sessions: the first query, later ones, and one hand-made Parquet file of the same rows.

    python benchmarks/queries.py [SESSIONS [EVENTS]]     alone, at another size than the 1,000 x 1,000 of the whole run

The sessions are sealed histories that `testing.History` draws, 60 different ones, all resting.  Both sides open a fresh
connection for each query; what our side does besides (looking at the store, views, the check that it is one SELECT) counts.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import duckdb
import msgspec
from measure import SAMPLES, Row, row, size_of, table, timed

from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import Event
from ipyagent_sessions.history import building, cache, sources
from ipyagent_sessions.history.sql import query
from ipyagent_sessions.log import segments
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import History, events

SESSIONS, EVENTS, KINDS = 1_000, 1_000, 60
AGGREGATES = (
    "SELECT event_type, count(*), avg(execution_time_ms), sum(cost_usd) FROM {} GROUP BY 1 ORDER BY 2 DESC",
    "SELECT session_id, max(timestamp), count(*) FROM {} GROUP BY 1 ORDER BY 3 DESC, 1 LIMIT 20",
    "SELECT payload->>'$.name', count(*) FROM {} WHERE event_type = 'ActivityFailed' GROUP BY 1 ORDER BY 2 DESC",
)


def history(seed: int, count: int) -> list[Event]:
    """A history in which every third event names its cause."""
    rng = random.Random(seed)
    drawn = islice(events(iter(History(rng)), start=1.7e9 + 1000 * seed), count)
    return [msgspec.structs.replace(e, parent_event=e.seq - 1) if e.seq % 3 == 0 else e for e in drawn]


def fill(store: Store, sessions: int, count: int) -> None:
    """Sessions as they lie at rest: a header, one segment, an empty journal; untouched for a while."""
    kinds = [history(seed, count) for seed in range(KINDS)]
    settled = time.time() - 100
    for number in range(sessions):
        session_id, _ = store.new_session("SessionCreated", p.SessionCreated(f"{number}"), notebook=f"{number % 50}.ipynb")
        layout = store.session(session_id).layout
        segments.seal(layout, kinds[number % KINDS], 1, set(), store.disk)
        layout.journal(1, 1).unlink()
        layout.journal(1, count + 1).touch()
        os.utime(layout.root, (settled, settled))


def measure(work: Path, sessions: int = SESSIONS, count: int = EVENTS) -> Iterator[Row]:
    """The rows of this part."""
    store = Store(work / "store")
    fill(store, sessions, count)
    what = f"{sessions:,} sessions of {count:,} events"
    ours = [text.format("events") for text in AGGREGATES]
    query(Store(work / "empty"), ours[0])  # imports are not counted
    first = list[float]()
    for _ in range(SAMPLES):
        shutil.rmtree(cache.folder(store), ignore_errors=True)
        first.append(timed(lambda: query(store, ours[0]))[0])
    yield row(f"first query over {what}, with the first step of copying them", first, "s", at_most=3)
    shutil.rmtree(cache.folder(store))
    built = timed(lambda: [*iter(lambda: building.step(store), 0)])[0]
    size = size_of(cache.folder(store)) / 1e6
    yield row(f"copying them into the cache, {built / sessions * 1000:.2f} ms a session", [built], "s", note=f"{size:.1f} MB")
    yield row("a look at the store, all in the cache", [timed(lambda: sources.gather(store))[0] for _ in range(SAMPLES)], "s")
    one = work / "one.parquet"
    with duckdb.connect() as connection:
        files = [os.fspath(path) for path in sorted(store.root.glob("s/*/events/*.parquet"))]
        connection.execute(f"COPY (FROM read_parquet(?) ORDER BY session_id, seq) TO '{one}' (COMPRESSION zstd)", [files])
    theirs = [text.format(f"'{one}'") for text in AGGREGATES]
    for mine, hand in zip(ours, theirs, strict=True):
        yield from _compared(store, mine, hand)


def _compared(store: Store, mine: str, hand: str) -> Iterator[Row]:
    """One aggregate on both sides, in turns: the whole query, and DuckDB's part of it."""

    def by_hand() -> object:
        with duckdb.connect() as connection:
            return connection.sql(hand).to_arrow_table()

    whole, plain = list[float](), list[float]()
    for _ in range(SAMPLES):
        before = timed(by_hand)[0]
        whole.append(timed(lambda: query(store, mine))[0])
        plain.append((before + timed(by_hand)[0]) / 2)
    name = mine.partition(" FROM")[0].removeprefix("SELECT ")
    note = f"by hand {statistics.median(plain) * 1000:.0f} ms"
    yield row(f"all events: {name}", whole, "s", at_most=0.5, note=note)
    ratios = [w / h for w, h in zip(whole, plain, strict=True)]
    yield row("&nbsp;&nbsp;the whole query / DuckDB over one file", ratios, at_most=1.2)


if __name__ == "__main__":
    chosen = [int(word) for word in sys.argv[1:3]]
    place = Path(__file__).parents[1] / "build" / "bench"
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as folder:
        print(table(list(measure(Path(folder), *chosen))))
