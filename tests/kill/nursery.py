"""Children by fork from a warm parent: a process that has imported the engine, and has no thread and no open session.

    nursery = Nursery(folder)
    child = nursery.start(spec)          # a real process, in some milliseconds
    child.wait(1.0)                      # its exit code, or None: it still runs
    child.signal(signal.SIGSTOP)         # sent by the parent, which knows that the id is still this child's
    nursery.close()                      # kills what is left, by id

The parent ends, and with it what it started, when its standard input is closed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Final

import msgspec
from tests.kill.child import Spec, main

ROOT: Final = Path(__file__).resolve().parents[2]
ANSWER_S: Final = 60.0


def child_environment() -> dict[str, str]:
    """The environment in which a child finds this package, and the engine where this process found it."""
    import ipyagent_sessions

    engine = str(Path(ipyagent_sessions.__file__).resolve().parents[1])
    more = [] if "site-packages" in engine else [engine]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*more, str(ROOT)]), "OPENBLAS_NUM_THREADS": "1"}


class Forked:
    """A child of the nursery."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None
        self._nursery = nursery

    def wait(self, timeout: float) -> int | None:
        """The exit code (negative for a signal), None when it runs on after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while self.status is None:
            left = deadline - time.monotonic()
            if not self._nursery.listen(max(0.0, left)) and left <= 0:
                return None
        return self.status

    def signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        self._nursery.tell({"signal": number, "pid": self.pid})

    def close(self) -> None:
        """Nothing is left of it but its status."""


class Nursery:
    """The parent of the children, seen from the harness.  For one thread."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / f"nursery-{id(self):x}.log"
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-m", "tests.kill.nursery"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=child_environment(),
                cwd=folder,
            )
        self._children: dict[int, Forked] = {}
        self._born: list[Forked] = []
        self._rest = b""

    def start(self, spec: Spec) -> Forked:
        self.tell({"spec": msgspec.to_builtins(spec)})
        deadline = time.monotonic() + ANSWER_S
        while not self._born:
            if not self.listen(ANSWER_S) and time.monotonic() > deadline:
                raise TimeoutError(f"the nursery did not answer: {self.log.read_text()[-2000:]}")
        return self._born.pop()

    def tell(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()

    def listen(self, timeout: float) -> bool:
        """Take in what the parent says within `timeout` seconds; whether it said something."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        if not select.select([fd], [], [], timeout)[0]:
            return False
        data = os.read(fd, 65536)
        if not data:
            raise RuntimeError(f"the nursery has ended: {self.log.read_text()[-2000:]}")
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            word, pid, status = json.loads(line)
            if word == "born":
                self._children[pid] = Forked(self, pid)
                self._born.append(self._children[pid])
            else:
                self._children.pop(pid).status = status
        return True

    @property
    def alive(self) -> list[int]:
        """The ids of the children that have not ended."""
        return list(self._children)

    def end_all(self) -> None:
        """Kill the children that have not ended, and wait for their end."""
        for child in list(self._children.values()):
            child.signal(signal.SIGKILL)
            if child.wait(ANSWER_S) is None:
                raise TimeoutError(f"child {child.pid} does not die")

    def close(self) -> None:
        """End the children and their parent."""
        self.end_all()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(ANSWER_S)
        if self._process.stdout is not None:
            self._process.stdout.close()


def serve() -> None:
    """The parent: forks when told to, and says who was born and who died."""
    _warm()
    children: set[int] = set()
    rest = b""
    while True:
        if select.select([0], [], [], 0.003 if children else None)[0]:
            data = os.read(0, 65536)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                if "signal" in order:
                    if order["pid"] in children:
                        os.kill(order["pid"], order["signal"])
                    continue
                pid = os.fork()
                if pid == 0:
                    _be(msgspec.convert(order["spec"], Spec))
                children.add(pid)
                _say("born", pid, 0)
        while children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            children.discard(pid)
            _say("dead", pid, os.waitstatus_to_exitcode(status))
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _warm() -> None:
    """Import what a run needs.  Whatever starts a thread must wait until after the fork; the allocator of pyarrow has one that
    it brings through a fork by itself."""
    for name in ("filelock", "psutil", "pyarrow.compute", "pyarrow.parquet", "tenacity"):
        importlib.import_module(name)

    if sys.platform == "linux":
        names = [Path(f"/proc/self/task/{n}/comm").read_text().strip() for n in os.listdir("/proc/self/task")]
        if len([n for n in names if n != "jemalloc_bg_thd"]) > 1:
            raise RuntimeError(f"an import has started a thread, forking from here is not safe: {names}")


def _be(spec: Spec) -> None:
    """The child's whole life."""
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        main(spec)
        code = 0
    except BaseException:  # noqa: BLE001  # a child has no caller: whatever it was goes into the log
        traceback.print_exc()
    finally:
        os._exit(code)


def _say(word: str, pid: int, status: int) -> None:
    os.write(1, json.dumps([word, pid, status]).encode() + b"\n")


if __name__ == "__main__":
    serve()
