"""Which store this is: `store.json` against the sessions that were made here, which all name it."""

from __future__ import annotations

from msgspec import Struct

from ipyagent_sessions.place import Place
from ipyagent_sessions.verify.finding import COPY, Finding

_MEANS = "the sessions that name another store count as brought from elsewhere: nothing is added to them"
_GOES_ON = "until it is there again, the store goes on under the id that most of them name"


class Disowned(Struct, frozen=True):
    """What is wrong with `store.json`, and the id that belongs there; None when the sessions do not tell it."""

    what: str
    wanted: str | None
    made_here: bool


def look(store: Place) -> Disowned | None:
    """What is wrong with the id of a store, None when nothing is.  Writes nothing."""
    makers, present = store.makers(), (store.root / "store.json").is_file()
    wanted = store.id_of_sessions(makers)
    told = ", ".join(f"{name[:40]!r} ({count})" for name, count in makers.most_common())
    if not present:
        if not store.session_ids():
            return None
        return Disowned(f"it is missing; the sessions were made in {told}" if told else "it is missing", wanted, bool(makers))
    known = store.known_id
    if wanted is None or wanted == known or known is None:
        return None
    return Disowned(f"it has the id {known[:40]!r}; the sessions were made in {told}", wanted, bool(makers))


def check(store: Place, *, repair: bool) -> list[Finding]:
    """The finding that `store.json` is missing, or that most of the sessions name another store.

    With `repair` it is made anew with the id that they name.  Where there is nothing that was made here, any id will do.
    Raises OSError.
    """
    wrong = look(store)
    if wrong is None:
        return []
    wanted, known = wrong.wanted, store.known_id
    if wanted is None and wrong.made_here:
        return [Finding("", "store.json", "", f"{wrong.what}: two as often", _MEANS, COPY)]
    if repair:
        if wanted is None:
            store.make()
        else:
            store.write_id(wanted)
    todo = "verify --repair makes it anew" + (" with the id that most of them name" if wanted else "")
    means = "nothing was made in this store yet: any id will do"
    if wanted is not None:
        means = _GOES_ON if wanted == known else _MEANS
    return [Finding("", "store.json", "", wrong.what, means, todo, derived=True, repaired=repair)]
