"""`state --at` any seq is the state that was live there, whatever files it is read from (R098)."""

from __future__ import annotations

import itertools
import random

import pytest

from ipyagent_sessions import state as states
from ipyagent_sessions.errors import NotFound
from ipyagent_sessions.log import journal
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import History, emit


@pytest.mark.parametrize("seed", range(2))
def test_fifty_random_seqs(session: Session, store: Store, me: Holder, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SEAL_EVENTS", 60)
    rng = random.Random(seed)
    live = {1: states.encode(session.state())}
    history = itertools.islice(History(rng), 1, 320)
    for length in (80, 90, 150):
        appender = session.append(me)
        for n, item in enumerate(itertools.islice(history, length)):
            seq = emit(appender, item).seq
            live[seq] = states.encode(appender.state)
            if n % 23 == 0:
                seq = appender.checkpoint("manual", "x" if n % 2 else "").seq
                live[seq] = states.encode(appender.state)
            appender.acknowledge()
        appender.close(rest=length != 150)
    assert session.last_seq() == max(live)
    assert session.layout.segments()
    reread = store.session(session.id)
    for seq in {*rng.sample(sorted(live), 50), 1, max(live)}:
        assert states.encode(reread.state(seq)) == live[seq], seq
    assert states.encode(reread.state()) == live[max(live)]


def test_a_seq_that_does_not_exist_is_told_with_the_last_one(session: Session) -> None:
    with pytest.raises(NotFound, match=f"session {session.id} has no event 5; it ends at 1"):
        session.state(5)
