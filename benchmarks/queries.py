"""SQL over many sessions: the first query, later ones, and one hand-made Parquet file of the same rows.

    python benchmarks/queries.py [SESSIONS [EVENTS [STORE]]]    alone, at another size than 10,000 x 1,000;
                                                                STORE is kept, and used again when it is there

The sessions are sealed histories that `testing.History` draws, 60 different ones, all resting.  What begins in a fresh process
is measured in one, with its imports.  The hand-made file is what DuckDB's COPY makes of the segments unless told otherwise.
Both sides of a ratio open a fresh connection for each query; what our side does besides (looking at the store, views, the
check that it is one SELECT) counts.
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
from measure import SAMPLES, Row, child, row, size_of, table, timed

from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import Event
from ipyagent_sessions.history import cache, sources
from ipyagent_sessions.history.sql import query
from ipyagent_sessions.log import segments
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import History, events

SESSIONS, EVENTS, KINDS = 10_000, 1_000, 60
AGGREGATES = {
    "events, mean time and cost by type": "SELECT event_type, count(*), avg(execution_time_ms), sum(cost_usd) FROM {} "
    "GROUP BY 1 ORDER BY 2 DESC",
    "events and last one by session": "SELECT session_id, max(timestamp), count(*) FROM {} "
    "GROUP BY 1 ORDER BY 3 DESC, 1 LIMIT 20",
    "failures by name": "SELECT payload->>'$.name', count(*) FROM {} WHERE event_type = 'ActivityFailed' "
    "GROUP BY 1 ORDER BY 2 DESC",
    "tokens and cost by model": "SELECT payload->>'$.model', sum(input_tokens), sum(output_tokens), sum(cost_usd) FROM {} "
    "WHERE cost_usd IS NOT NULL GROUP BY 1 ORDER BY 4 DESC",
    "time by activity": "SELECT payload->>'$.name', count(*), sum(execution_time_ms), quantile_cont(execution_time_ms, 0.5) "
    "FROM {} WHERE event_type = 'ActivityCompleted' GROUP BY 1 ORDER BY 3 DESC",
    "events and cost by day": "SELECT date_trunc('day', timestamp), count(*), sum(cost_usd) FROM {} GROUP BY 1 ORDER BY 1",
}


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


def measure(work: Path, sessions: int = SESSIONS, count: int = EVENTS, kept: Path | None = None) -> Iterator[Row]:
    """The rows of this part."""
    store = Store(kept or work / "store")
    if not store.exists():
        fill(store, sessions, count)
    what = f"{sessions:,} sessions of {count:,} events"
    asked = AGGREGATES["events, mean time and cost by type"].format("events")
    copied = list[dict[str, float]]()
    for _ in range(3):
        shutil.rmtree(cache.folder(store), ignore_errors=True)
        copied.append(child(work, "asked", store.root, asked))
    first = [c["first_s"] for c in copied]
    yield row(f"the very first query over {what}, in a fresh process", first, "s", at_most=3)
    took = [c["copied_s"] for c in copied]
    size = size_of(cache.folder(store)) / 1e6
    note = f"{size:.0f} MB of {sealed(store) / 1e6:.0f}"
    yield row("&nbsp;&nbsp;copying them into the cache behind it", took, "s", note=note)
    yield row("&nbsp;&nbsp;peak memory of that process", [c["peak_mb"] for c in copied], "MB")
    again = [child(work, "asked", store.root, asked)["first_s"] for _ in range(SAMPLES)]
    yield row("the first query of a fresh process, all in the cache", again, "s", at_most=3)
    looks = [timed(lambda: sources.gather(store))[0] * 1000 for _ in range(SAMPLES)]
    (cache.folder(store) / "glance.json").unlink()
    anew = timed(lambda: sources.gather(store))[0] * 1000
    yield row("a look at the store", looks, "ms", note=f"{anew:.0f} ms after some session has changed")
    one = work / "one.parquet"
    with duckdb.connect() as connection:
        files = [os.fspath(path) for path in sorted(store.root.glob("s/*/events/*.parquet"))]
        connection.execute(f"COPY (FROM read_parquet(?) ORDER BY session_id, seq) TO '{one}'", [files])
    for name, text in AGGREGATES.items():
        yield from _compared(store, name, text.format("events"), text.format(f"'{one}'"))


def sealed(store: Store) -> int:
    """The bytes of all segments."""
    return sum(path.stat().st_size for path in store.root.glob("s/*/events/*.parquet"))


def _compared(store: Store, name: str, mine: str, hand: str) -> Iterator[Row]:
    """One aggregate on both sides, in turns."""

    def by_hand() -> object:
        with duckdb.connect() as connection:
            return connection.sql(hand).to_arrow_table()

    whole, plain = list[float](), list[float]()
    query(store, mine)
    by_hand()  # neither side pays for what is read from the disk for the first time
    for _ in range(SAMPLES):
        before = timed(by_hand)[0]
        whole.append(timed(lambda: query(store, mine))[0])
        plain.append((before + timed(by_hand)[0]) / 2)
    note = f"by hand {statistics.median(plain) * 1000:.0f} ms"
    yield row(name, whole, "s", at_most=0.5, note=note)
    ratios = [w / h for w, h in zip(whole, plain, strict=True)]
    yield row("&nbsp;&nbsp;the whole query / DuckDB over one file", ratios, at_most=1.2)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:3]]
    place = Path(__file__).parents[1] / "build" / "bench"
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as folder:
        print(table(list(measure(Path(folder), *numbers, kept=Path(sys.argv[3]) if len(sys.argv) > 3 else None))))
