"""Who may append to a session: one holder at a time, an OS lock, and an epoch that fences whoever comes back late (R253).

The lock file carries the epoch in its name.  Whoever wants the lease of a session at epoch n

1. locks `lease-n.lock`; that the lock is free says its holder is gone.  (`force` skips this step, for a holder that is stopped
   and whose heartbeat is stale: its process still has the lock.)
2. locks `lease-(n+1).lock`.  From the moment this file exists, the holder of n is fenced: it looks for it after each sync and
   acknowledges nothing once it is there;
3. writes its name to `holder.json`, so that whoever comes now is told who has it, however long the log takes to read;
4. reads the log to its end and creates `journal-(n+1)-<next seq>.jsonl`, which must not exist.

Readers ignore lines of epoch n from that seq on.  What a woken zombie does to the outside world cannot be fenced.

The lock is `filelock`'s: flock on Unix, which a forked child gives up and which dies with its process; LockFileEx on Windows;
a marker file where the file system has no locks (`soft` is true then, and `doctor` says so).
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from ipyagent_sessions.decoding import from_json
from ipyagent_sessions.errors import LeaseHeld
from ipyagent_sessions.log.files import Disk
from ipyagent_sessions.log.layout import LEASE, Layout

if TYPE_CHECKING:
    from filelock import BaseFileLock

HEARTBEAT: Final = 2.0
"""Seconds between heartbeats of a holder; one that is silent for two of them is stale."""
_NAMED_S: Final = 1.0


class Holder(Struct, frozen=True, omit_defaults=True):
    """Who holds a lease.  `started` is the process's start time in seconds since the epoch, so a reused pid is not believed;
    `host` names the machine and, on Linux, the pid namespace.  `beside` says that it changes files beside the log, and neither
    appends nor runs a task."""

    pid: int
    started: float
    host: str
    boot: str
    epoch: int = 0
    since: float = 0.0
    kernel: str | None = None
    by: str = "python"
    beside: bool = False

    def describe(self) -> str:
        """Who, in a person's words."""
        where = f"kernel {self.kernel[:8]}" if self.kernel else self.by
        return f"{where} (pid {self.pid} on {self.host.partition('/')[0]})"

    def as_dict(self) -> dict[str, Any]:
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]  # msgspec types it as Any


def this_process(*, kernel: str | None = None, by: str = "python") -> Holder:
    """The holder that this process would be."""
    import psutil

    return Holder(
        pid=os.getpid(), started=round(psutil.Process().create_time(), 2), host=host(), boot=boot(), kernel=kernel, by=by
    )


def host() -> str:
    """The machine's name, with the pid namespace on Linux: pids of two containers must not be confused."""
    name = socket.gethostname()
    try:
        return f"{name}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return name


def boot() -> str:
    """What changes when the machine restarts."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        import psutil

        return f"{platform.system()}-{int(psutil.boot_time())}"


def is_alive(holder: Holder, *, heartbeat_age: float | None) -> bool:
    """Whether the process of `holder` still exists.

    On another machine only its heartbeat tells: None or older than two heartbeats counts as gone.
    """
    if holder.host != host():
        return heartbeat_age is not None and heartbeat_age < 2 * HEARTBEAT
    if holder.boot != boot():
        return False
    import psutil

    try:
        process = psutil.Process(holder.pid)
        return abs(process.create_time() - holder.started) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def read_holder(layout: Layout) -> Holder | None:
    """Who holds the session, as far as the file says; None when nobody does."""
    try:
        return from_json(layout.holder.read_bytes(), Holder)
    except (OSError, msgspec.DecodeError):
        return None


class Lease:
    """The right to append, held from `acquire` to `release`."""

    def __init__(self, layout: Layout, epoch: int, lock: BaseFileLock, holder: Holder) -> None:
        self.layout = layout
        self.epoch = epoch
        self.holder = holder
        self._lock = lock
        self._own = os.fspath(layout.lease(epoch))
        self._fence = os.fspath(layout.lease(epoch + 1))
        self._own_name = os.path.basename(self._own)
        self._fence_name = os.path.basename(self._fence)
        self._lock_files_go = lock_files_go(layout.root)

    def fenced(self, folder: int = -1) -> bool:
        """Whether a newer epoch exists, or is being created.

        `folder` is a descriptor of the session's folder, if there is one: from it names are found faster than by whole paths.
        Lock files of epochs long gone are removed, this holder's own first; where releasing a lock removes its file, the names
        of the journals tell.
        """
        if folder >= 0:
            gone = os.access(self._fence_name, os.F_OK, dir_fd=folder) or not os.access(self._own_name, os.F_OK, dir_fd=folder)
        else:
            gone = os.access(self._fence, os.F_OK) or not os.access(self._own, os.F_OK)
        if gone:
            return True
        return self._lock_files_go and self.layout.epoch() > self.epoch

    def sign(self, disk: Disk) -> None:
        """Write `holder.json`.  To be done as soon as the lock is there: until then nobody can say who has it."""
        disk.replace(self.layout.holder, msgspec.json.encode(self.holder))

    def announce(self) -> None:
        """Change the time of the folder of all sessions: one look at it then tells whoever remembers how they were that some
        session goes on.  To be done when the journal exists, and before the first event."""
        os.utime(self.layout.root.parent)

    def release(self) -> None:
        """Give the lease back; harmless when it was lost."""
        found = read_holder(self.layout)
        if found is not None and found.epoch == self.epoch:
            with contextlib.suppress(OSError):
                self.layout.holder.unlink()
        self._lock.release()


def acquire(layout: Layout, who: Holder, *, now: float, force: bool = False) -> Lease:
    """The lease of the next epoch, with its lock held and its journal still to be created.

    Raises LeaseHeld, naming the holder, when somebody else has it.
    """
    while True:
        epoch = layout.epoch()
        old = None
        if epoch and not force:
            old = _try_lock(layout.lease(epoch))
            if old is None:
                raise _held(layout)
        try:
            if layout.epoch() != epoch:
                continue
            lock = _try_lock(layout.lease(epoch + 1))
            if lock is None:
                raise _held(layout)
            if layout.epoch() != epoch:
                lock.release()
                continue
            holder = msgspec.structs.replace(who, epoch=epoch + 1, since=now)
            return Lease(layout, epoch + 1, lock, holder)
        finally:
            if old is not None:
                old.release()


@contextlib.contextmanager
def held(layout: Layout, by: str, *, now: float, disk: Disk) -> Generator[None]:
    """The lease for who changes files beside the log, so that nobody begins to write meanwhile; `by` says what for.

    Raises LeaseHeld.  A disk that refuses the name is no reason not to go on: what is done may be what makes room on it.
    """
    taken = acquire(layout, msgspec.structs.replace(this_process(by=by), beside=True), now=now)
    try:
        with contextlib.suppress(OSError):
            taken.sign(disk)
        yield
    finally:
        taken.release()


def holding(layout: Layout) -> Holder | None:
    """Who seems to hold the lease, None when nobody does.  Looks, and takes no lock, so that readers never stand in a taker's
    way."""
    holder = read_holder(layout)
    return holder if holder is not None and is_alive(holder, heartbeat_age=heartbeat_age(layout)) else None


def heartbeat_age(layout: Layout) -> float | None:
    """Seconds since a holder last wrote `live.json` or announced itself, by the files' times; None when there is neither."""
    written = []
    for path in (layout.live, layout.holder):
        with contextlib.suppress(OSError):
            written.append(path.stat().st_mtime)
    return max(0.0, time.time() - max(written)) if written else None


def silence(layout: Layout) -> float | None:
    """Seconds since the holder's last sign of life, once these are more than two heartbeats (R133); None before that."""
    age = heartbeat_age(layout)
    return age if age is not None and age >= 2 * HEARTBEAT else None


def forget_older(layout: Layout, epoch: int) -> None:
    """Remove the lock files of epochs long gone, the oldest first: a holder whose own is gone knows that it is fenced.

    The last two stay, and so does everything after one that cannot be removed, since its holder may still look.
    """
    numbers = sorted(int(found[1]) for name in os.listdir(layout.root) if (found := LEASE.fullmatch(name)))
    for number in numbers:
        if number >= epoch - 1:
            return
        try:
            layout.lease(number).unlink(missing_ok=True)
        except OSError:
            return


def _held(layout: Layout) -> LeaseHeld:
    holder = _named(layout)
    beside = holder is not None and holder.beside
    # without a name the last sign of life is that of one who is gone, and who runs no task gives none
    age = silence(layout) if holder and not beside else None
    who = holder.describe() if holder else "another process"
    who += ", this process" if holder and (holder.pid, holder.host) == (os.getpid(), host()) else ""
    silent = f", silent for {age:.0f} s" if age is not None else ""
    if beside:
        hint = "try again when it is done"
    elif holder is None:
        hint = "try again in a moment; if a task goes on there, pause, cancel and approve work from here"
    else:
        hint = "its task goes on there; pause, cancel and approve work from here"
    if silent:
        hint += f"; take it over with ipyagent resume {layout.root.name} --take-over"
    return LeaseHeld(f"session {layout.root.name} is held by {who}{silent}", hint=hint)


def _named(layout: Layout) -> Holder | None:
    """Who holds it, None when that cannot be known.

    Whoever takes the lease writes his name a moment after he has the lock; until then that of one who died may stand there.
    """
    deadline = time.monotonic() + _NAMED_S
    while True:
        holder = holding(layout)
        if holder is not None:
            return holder
        if time.monotonic() > deadline:
            return None
        time.sleep(0.01)


def _try_lock(path: Path) -> BaseFileLock | None:
    """The lock on `path`, or None when somebody has it."""
    import filelock

    lock = filelock.FileLock(path, timeout=0, thread_local=False, is_singleton=False)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        return None
    return lock


def lock_files_go(folder: Path) -> bool:
    """Whether releasing a lock in `folder` removes its file."""
    return sys.platform == "win32" or uses_soft_lock(folder)


def uses_soft_lock(folder: Path) -> bool:
    """Whether locks in `folder` fall back to marker files, because the file system has none."""
    if sys.platform == "win32":
        return False
    import fcntl

    probe = folder / f".lock-probe-{os.getpid()}-{threading.get_ident()}"
    try:
        with open(probe, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno != errno.ENOSPC
    finally:
        probe.unlink(missing_ok=True)
    return False
