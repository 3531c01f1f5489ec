"""What is there when a session is opened: its state, from the newest snapshot and the events after it, and a tail without a
torn event."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from ipyagent_sessions import folding
from ipyagent_sessions.errors import DamageError
from ipyagent_sessions.log import checkpoints
from ipyagent_sessions.log.files import Disk, sync_file
from ipyagent_sessions.log.format import Damage
from ipyagent_sessions.log.layout import Layout
from ipyagent_sessions.log.reader import Reader, seqs
from ipyagent_sessions.state import State


class Loaded(Struct):
    """What `read_state` found: the state, the snapshot it came from, the snapshots refused, and damage by place."""

    state: State
    checkpoint: int | None = None
    refused: list[int] = []
    damage: list[str] = []
    replayed: int = 0


def read_state(layout: Layout, first: int, start: Callable[[], State] | None, until: int | None = None) -> Loaded:
    """The state after `until` (default: the end), from the newest usable snapshot and the events after it.

    `start` gives the inherited state of a fork; it is asked when no snapshot can be used.  Raises DamageError when events are
    missing behind the snapshot.
    """
    at_most = until if until is not None else 2**62
    state, refused = checkpoints.newest(layout, at_most)
    snapshot = state.seq if state is not None else None
    if state is None:
        state = start() if start is not None else State()
    reader = Reader(layout, first)
    replayed = _fold(state, reader, until)
    if reader.missing:
        low, high = reader.missing[0]
        raise DamageError(
            f"session {layout.root.name}: {seqs(low, high)} {'is' if low == high else 'are'} damaged or missing"
            + (f" ({'; '.join(map(str, reader.damage))})" if reader.damage else ""),
            hint=_way_on(layout.root.name, first, low - 1),
        )
    return Loaded(state, snapshot, refused, [str(d) for d in reader.damage], replayed)


def _fold(state: State, reader: Reader, until: int | None = None) -> int:
    """Fold the events that follow the state, up to the first that is missing; returns how many."""
    before = state.seq
    for event in reader.events(after=before, until=until):
        if event.seq != state.seq + 1:
            break
        folding.apply(state, event)
    return state.seq - before


def _way_on(session: str, first: int, intact: int) -> str:
    if intact < first:
        return "nothing before that can be read: restore the file from a copy"
    return f"all is intact up to event {intact}: ipyagent fork {session} --at {intact}, or restore the file"


def before_damage(layout: Layout, first: int, start: Callable[[], State] | None) -> State:
    """The state before the first event that is damaged or missing: what is known of a session that cannot go on."""
    state = start() if start is not None else State()
    _fold(state, Reader(layout, first))
    return state


def mend_tail(layout: Layout, epoch: int, disk: Disk) -> Damage | None:
    """Set an unfinished last event aside, cut it, and return what was cut.  Raises OSError; nothing is cut then."""
    tail = Reader(layout).tail()
    if tail is None or tail.torn is None:
        return None
    layout.damaged.mkdir(exist_ok=True)
    with open(tail.journal.path, "rb+") as file:
        whole = file.read()
        aside = layout.damaged / f"{tail.journal.path.name}.{tail.good_bytes}.{epoch}"
        disk.write_whole(aside, whole[tail.good_bytes :], what="tail")
        file.truncate(tail.good_bytes)
        if tail.good_bytes and whole[tail.good_bytes - 1 : tail.good_bytes] != b"\n":
            file.seek(tail.good_bytes)
            file.write(b"\n")
            file.flush()
        sync_file(file.fileno())
    return tail.torn
