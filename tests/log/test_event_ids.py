"""R087: an event's id, `<session_id>:<seq>`, is unique, also where several processes write into one store at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ipyagent_sessions.store import Store

PROCESSES, EVENTS = 4, 250_000

WRITER = """
import sys
from ipyagent_sessions import Store
from ipyagent_sessions.events import as_raw
from ipyagent_sessions.log.lease import this_process

store, events = Store(sys.argv[1]), int(sys.argv[2])
appender = store.create().append(this_process(by="tests"))
appender.durability = "exit"
body = as_raw({"text": "on"})
for _ in range(events - 1):
    appender.emit("ActivityProgressed", body)
    appender.acknowledge()
appender.close()
"""


def test_a_million_ids_from_four_processes_are_all_different_and_ordered_within_each(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path), str(EVENTS)]
    writers = [subprocess.Popen(command) for _ in range(PROCESSES)]
    assert [writer.wait(120) for writer in writers] == [0] * PROCESSES
    row = Store(tmp_path).sql(
        """
        WITH ordered AS (
            SELECT event_id, session_id, seq,
                recorded_at >= lag(recorded_at) OVER (PARTITION BY session_id ORDER BY seq) AS fits
            FROM events)
        SELECT count(*) AS events, count(DISTINCT event_id) AS ids, count(DISTINCT session_id) AS sessions, max(seq) AS last,
            bool_and(coalesce(fits, true)) AS ordered
        FROM ordered"""
    )
    assert row.rows() == [
        {"events": PROCESSES * EVENTS, "ids": PROCESSES * EVENTS, "sessions": PROCESSES, "last": EVENTS, "ordered": True}
    ]
