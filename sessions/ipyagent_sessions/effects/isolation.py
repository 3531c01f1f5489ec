"""A workspace of a fork's own, so that two branches do not write over each other (R116).

Where the folder is in a git repository: a worktree at its newest commit, with what is not committed and not ignored copied
over.  Elsewhere: a copy of the folder (sharing blocks where the file system can), without folders like `.venv`.  Files that
agents wrote after the fork point are then brought back, in the copy only, to what they held there."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from ipyagent_sessions.effects.rollback import workspace_of
from ipyagent_sessions.errors import IpyagentError, UsageError
from ipyagent_sessions.retention import workspaces
from ipyagent_sessions.session import Session
from ipyagent_sessions.undo.files import Step, restore
from ipyagent_sessions.undo.ledger import Effect, ledger
from ipyagent_sessions.views import formats
from ipyagent_sessions.workspace.git import git
from ipyagent_sessions.workspace.workspace import SKIPPED, Workspace

BIGGEST: Final = 2 * 2**30
"""Bytes that are copied at most."""


class Made(NamedTuple):
    """`name` is what the fork's header says; `folder` is where the fork works.  `told` are lines for the person."""

    name: str
    folder: Path
    told: list[str]


def fork(session: Session, at: int | None, source: Path, *, direction: str = "", title: str = "") -> tuple[Session, Made]:
    """A fork of `session` at `at` (None: the newest event) in a workspace made from the folder `source`.

    What cannot be forked there is refused before anything is copied.  Raises as `Session.fork` and `make` do; nothing is left
    then.
    """
    seq = at or session.last_seq()
    session.check_fork(seq)
    made = make(session, seq, source)
    try:
        return session.fork(at, direction=direction, title=title, workspace=made.name), made
    except BaseException:
        workspaces.remove(session.place.workspaces_folder / made.name.partition("/")[0])
        raise


def make(session: Session, seq: int, source: Path) -> Made:
    """A workspace for a fork of `session` at `seq`, made from the folder `source`.

    Raises UsageError when it would be larger than two gigabytes or cannot be made; nothing is left then.
    """
    place = session.place
    place.workspaces_folder.mkdir(parents=True, exist_ok=True)
    made_id = place.ids()
    root = place.workspaces_folder / made_id
    if root.exists():
        raise UsageError(f"{root} is there already", hint="try again")
    try:
        made = _worktree(source, root) or _copy(source, root, place.root)
        folder = root / made.name
        told = [*made.told, *_as_it_was(session, seq, source, folder)]
    except BaseException as error:
        workspaces.remove(root)
        if isinstance(error, OSError):
            raise UsageError(f"the workspace could not be made: {error}") from error
        raise
    return Made(made_id if made.name == "." else f"{made_id}/{made.name}", folder, told)


def _worktree(source: Path, root: Path) -> Made | None:
    """A worktree of the repository that `source` is in, None where there is none to be had."""
    with contextlib.suppress(IpyagentError):
        top = git(source, "rev-parse", "--show-toplevel")
        if top.returncode == 0 and git(source, "rev-parse", "--verify", "--quiet", "HEAD").returncode == 0:
            repository = Path(os.fsdecode(top.stdout.rstrip(b"\n")))
            changed, gone = _uncommitted(repository)
            _check_size(sum(_size(repository / name) for name in changed), "what is not committed")
            done = git(repository, "worktree", "add", "--detach", "--quiet", os.fspath(root), "HEAD")
            if done.returncode == 0:
                return _with_uncommitted(repository, source, root, changed, gone)
            workspaces.remove(root)
    return None


def _uncommitted(repository: Path) -> tuple[list[str], list[str]]:
    """What the working tree has that its commit has not, and what it has no more; ignored files are neither."""
    changed = _listed(git(repository, "diff", "--name-only", "--no-renames", "--diff-filter=d", "-z", "HEAD"))
    new = _listed(git(repository, "ls-files", "--others", "--exclude-standard", "-z"))
    gone = _listed(git(repository, "diff", "--name-only", "--no-renames", "--diff-filter=D", "-z", "HEAD"))
    return [*changed, *(name for name in new if not name.endswith("/"))], gone


def _listed(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def _with_uncommitted(repository: Path, source: Path, root: Path, changed: list[str], gone: list[str]) -> Made:
    copied = 0
    for name in changed:
        if not (repository / name).is_dir():  # a submodule
            _copy_file(repository / name, root / name)
            copied += 1
    for name in gone:
        (root / name).unlink(missing_ok=True)
    told = [f"it works in {root}, a worktree of {repository} at its newest commit, on no branch"]
    if copied or gone:
        told.append(f"copied, since it is not committed: {_files(copied)}; removed there as here: {_files(len(gone))}")
    told.append("what git ignores and submodules were not copied")
    return Made(source.resolve().relative_to(repository.resolve()).as_posix(), root, told)


def _copy(source: Path, root: Path, store: Path) -> Made:
    skipped: list[str] = []

    def leave_out(folder: str, names: list[str]) -> set[str]:
        out = {n for n in names if n in SKIPPED or (Path(folder) / n).resolve() == store.resolve()}
        skipped.extend(sorted(out))
        return out

    size = sum(
        _size(Path(folder) / name)
        for folder, below, names in os.walk(source)
        for name in _kept(folder, below, names, leave_out)
    )
    _check_size(size, f"the copy of {source}")
    skipped.clear()
    shutil.copytree(source, root, symlinks=True, ignore=leave_out, copy_function=_copy_file)
    told = [f"it works in {root}, a copy of {source} ({formats.size(size)})"]
    if skipped:
        told.append(f"not copied: {', '.join(sorted(set(skipped)))}")
    return Made(".", root, told)


def _kept(folder: str, below: list[str], names: list[str], leave_out: Callable[[str, list[str]], set[str]]) -> list[str]:
    """The files of a folder that are copied; those of its folders that are not are no longer walked."""
    out = leave_out(folder, [*below, *names])
    below[:] = [name for name in below if name not in out]
    return [name for name in names if name not in out]


def _copy_file(source: str | Path, target: str | Path) -> str:
    """A copy with its times and permissions; blocks are shared where Linux can (FICLONE)."""
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    if os.path.islink(source) or not _cloned(Path(source), target):
        shutil.copy2(source, target, follow_symlinks=False)
    return os.fspath(target)


def _cloned(source: Path, target: Path) -> bool:
    try:
        import fcntl
    except ImportError:
        return False
    with contextlib.suppress(OSError):
        with open(source, "rb") as old, open(target, "wb") as new:
            fcntl.ioctl(new, _FICLONE, old.fileno())
        shutil.copystat(source, target)
        return True
    return False


_FICLONE: Final = 0x40049409
"""ioctl_ficlone(2)."""


def _size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _check_size(size: int, what: str) -> None:
    if size > BIGGEST:
        raise UsageError(
            f"{what} would be {formats.size(size)}, at most {formats.size(BIGGEST)} are copied",
            hint="fork without --isolate, or have the folder in a git repository that ignores what is large",
        )


def _as_it_was(session: Session, seq: int, source: Path, folder: Path) -> list[str]:
    """Bring the copy to the state at `seq`: files written later get what they held before, files that git ignores come too."""
    workspace = workspace_of(session, folder)
    effects = ledger(session.events())
    for path in session.state(seq).business_state.files:
        with contextlib.suppress(UsageError, OSError):
            if workspace.sha256(path) is None and (source / workspace.normal(path)).is_file():
                _copy_file(source / workspace.normal(path), folder / workspace.normal(path))
    back, told = set[str](), []
    for effect in effects:
        if effect.what != "file" or effect.seq <= seq or effect.name in back or effect.state == "rolled back":
            continue
        back.add(effect.name)
        why = _put_back(session, workspace, effect) if effect.restorable else "what it held is not known"
        if why:
            told.append(f"{effect.name} is there as it is now, not as it was at {seq}: {why}")
    done = len(back) - len(told)
    return ([f"back to what it held at event {seq}, in the copy only: {_files(done)}"] if done else []) + told


def _files(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"


def _put_back(session: Session, workspace: Workspace, effect: Effect) -> str:
    """Give a file of the copy what it held before a write; why not, if so."""
    try:
        now = workspace.read_if_there(effect.name)
        then = None if effect.before is None else session.blobs.read(effect.before)
        restore(workspace, Step(effect.name, "restore", [effect.seq], now=now, then=then))
    except IpyagentError as error:
        return error.message
    return ""
