"""Deleting a session from a page, and carrying it away as a file."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Any

from tornado.httpclient import HTTPResponse

from ipyagent_lab.service import Service
from ipyagent_lab.testing import LONG, Api, finished
from ipyagent_sessions.exchange import unpack
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import Child

Fetch = Callable[..., Awaitable[HTTPResponse]]


async def test_what_is_lost_is_told_and_only_that_is_deleted(real: Store, api: Api, service: Service) -> None:
    session = finished(real)
    child = session.fork()
    told = await api.get("sessions", session.id, "loss")
    assert (told["events"], told["forks"], told["problem"]) == (session.last_seq(), [child.id], "")
    stale = await api.refused(api.post("sessions", session.id, "delete", events=told["events"] - 1))
    assert stale["error"] == "ControlRefused"
    gone = await api.post("sessions", session.id, "delete", events=told["events"])
    assert gone["session_id"] == session.id
    assert not session.layout.root.exists()
    assert child.state().seq == told["events"] + 1, "the fork has a copy of what they shared"
    assert session.id not in service.index, "the list knows at once"
    assert (await api.refused(api.get("sessions", session.id)))["error"] == "NotFound"


async def test_a_session_that_runs_is_not_deleted(real: Store, api: Api) -> None:
    with Child(LONG, str(real.root)) as child:
        session = real.session(child.expect("session"))
        told = await api.get("sessions", session.id, "loss")
        assert "a task runs there" in told["problem"]
        refused = await api.refused(api.post("sessions", session.id, "delete", events=told["events"]))
        assert refused["error"] == "LeaseHeld"
        assert session.layout.root.is_dir()


async def test_an_archive_opens_in_another_store(real: Store, service: Service, jp_fetch: Fetch, tmp_path: Any) -> None:
    session = finished(real)
    answer = await jp_fetch("ipyagent", "api", "sessions", session.id, "export")
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert zipfile.ZipFile(BytesIO(answer.body)).testzip() is None
    path = tmp_path / "carried"
    path.write_bytes(answer.body)
    other = Store(tmp_path / "other")
    assert unpack.bring_in(other, path).session_id == session.id
    assert other.session(session.id).last_seq() == session.last_seq()


async def test_the_other_forms_are_what_they_say(real: Store, service: Service, jp_fetch: Fetch, api: Api) -> None:
    session = finished(real)
    lines = await jp_fetch("ipyagent", "api", "sessions", session.id, "export", params={"kind": "jsonl"})
    assert len(lines.body.splitlines()) >= session.last_seq()
    notebook = await jp_fetch("ipyagent", "api", "sessions", session.id, "export", params={"kind": "notebook"})
    assert json.loads(notebook.body)["nbformat"] == 4
    assert (await api.refused(api.get("sessions", session.id, "export", kind="exe")))["error"] == "UsageError"
