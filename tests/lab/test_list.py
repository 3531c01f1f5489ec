"""The list of sessions: pages, filters, damage, and how few files are read."""

from __future__ import annotations

import base64
import builtins
import io
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ipyagent_lab.index import Index, Query
from ipyagent_lab.reading import Entry
from ipyagent_lab.service import Service
from ipyagent_lab.shapes import Row
from ipyagent_lab.testing import Api, finished, fleet, until
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.store import Store


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often files of sessions were opened, by session and name."""
    found: Counter[str] = Counter()
    real_open: Any = io.open

    def counting(file: Any, *args: Any, **kwargs: Any) -> Any:
        path = Path(file) if isinstance(file, str | Path) else Path()
        if path.parent.parent.name == "s":
            found[f"{path.parent.name}/{path.name}"] += 1
        return real_open(file, *args, **kwargs)

    monkeypatch.setattr(io, "open", counting)
    monkeypatch.setattr(builtins, "open", counting)
    return found


@pytest.fixture
def thousand(real: Store) -> list[str]:
    ids = fleet(real, 1000, events=100)
    (real.sessions_folder / ids[500] / "summary.json").write_text("{torn")
    for journal in real.session(ids[500]).layout.journals():
        journal.path.unlink()
        journal.path.write_bytes(b"\x00" * 100 + b"garbage\n")
    return ids


async def filled(api: Api, **params: Any) -> Any:
    """A page once all sessions are in the index."""

    async def look() -> Any:
        page = await api.get("sessions", **params)
        return page if not page["filling"] else None

    return await until(look, "all sessions are in the index")


async def test_a_thousand_sessions_are_read_once_and_the_list_reads_no_file_after_that(
    real: Store, thousand: list[str], opened: Counter[str], api: Api
) -> None:
    page = await filled(api, limit=50)
    assert page["matched"] == 1000
    summaries = {name: n for name, n in opened.items() if name.endswith("summary.json")}
    assert len(summaries) == 1000
    assert set(summaries.values()) == {1}, "each summary was read once"
    assert {name.partition("/")[0] for name in opened if "journal" in name} == {thousand[500]}, (
        "only the damaged one's log was read"
    )
    opened.clear()
    for params in (
        {"limit": 1000},
        {"q": "fleet 7"},
        {"sort": "-cost"},
        {"state": "completed", "notebook": "notebooks/3.ipynb"},
    ):
        assert (await api.get("sessions", **params))["rows"]
    assert opened == {}


async def test_pages_follow_each_other_without_gap_or_repetition(thousand: list[str], api: Api) -> None:
    await filled(api)
    for sort in ("-updated", "title", "cost"):
        seen: list[str] = []
        cursor = ""
        while True:
            page = await api.get("sessions", limit=300, sort=sort, **({"cursor": cursor} if cursor else {}))
            seen += [row["session_id"] for row in page["rows"]]
            cursor = page["next"]
            if cursor is None:
                break
        assert len(seen) == len(set(seen)) == 1000, sort
        assert set(seen) == set(thousand)
    newest = await api.get("sessions", limit=2)
    assert [row["title"] for row in newest["rows"]] == ["finished", "Session 999 of the fleet"], "newest change first"


async def test_a_damaged_session_is_in_the_list_with_its_problem_and_breaks_nothing(thousand: list[str], api: Api) -> None:
    page = await filled(api, state="damaged")
    assert [(row["session_id"], row["state"]) for row in page["rows"]] == [(thousand[500], "damaged")]
    assert page["rows"][0]["problem"]
    assert page["counts"]["states"] == {"completed": 999, "damaged": 1}
    problem = await api.refused(api.get("sessions", thousand[500]))
    assert problem["error"] == "DamageError"
    assert problem["status"] == 422


async def test_filters_combine_and_every_word_of_a_search_has_to_fit(real: Store, api: Api) -> None:
    fleet(real, 60, events=10, waiting=3)
    page = await until(lambda: searched(api, 60), "all are listed")
    assert page["counts"]["needs_you"] == 3
    waiting = await api.get("sessions", state="needs_you")
    assert [row["state"] for row in waiting["rows"]] == ["suspended"] * 3
    assert (await api.get("sessions", q="FLEET session 42"))["matched"] == 1
    assert (await api.get("sessions", q="fleet nothing"))["matched"] == 0
    assert (await api.get("sessions", notebook="notebooks/7.ipynb", state="completed,suspended"))["matched"] == 3
    assert (await api.get("sessions", model="none"))["matched"] == 0


async def searched(api: Api, total: int) -> Any:
    page = await api.get("sessions")
    return page if page["counts"]["total"] == total else None


@pytest.mark.parametrize(
    "params",
    [
        {"limit": "0"},
        {"limit": "1001"},
        {"limit": "-1"},
        {"limit": "ten"},
        {"limit": "\uff11\uff10"},
        {"sort": "rowid; drop table"},
        {"cursor": "xx"},
        {"cursor": base64.urlsafe_b64encode(b"[" * 3000).decode()},
        {"cursor": "WyItdXBkYXRlZCIsMSwieCJd"},
        {"q": "x" * 201},
        {"notebook": "n" * 2001},
    ],
)
async def test_what_a_page_must_not_ask_is_refused_with_a_reason(params: dict[str, str], api: Api) -> None:
    problem = await api.refused(api.get("sessions", **params))
    assert (problem["error"], problem["status"]) == ("UsageError", 400)
    assert problem["message"]


async def test_new_changed_and_deleted_sessions_are_noticed(real: Store, service: Service, api: Api) -> None:
    first = finished(real, title="first")
    await until(lambda: first.id in service.index, "the new one is in the index")
    first.layout.summary.write_bytes(first.layout.summary.read_bytes().replace(b'"first"', b'"other"'))
    replaced = first.layout.root / "x"
    replaced.touch()
    replaced.unlink()
    await until(lambda: (e := service.index.get(first.id)) and e.row.title == "other", "the change is seen")
    for path in sorted(first.layout.root.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    first.layout.root.rmdir()
    await until(lambda: first.id not in service.index, "it is gone")


async def test_folders_that_are_no_sessions_are_not_listed(real: Store, service: Service, api: Api) -> None:
    for name in ("..evil", "UPPER", "a b c d", "x", "with.dot"):
        (real.sessions_folder / name).mkdir()
    (real.sessions_folder / "filenotfolder").write_text("")
    (real.sessions_folder / "justmade").mkdir()
    one = finished(real)
    await until(lambda: one.id in service.index, "the session is listed")
    assert list(service.index.ids()) == [one.id]


def row(session_id: str, updated: str = "", **fields: Any) -> Row:
    return Row(session_id, "completed", updated_at=updated, **fields)


def test_a_full_index_keeps_what_changed_last() -> None:
    index = Index(limit=3)
    for n in range(5):
        index.put(Entry(row(f"id{n:02d}", str(n)), "completed", 1, n))
    assert sorted(index.ids()) == ["id02", "id03", "id04"]
    assert index.left_out == 2
    index.put(Entry(row("idold"), "completed", 1, -1))
    assert "idold" not in index


def test_a_cursor_stays_right_when_rows_come_and_go() -> None:
    index = Index()
    for n in range(10):
        index.put(Entry(row(f"id{n:02d}", f"{n:02d}"), "completed", 1, n))
    page = index.page(Query(limit=4))
    assert [r.session_id for r in page.rows] == ["id09", "id08", "id07", "id06"]
    assert page.next is not None
    index.drop("id06")
    index.drop("id05")
    index.put(Entry(row("idnew", "99"), "completed", 1, 99))
    assert [r.session_id for r in index.page(Query(limit=2, cursor=page.next)).rows] == ["id04", "id03"]
    with pytest.raises(UsageError, match="belongs to the order"):
        index.page(Query(sort="title", cursor=page.next))


def test_an_unchanged_row_is_no_change_and_children_are_known_by_their_parents() -> None:
    index = Index()
    assert index.put(Entry(row("child", parent="theparent"), "completed", 1, 1))
    before = index.revision
    assert not index.put(Entry(row("child", parent="theparent"), "completed", 1, 2))
    assert index.revision == before
    assert index.children("theparent") == ["child"]
    index.drop("child")
    assert index.children("theparent") == []


def test_a_session_with_another_parent_is_no_child_of_the_old_one() -> None:
    index = Index()
    index.put(Entry(row("child", parent="old"), "completed", 1, 1))
    index.put(Entry(row("child", parent="new"), "completed", 1, 2))
    assert (index.children("old"), index.children("new")) == ([], ["child"])
    index.put(Entry(row("child"), "completed", 1, 3))
    assert index.children("new") == []
