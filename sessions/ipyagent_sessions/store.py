"""The store: a folder of sessions, open files that anyone can query.

    <store>/store.json
    <store>/s/<session_id>/...

Nothing but files: no server, no database that one process could lock.  `Store()` finds the user's store, `Store(path)`
another."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from ipyagent_sessions import events, folding, payloads
from ipyagent_sessions.errors import IpyagentError, NewerFormat, NotFound, UsageError
from ipyagent_sessions.lifecycle import TaskState
from ipyagent_sessions.log import live
from ipyagent_sessions.place import Place, is_id
from ipyagent_sessions.session import Session, summarise

if TYPE_CHECKING:
    from ipyagent_sessions.history.result import Result


_NAMED: Final = re.compile(r"([a-z0-9]+)(?:\.([0-9]{1,9}))?")
"""What an id, a beginning of one, or a task id looks like."""
_CANDIDATES: Final = 8
"""How many sessions an answer names when several fit."""


class Listed(Struct):
    """One line of a listing.  For a session that cannot be read `state` is damaged, or newer (than this version), `problem`
    says why, and `summary` is what was known of it, if anything.  `silence` is the seconds since the last sign of life of a
    running one's holder, once they are too many (`Session.silence`)."""

    session_id: str
    summary: live.Summary | None
    state: str
    problem: str = ""
    silence: float | None = None


class Store(Place):
    """A store and its sessions; see `Place` for the arguments."""

    def __repr__(self) -> str:
        return f"Store({str(self.root)!r})"

    def create(self, *, title: str = "", notebook: str | None = None) -> Session:
        """A new, empty session."""
        body = payloads.SessionCreated(events.title(title), notebook)
        session_id, event = self.new_session("SessionCreated", body, notebook=notebook)
        session = Session(self, session_id)
        live.write_summary(session.layout, summarise(session.id, folding.fold([event])), self.disk)
        return session

    def session(self, session_id: str) -> Session:
        """The session of exactly that id; whether it can be read is seen when it is.  Raises NotFound for what is no id."""
        if not is_id(session_id):
            raise NotFound(f"{session_id[:60]!r} is not the id of a session", hint="list them with: ipyagent ls")
        return Session(self, session_id)

    def find(self, wanted: str, *, current: bool = False) -> Session:
        """The session of an id, a task id (`<session_id>.<n>`), a title, or a unique beginning of an id.

        `current`: a task that is named must be the one that the session is at.  Raises NotFound when there is none, UsageError
        with the candidates when several fit, and for a task that is over.
        """
        found = _NAMED.fullmatch(wanted)
        stem = found[1] if found else ""
        number = int(found[2]) if found and found[2] else None
        if stem and stem in self.session_ids():
            return self._at_task(stem, number, current)
        fits = [x for x in self.sessions() if (stem and x.session_id.startswith(stem)) or _is_titled(x, wanted)]
        if len(fits) == 1:
            return self._at_task(fits[0].session_id, None if _is_titled(fits[0], wanted) else number, current)
        if fits:
            told = ", ".join(_candidate(x) for x in fits[:_CANDIDATES])
            more = f", and {len(fits) - _CANDIDATES} more" if len(fits) > _CANDIDATES else ""
            raise UsageError(f"{wanted!r} fits {len(fits)} sessions: {told}{more}", hint="say which one by its id")
        raise NotFound(f"there is no session {wanted!r} in {self.root}", hint="list them with: ipyagent ls")

    def _at_task(self, session_id: str, number: int | None, current: bool) -> Session:
        """The session, if it has a task of that number; of one whose summary cannot be had that is not looked at."""
        session, wanted = Session(self, session_id), f"{session_id}.{number}"
        summary = self.listed(session).summary if number is not None else None
        if number is None or summary is None or summary.task_id == wanted:
            return session
        task_id = summary.task_id or session.state().system_state.task_id or ""  # a crash may have come before its summary
        if task_id == wanted:
            return session
        at, _, newest = task_id.rpartition(".")
        if at != session.id or not 0 < number < int(newest):
            is_at = f"; it is at {task_id}" if task_id else ""
            raise NotFound(f"session {session.id} has no task {number}{is_at}", hint=f"see: ipyagent log {session.id}")
        if current:
            raise UsageError(
                f"task {wanted} is over; the session is at {task_id}", hint=f"if that one is meant, name it: {task_id}"
            )
        return session

    def sessions(self) -> list[Listed]:
        """Every session, newest change first; one that cannot be read is listed with its problem."""
        out = [self.listed(Session(self, session_id)) for session_id in self.session_ids()]
        return sorted(out, key=lambda x: x.summary.updated_at if x.summary else "", reverse=True)

    def listed(self, session: Session) -> Listed:
        """A session as `sessions` lists it."""
        try:
            summary = session.summary()
            if not _is_whole(summary, session.id):
                summary = summarise(session.id, session.state())
                events.seconds_of(summary.updated_at)
            state = session.effective_state(summary)
            return Listed(session.id, summary, state, silence=session.silence() if state == TaskState.RUNNING else None)
        except NewerFormat as error:
            return Listed(session.id, None, "newer", str(error))
        except (IpyagentError, OSError) as error:
            return self._damaged(session, str(error))
        except Exception as error:  # noqa: BLE001  # whatever lies in one folder, the others are listed
            return self._damaged(session, f"it cannot be read: {type(error).__name__}: {error}")

    def _damaged(self, session: Session, problem: str) -> Listed:
        known = None
        with contextlib.suppress(IpyagentError, OSError):
            known = session.last_known()
        return Listed(session.id, known if known is not None and _is_whole(known, session.id) else None, "damaged", problem)

    def children(self, session_id: str) -> list[str]:
        """The ids of the sessions forked from `session_id`."""
        out = []
        for other in self.session_ids():
            try:
                parent = Session(self, other).header.parent
            except (IpyagentError, OSError):
                continue
            if parent is not None and parent.session == session_id:
                out.append(other)
        return sorted(out)

    def unreadable(self) -> dict[str, str]:
        """The sessions whose header cannot be read, so that nobody knows what they depend on, each with the reason."""
        found = {}
        for session_id in self.session_ids():
            try:
                _ = Session(self, session_id).header
            except (IpyagentError, OSError) as error:
                if Session(self, session_id).layout.root.is_dir():
                    found[session_id] = str(error)
        return found

    def sql(self, query: str, params: list[Any] | dict[str, Any] | None = None) -> Result:
        """The result of one SELECT over all sessions; `params` fill `?` or `$name`.  Raises UsageError; see `history.sql`."""
        from ipyagent_sessions.history import sql  # DuckDB's side of the package is loaded by those who ask it

        return sql.query(self, query, params)


def _is_titled(listed: Listed, wanted: str) -> bool:
    return bool(wanted) and listed.summary is not None and listed.summary.title == wanted


def _candidate(listed: Listed) -> str:
    summary = listed.summary
    if summary is None:
        return f"{listed.session_id} ({listed.state})"
    return f"{listed.session_id} ({summary.title!r}, {listed.state}, {summary.updated_at[:16].replace('T', ' ')})"


def _is_whole(summary: live.Summary, session_id: str) -> bool:
    """Whether a `summary.json` says what a list needs: it may have been cut, or come from elsewhere."""
    try:
        events.seconds_of(summary.updated_at)
    except ValueError:
        return False
    return summary.session_id == session_id
