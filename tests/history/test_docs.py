"""The queries of the documentation run, and the pages made from code are those of this code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ipyagent_sessions.history.sql import query
from ipyagent_sessions.store import Store

ROOT = Path(__file__).resolve().parents[2]
GALLERY = re.findall(
    r"^### (.+?)\n.*?^```sql\n(.+?)^```", (ROOT / "docs/sql.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)


def test_the_gallery_has_queries_for_all_that_people_ask() -> None:
    assert len(GALLERY) == 13


@pytest.mark.usefixtures("rich")
@pytest.mark.parametrize(("title", "sql"), GALLERY, ids=[title for title, _ in GALLERY])
def test_a_query_of_the_gallery_gives_rows(store: Store, title: str, sql: str) -> None:
    found = query(store, sql)
    assert found.problems == []
    if title != "What needs me?":  # the only session has ended
        assert len(found) > 0


@pytest.mark.usefixtures("rich")
def test_an_answer_is_counted_as_what_it_was(store: Store) -> None:
    (sql,) = (sql for title, sql in GALLERY if title == "How long do approvals wait for an answer?")
    assert sum(row["approved"] for row in query(store, sql).rows()) > 0
    (sql,) = (sql for title, sql in GALLERY if title == "Who answered, and how?")
    assert {row["said"] for row in query(store, sql).rows()} >= {"approved"}


def test_the_schema_page_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/generate_docs.py", "--check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
