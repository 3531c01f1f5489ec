"""Two sessions side by side: where their histories part, and what differs since (R124).

Of a fork and its parent the shared beginning is known; of a rerun there is none, and results are met by the identity of their
activity.  Only reads.
"""

from __future__ import annotations

from typing import Final

from msgspec import Raw, Struct
from msgspec.json import decode, encode

from ipyagent_sessions import payloads as p
from ipyagent_sessions.session import Session
from ipyagent_sessions.state import Recorded, State

MOST: Final = 200
"""How many differences are told; more are counted."""
_CUT: Final = 400


class Difference(Struct):
    """Something that is not the same on both sides.  None means that it is not there; `what` is result or value."""

    what: str
    name: str
    left: str | None
    right: str | None


class Comparison(Struct):
    """`parted_in` and `parted_at` name the last shared event, None when there is none.  `same` counts equal results and
    values, `more` the differences beyond those that are listed."""

    parted_in: str | None
    parted_at: int | None
    differences: list[Difference]
    same: int
    more: int


def compare(left: Session, right: Session) -> Comparison:
    """What two sessions have in common and what not.  Raises NotFound, DamageError or NewerFormat."""
    parted = parting(left, right)
    ours, theirs = left.state(), right.state()
    found = [*_results(left, ours, right, theirs), *_values(ours, theirs)]
    different = [each for each in found if each is not None]
    shared, at = parted if parted is not None else (None, None)
    return Comparison(shared, at, different[:MOST], len(found) - len(different), max(0, len(different) - MOST))


def parting(left: Session, right: Session) -> tuple[str, int] | None:
    """The session and seq of the last event that both share; None when they have no common ancestor."""
    bounds = dict(_lineage(right))
    for session_id, bound in _lineage(left):
        if session_id in bounds:
            return session_id, min(bound, bounds[session_id])
    return None


def _lineage(session: Session) -> list[tuple[str, int]]:
    """The session and its ancestors, each with the last seq that belongs to it here, nearest first."""
    out = [(session.id, session.last_seq())]
    here: Session | None = session
    while here is not None and here.header.parent is not None:
        out.append((here.header.parent.session, here.header.parent.seq))
        here = here.parent
    return out


def _results(left: Session, ours: State, right: Session, theirs: State) -> list[Difference | None]:
    mine, other = ours.business_state.results, theirs.business_state.results
    out: list[Difference | None] = []
    for key in dict.fromkeys((*mine, *other)):
        a, b = mine.get(key), other.get(key)
        if a is not None and b is not None and _equal(left, a, right, b):
            out.append(None)
        else:
            out.append(Difference("result", _name(key), _told(left, a), _told(right, b)))
    return out


def _values(ours: State, theirs: State) -> list[Difference | None]:
    mine, other = ours.business_state.values, theirs.business_state.values
    out: list[Difference | None] = []
    for key in dict.fromkeys((*mine, *other)):
        same = key in mine and key in other and mine[key] == other[key]
        left, right = (_cut(encode(side[key]).decode()) if key in side else None for side in (mine, other))
        out.append(None if same else Difference("value", key, left, right))
    return out


def _name(key: str) -> str:
    """The id of an activity without the empty stage before it."""
    return key.removeprefix("/")


def _equal(left: Session, a: Recorded, right: Session, b: Recorded) -> bool:
    if (a.ok, a.digest, a.result_lost, a.by_reference) != (b.ok, b.digest, b.result_lost, b.by_reference):
        return False
    if not a.by_reference:
        return bytes(memoryview(a.result)) == bytes(memoryview(b.result))
    return _stored(left, a) == _stored(right, b)


def _stored(session: Session, recorded: Recorded) -> bytes:
    """A result as its event holds it: its JSON, or the name of its blob."""
    body = decode(session.event(recorded.seq).payload, type=p.ActivityCompleted)
    return (body.result_blob or "").encode() or bytes(memoryview(body.result))


def _told(session: Session, recorded: Recorded | None) -> str | None:
    if recorded is None:
        return None
    if not recorded.ok:
        body = decode(session.event(recorded.seq).payload, type=p.ActivityFailed)
        return _cut(f"failed: {body.error_type}: {body.error}")
    if recorded.result_lost:
        return "its result is lost"
    raw = _stored(session, recorded) if recorded.by_reference else bytes(memoryview(recorded.result or Raw(b"null")))
    return _cut(raw.decode("utf-8", "replace"))


def _cut(text: str) -> str:
    return text if len(text) <= _CUT else text[: _CUT - 1] + "…"
