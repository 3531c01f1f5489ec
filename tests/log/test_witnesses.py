"""A log that ends before what was on disk is not gone on with: its summary and `live.json` tell."""

from __future__ import annotations

import pytest

from ipyagent_sessions.errors import DamageError
from ipyagent_sessions.log import live
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FakeClock, activities


@pytest.mark.parametrize("witness", ["summary", "live"])
def test_nobody_writes_on_where_events_are_lost_and_a_fork_goes_on(
    store: Store, session: Session, me: Holder, clock: FakeClock, witness: str
) -> None:
    appender = session.append(me)
    activities(appender, 2)
    clock.advance(1)
    activities(appender, 2)
    appender.acknowledge()
    if witness == "summary":
        live.write_summary(session.layout, summarise(session.id, appender.state), appender.disk)
    if witness == "live":
        live.write_live(session.layout, live.Live(f"{session.id}.1", 2, 0.0, durable_seq=appender.state.seq), appender.disk)
    appender.close()
    journal = session.layout.journals()[-1].path
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:2]))
    kept = {p: p.read_bytes() for p in session.layout.root.rglob("*") if p.is_file() and p.suffix != ".lock"}
    cut = store.session(session.id)

    with pytest.raises(DamageError, match=r"ends at event 3, and .* tells of event \d+") as raised:
        cut.append(me)

    assert f"ipyagent fork {session.id}" in raised.value.hint
    assert {p: p.read_bytes() for p in session.layout.root.rglob("*") if p.is_file() and p.suffix != ".lock"} == kept
    assert not cut.held()
    child = cut.fork()
    child.append(me).close()
    assert child.state().lineage == [(session.id, 3)]
