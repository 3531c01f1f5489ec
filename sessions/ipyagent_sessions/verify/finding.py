"""What a check found, by place."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct, field

from ipyagent_sessions.errors import NewerFormat

COPY: Final = "restore the file from a copy"
MEND: Final = "make it readable, or restore it from a copy"

Level = Literal["damage", "newer", "note"]


def level_of(error: Exception) -> Level:
    """What an error says of what it was raised for."""
    return "newer" if isinstance(error, NewerFormat) else "damage"


class Finding(Struct, frozen=True, omit_defaults=True):
    """One thing that is not as it should be.

    `session` is empty for what belongs to the store.  `file` is relative to the folder of the session or store, `place` says
    where in it: byte, line, row group, seq.  `means` is what it costs, `todo` what to do.  A note costs nothing; damage does;
    what is newer than this version could not be checked.
    `derived` says that `--repair` makes it anew, `repaired` that it did.
    """

    session: str
    file: str
    place: str
    what: str
    means: str
    todo: str
    level: Level = "damage"
    derived: bool = False
    repaired: bool = False


class Report(Struct):
    """What was looked at, and what was found."""

    sessions: int = 0
    events: int = 0
    snapshots: int = 0
    blobs: int = 0
    findings: list[Finding] = field(default_factory=list[Finding])

    @property
    def damaged(self) -> bool:
        """Whether damage is there now: a note is none, and neither is what was repaired."""
        return any(f.level == "damage" and not f.repaired for f in self.findings)

    @property
    def newer(self) -> bool:
        """Whether something could not be checked, since a newer version wrote it."""
        return any(f.level == "newer" for f in self.findings)

    def add(self, other: Report) -> None:
        """Take another report into this one."""
        self.sessions += other.sessions
        self.events += other.events
        self.snapshots += other.snapshots
        self.blobs += other.blobs
        self.findings += other.findings


def unreadable(session: str, file: str, error: OSError) -> Finding:
    """A file that the system does not give."""
    return Finding(session, file, "", error.strerror or str(error), "what is in it could not be checked", MEND)
