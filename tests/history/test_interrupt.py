"""A query that takes too long can be interrupted, wherever DuckDB is in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ipyagent_sessions.store import Store

LONG = (
    "select count(*) from range(100000000) a, range(100000) b where hash(a.range) % 7 = hash(b.range) % 11",
    "select sum(hash(a.range * b.range)) from range(100000000) a, range(100000) b",
)

PROGRAM = """
from threading import Thread
from ipyagent_sessions import cli
from ipyagent_sessions.history import sql

class Telling(Thread):
    def run(self):
        print("begins", flush=True)
        super().run()

sql.Thread = Telling
raise SystemExit(cli.main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to a process there")
@pytest.mark.parametrize("query", LONG)
def test_ctrl_c_ends_a_long_query_with_one_line(tmp_path: Path, query: str) -> None:
    Store(tmp_path).create()
    environment = {**os.environ, "IPYAGENT_STORE": str(tmp_path), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", PROGRAM, "sql", query]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    assert err == "ipyagent: the query was interrupted; a narrower WHERE makes it shorter\n"
