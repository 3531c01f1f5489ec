"""One session: its card, its events, its states in the past, its large payloads; and ids that are none."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest
from tornado.httpclient import HTTPClientError, HTTPResponse

from ipyagent.answering import Answers
from ipyagent_lab.service import Service
from ipyagent_lab.testing import Api, finished, until
from ipyagent_sessions import folding
from ipyagent_sessions import payloads as p
from ipyagent_sessions._version import __version__
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.events import Event
from ipyagent_sessions.log.lease import Holder, this_process
from ipyagent_sessions.serving import pages
from ipyagent_sessions.serving.following import Followed
from ipyagent_sessions.session import Session
from ipyagent_sessions.state import State
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FakeClock, activities
from ipyagent_sessions.views.card import card

Fetch = Callable[..., Awaitable[HTTPResponse]]
HOSTILE = [
    "..",
    "../s",
    "%2e%2e",
    "..%2f..%2fetc%2fpasswd",
    "a/b",
    "ABCDEF",
    "abc",
    "x" * 33,
    "a",
    "x" * 41,
    "con.txt",
    "täxt",
    "a b c d",
    "abcd\x00",
    "abcd\n",
    "-rf-",
    "<script>",
]


@pytest.fixture
def session(real: Store) -> Session:
    return finished(real, events=40)


@pytest.mark.parametrize("session_id", ["a1", "x" * 40])
async def test_every_id_that_a_store_may_have_opens_in_a_page(
    session_id: str, real: Store, service: Service, api: Api
) -> None:
    finished(Store(real.root, ids=lambda: session_id))
    assert (await api.get("sessions", session_id))["header"]["session_id"] == session_id
    await until(lambda: session_id in service.index, "it is listed")


async def test_a_card_is_the_engines_card_of_the_same_state(session: Session, service: Service, api: Api) -> None:
    detail = await api.get("sessions", session.id)
    state = session.state()
    expected = card(session.id, state, session.live(), "completed", time.time())
    assert detail["shown"]["card"] == msgspec.to_builtins(expected)
    assert detail["tasks"] == [
        {
            "task_id": f"{session.id}.1",
            "status": "completed",
            "target": "lib:audit",
            "title": "finished",
            "queued_at": state.system_state.queued_at,
            "ended_at": state.system_state.ended_at,
            "last_seq": state.seq,
        }
    ]
    assert (detail["title"], detail["cell"], detail["definition"]) == ("finished", None, "lib")
    assert detail["header"]["notebook"] == "notebooks/0.ipynb"
    assert (detail["children"], detail["inherited_until"], detail["shown"]["holder"]) == ([], 0, None)


def test_a_followed_session_shows_at_every_step_what_folding_it_anew_shows(
    store: Store, session_of_tests: Session, me: Holder, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_of_tests
    followed = Followed(session)
    appender = session.append(me)
    for n in range(6):
        activities(appender, 3, task_id=f"{session.id}.1", text="x" * n)
        appender.barrier()
        shown = followed.shown()
        assert shown.card == card(session.id, session.state(), None, "empty", clock.now())
        assert shown.card.seq == session.last_seq()
    appender.close()
    again = session.append(me)  # a new epoch
    activities(again, 2, task_id=f"{session.id}.1")
    again.barrier()
    assert followed.shown().card.seq == session.last_seq()
    again.close()
    folds: list[int] = []

    def loaded(*_: object) -> None:
        folds.append(1)

    monkeypatch.setattr(Session, "loaded", loaded)
    followed.shown()
    assert folds == [], "an unchanged log is not folded again"


@pytest.fixture
def session_of_tests(store: Store) -> Session:
    return store.create(title="followed")


def test_a_followed_session_reads_only_what_was_appended(
    store: Store, session_of_tests: Session, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_of_tests
    with_holder = session.append(me)
    activities(with_holder, 500, task_id="t")
    with_holder.barrier()
    followed = Followed(session)
    followed.shown()
    followed.shown()
    applied: list[int] = []
    real_apply = folding.apply

    def apply(state: State, event: Event) -> None:
        applied.append(event.seq)
        real_apply(state, event)

    monkeypatch.setattr(folding, "apply", apply)
    activities(with_holder, 1, task_id="t")
    with_holder.barrier()
    followed.shown()
    written = session.last_seq()
    assert [seq for seq in applied if seq <= written][-2:] == [written - 1, written]
    assert len([seq for seq in applied if seq > written - 2]) <= 4, "the holder and the follower each applied two"
    with_holder.close()


async def test_events_come_in_pages_that_follow_each_other(session: Session, api: Api) -> None:
    seen: list[dict[str, Any]] = []
    after = 0
    while after is not None:
        page = await api.get("sessions", session.id, "events", after=after, limit=7)
        assert len(page["events"]) <= 7
        seen += page["events"]
        after = page["next"]
    assert [e["seq"] for e in seen] == list(range(1, session.last_seq() + 1))
    assert seen[1]["event_type"] == "TaskQueued"
    assert seen[1]["payload"]["target"] == "lib:audit"


async def test_long_payloads_and_blobs_are_named_by_their_size_only(real: Store, api: Api) -> None:
    session = real.create(title="large")
    appender = session.append(this_process(by="tests"))
    body = msgspec.json.encode("é" * 40_000)
    blobs: dict[str, bytes] = {}
    raw, name = appender.put(body, blobs)
    assert name is not None
    appender.emit("ActivityCompleted", p.ActivityCompleted("big", result=raw, result_blob=name), activity_id="a", blobs=blobs)
    appender.emit("MessageAdded", {"role": "user", "text": "y" * 9000}, task_id="t")
    appender.close()
    first, second = (await api.get("sessions", session.id, "events", after=1))["events"]
    assert first["blobs"] == {name: len(body)}
    assert first["payload"]["result_blob"] == name
    assert (second["payload"], second["payload_bytes"]) == (None, len('{"role":"user","text":""}') + 9000)
    [full] = (await api.get("sessions", session.id, "events", after=2, max_payload=20_000))["events"]
    assert full["payload"] == {"role": "user", "text": "y" * 9000}


async def test_a_blob_is_sent_as_text_to_be_saved_and_never_as_a_page(
    session: Session, jp_fetch: Fetch, service: Service
) -> None:
    body = b"<script>alert(1)</script>"
    name = hashlib.sha256(body).hexdigest()
    session.layout.blobs.mkdir()
    (session.layout.blobs / name).write_bytes(body)
    answer = await jp_fetch("ipyagent", "api", "sessions", session.id, "blobs", name)
    assert answer.body == body
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Disposition"].startswith("attachment;")
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"


async def test_a_blob_whose_bytes_have_changed_or_that_is_too_large_is_not_sent(
    session: Session, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "ab" * 32
    session.layout.blobs.mkdir()
    (session.layout.blobs / name).write_bytes(b"other")
    assert (await api.refused(api.get("sessions", session.id, "blobs", name)))["error"] == "DamageError"
    monkeypatch.setattr(pages, "MAX_BLOB", 4)
    assert (await api.refused(api.get("sessions", session.id, "blobs", name)))["status"] == 413
    for bad in ("..", "AB" * 32, "ab" * 31, "summary.json"):
        assert (await api.refused(api.get("sessions", session.id, "blobs", bad)))["status"] in (400, 404)


async def test_the_past_is_shown_as_it_was_and_nothing_can_be_done_to_it(session: Session, api: Api) -> None:
    last = session.last_seq()
    answer = await api.get("sessions", session.id, "state", at=f"{last},3,10")
    assert [c["seq"] for c in answer["cards"]] == [3, 10, last]
    assert [c["state"] for c in answer["cards"]] == ["running", "running", "completed"]
    assert [c["done"] for c in answer["cards"]] == [session.state(s).execution_state.done for s in (3, 10, last)]
    for shown in answer["cards"]:
        reasons = {name: reason for name, reason in shown["actions"].items() if name != "log"}
        assert all(reason.startswith("this is the past") for reason in reasons.values())
    before = sorted(f.name for f in session.layout.root.iterdir())
    await api.get("sessions", session.id, "state", at=5)
    assert sorted(f.name for f in session.layout.root.iterdir()) == before, "nothing is written"


@pytest.mark.parametrize("at", ["", "0", "-1", "1,x", "9999", "1,9999", ",".join(map(str, range(1, 300))), "1" * 17])
async def test_a_point_that_does_not_exist_is_refused(at: str, session: Session, api: Api) -> None:
    problem = await api.refused(api.get("sessions", session.id, "state", at=at))
    assert problem["status"] in (400, 404)


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_an_id_that_is_none_reaches_no_file(
    hostile: str,
    session: Session,
    real: Store,
    service: Service,
    api: Api,
    http_server_client: Any,
    jp_base_url: str,
    jp_auth_header: dict[str, str],
) -> None:
    for suffix in ("", "/events", "/state?at=1", "/control", "/fork"):
        path = f"{jp_base_url}ipyagent/api/sessions/{quote(hostile, safe='%')}{suffix}"
        post = suffix in ("/control", "/fork")
        with pytest.raises(HTTPClientError) as caught:
            await http_server_client.fetch(
                path,
                headers=jp_auth_header,
                method="POST" if post else "GET",
                body='{"action": "rename", "args": {"title": "x"}}' if suffix == "/control" else "{}" if post else None,
            )
        assert caught.value.code in (400, 404), f"{path} gave {caught.value.code}"
        body = caught.value.response.body if caught.value.response else b""
        assert b"<script>" not in body
        assert str(real.root).encode() not in body
    assert real.session_ids() == [session.id]
    assert not list(real.root.parent.rglob("inbox"))


async def test_a_session_that_does_not_exist_is_not_found_and_not_made(real: Store, api: Api) -> None:
    for path in (("sessions", "nosuchone"), ("sessions", "nosuchone", "events"), ("sessions", "nosuchone", "blobs", "0" * 64)):
        assert (await api.refused(api.get(*path)))["status"] == 404
    assert (await api.refused(api.post("sessions", "nosuchone", "control", action="rename", args={"title": "x"})))[
        "status"
    ] == 404
    assert (await api.refused(api.post("sessions", "nosuchone", "fork")))["status"] == 404
    assert real.session_ids() == []


async def test_a_fork_inherits_events_and_is_named_by_its_parent(session: Session, real: Store, api: Api) -> None:
    forked = await api.post("sessions", session.id, "fork", at=5, direction="the other way", title="second try")
    assert forked["status"] == 201
    child = real.session(forked["session_id"])
    assert (forked["parent"], forked["at"]) == (session.id, 5)
    detail = await api.get("sessions", child.id)
    assert detail["inherited_until"] == 5
    assert detail["header"]["parent"]["session"] == session.id
    assert (await api.get("sessions", session.id))["children"] == [child.id]
    page = await api.get("sessions", child.id, "events")
    assert [e["seq"] for e in page["events"]] == [1, 2, 3, 4, 5, 6]
    assert page["events"][-1]["payload"]["direction"] == "the other way"
    inside = await api.refused(api.post("sessions", session.id, "fork", at=4))
    assert (inside["error"], inside["status"]) == ("UsageError", 400)
    assert (await api.refused(api.post("sessions", session.id, "fork", at=10_000)))["status"] == 404


async def test_status_says_who_answers_and_what_does_not_fit_a_kernel_elsewhere(real: Store, api: Api, tmp_path: Path) -> None:
    status = await api.get("status")
    assert (status["api"], status["version"], status["store_id"], status["format"]) == (1, __version__, real.id, 1)
    assert status["watching"] in ("notify", "polling")
    assert (await api.get("status", store=real.id, version=__version__))["differences"] == []
    other = await api.get("status", store="another", version="9.9")
    assert ["another store" in other["differences"][0], "9.9" in other["differences"][1]] == [True, True]


async def test_a_store_of_a_newer_version_is_an_answer_and_not_a_crash(real: Store, idle: Service, jp_fetch: Fetch) -> None:
    (real.root / "store.json").write_text('{"id": "x", "format": 99}')
    await idle.start()
    api = Api(jp_fetch)
    problem = await api.refused(api.get("sessions"))
    assert (problem["error"], problem["status"]) == ("NewerFormat", 409)
    assert (await api.refused(api.get("sessions", "somesession")))["status"] == 409


async def test_a_server_makes_no_store_before_somebody_asks_for_it(real: Store, idle: Service, jp_fetch: Fetch) -> None:
    (real.root / "store.json").unlink()
    (real.root / "s").rmdir()
    await idle.start()
    assert list(real.root.iterdir()) == []
    assert not real.exists()
    assert (await Api(jp_fetch).get("sessions"))["rows"] == []
    assert (real.root / "store.json").is_file()


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("events", {"only": "xyz"}),
        ("events", {"after": ""}),
        ("events", {"after": "-1"}),
        ("events", {"limit": "10001"}),
        ("events", {"max_payload": "1e3"}),
        ("state", {}),
        ("state", {"at": "1,,2"}),
        ("state", {"at": ",".join(["1"] * 257)}),
        ("aftermath", {"at": str(2**53)}),
        ("compare", {"with": ".."}),
    ],
)
async def test_what_the_server_refuses_a_widget_refuses_in_the_same_words(
    path: str, params: dict[str, str], real: Store, session: Session, api: Api
) -> None:
    problem = await api.refused(api.get("sessions", session.id, path, **params))
    assert problem["status"] == 400
    widget = Answers(real, "tests", lambda words: None)
    with pytest.raises(UsageError) as caught:
        widget.answer("GET", f"sessions/{session.id}/{path}?{urlencode(params)}", "")
    assert caught.value.message == problem["message"]
