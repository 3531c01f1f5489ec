"""One open folder, and what may be done with the names in it, none of which is ever followed when it is a link.

Where the platform has them, everything goes by folder descriptors and O_NOFOLLOW, one name at a time: a link that somebody
puts in place between a check and its use is refused by the kernel.  Elsewhere (Windows) each step is checked by name just
before it is taken, which leaves a moment in between.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Final

from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.log.files import sync_file

BY_DESCRIPTOR: Final = hasattr(os, "O_NOFOLLOW") and hasattr(os, "O_DIRECTORY") and os.open in os.supports_dir_fd
_FILE: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_BINARY: Final = getattr(os, "O_BINARY", 0)
_SURROGATE: Final = 0x20000000
"""The bit of a Windows reparse tag that says: this name stands for another one."""


class Missing(UsageError):
    """There is nothing of that name."""


class Folder:
    """A folder that was reached without following a link.  Close it, or use it with `with`."""

    def __init__(self, path: str, *, by_descriptor: bool, at: int | None = None, name: str = "") -> None:
        self.path = path
        self._by_descriptor = by_descriptor
        self._fd: int | None = None
        if by_descriptor:
            flags = os.O_RDONLY | os.O_DIRECTORY | getattr(os, "O_CLOEXEC", 0)
            self._fd = os.open(path, flags) if at is None else os.open(name, flags | os.O_NOFOLLOW, dir_fd=at)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def identity(self) -> tuple[int, int]:
        """Device and inode: what the folder is, whatever it is called."""
        found = os.stat(self.path) if self._fd is None else os.fstat(self._fd)
        return found.st_dev, found.st_ino

    def status(self, name: str) -> os.stat_result | None:
        """What `name` is, not what it points to; None when there is nothing."""
        try:
            return os.stat(self._at(name), dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def enter(self, name: str) -> Folder:
        """The folder `name` in this one.  Raises UsageError for a link and for what is no folder."""
        found = self.status(name)
        if found is None:
            raise Missing(f"there is no folder {name}", hint="see what there is with list_files")
        _refuse_link(found, name)
        if not stat.S_ISDIR(found.st_mode):
            raise UsageError(f"{name} is a file, not a folder")
        try:
            return Folder(os.path.join(self.path, name), by_descriptor=self._by_descriptor, at=self._fd, name=name)
        except NotADirectoryError:
            raise _link(name) from None
        except OSError as error:
            raise UsageError(f"{name} cannot be opened: {error.strerror}") from error

    def open(self, name: str) -> int:
        """A descriptor of the regular file `name`, to be read.  Raises UsageError for a link and for anything else."""
        found = self.status(name)
        if found is None:
            raise Missing(f"there is no file {name}", hint="see what there is with list_files")
        _refuse_link(found, name)
        if not stat.S_ISREG(found.st_mode):
            raise UsageError(f"{name} is a {'folder' if stat.S_ISDIR(found.st_mode) else 'special file'}, not a file")
        try:
            fd = os.open(self._at(name), os.O_RDONLY | _FILE | _BINARY, dir_fd=self._fd)
        except OSError as error:
            raise UsageError(f"{name} cannot be read: {error.strerror}") from error
        if not os.path.samestat(os.fstat(fd), found):
            os.close(fd)
            raise UsageError(f"{name} was replaced while it was opened", hint="try again")
        return fd

    def make(self, name: str) -> None:
        """Make a folder; harmless when there is one."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._at(name), dir_fd=self._fd)

    def create(self, name: str, data: bytes, mode: int | None) -> os.stat_result:
        """A new file that holds `data`, on disk.  `mode` are its permissions, None for the usual ones of a new file."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE | _BINARY
        self.remove(name)  # what a process that died had left
        fd = os.open(self._at(name), flags, 0o666 if mode is None else mode & 0o777, dir_fd=self._fd)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(fd, mode)
            sync_file(fd)
            return os.fstat(fd)
        except BaseException:
            self.remove(name)
            raise
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        """Give `old` the place of `new`, at once, and make that durable."""
        os.replace(self._at(old), self._at(new), src_dir_fd=self._fd, dst_dir_fd=self._fd)
        self.sync()

    def sync(self) -> None:
        """Make what was renamed or removed durable, where folders can be synced."""
        if self._fd is not None:
            os.fsync(self._fd)

    def remove(self, name: str) -> None:
        """Remove a file; harmless when there is none."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._at(name), dir_fd=self._fd)

    def names(self) -> list[str]:
        """What is in it, sorted."""
        return sorted(os.listdir(self.path if self._fd is None else self._fd))

    def check_spelling(self, name: str) -> None:
        """Raise UsageError when `name` is there in other letters: one file under two names would be remembered twice."""
        here, other = self.status(name), self.status(name.swapcase())
        if here is None or other is None or name == name.swapcase() or not os.path.samestat(here, other):
            return
        written = self.names()
        if name not in written:
            true = next((n for n in written if n.casefold() == name.casefold()), "another way")
            raise UsageError(f"{name} is written {true} here", hint="use that spelling")

    def _at(self, name: str) -> str:
        return name if self._fd is not None else os.path.join(self.path, name)


def is_link(found: os.stat_result) -> bool:
    """Whether a name stands for another: a symbolic link, or a junction of Windows."""
    return stat.S_ISLNK(found.st_mode) or bool(getattr(found, "st_reparse_tag", 0) & _SURROGATE)


def _refuse_link(found: os.stat_result, name: str) -> None:
    if is_link(found):
        raise _link(name)


def _link(name: str) -> UsageError:
    return UsageError(f"{name} is a symbolic link, and links are not followed", hint="use the path of what it points to")
