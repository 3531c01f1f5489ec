"""A real kernel, driven as a front end drives it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

DEADLINE_S = 60.0

DEFINITIONS = """
import os, time
from pathlib import Path
from ipyagent import workflow, activity, Retry

def mark(text):
    fd = os.open(os.environ["WITNESS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, (text + "\\n").encode())
    os.close(fd)

def gate(name):
    while not Path(os.environ["WITNESS"] + "." + name).exists():
        time.sleep(0.01)

@activity(effect="none")
def step(i):
    mark(f"begin {i}")
    if i == 2:
        gate("go")
    mark(f"end {i}")
    return i * i

@workflow
async def audit(ctx, n: int = 4):
    ctx.expect(n)
    total = 0
    for i in range(n):
        total += await ctx.run(step, i, key=i)
    return total
"""


class Ran(NamedTuple):
    """What one execution gave: texts of streams and displays, HTML of displays, and the error's name, text and traceback."""

    text: str
    html: str
    error: str | None
    message: str
    traceback: list[str]
    displays: int
    updates: int


class Notebook:
    """A kernel with a store and a witness file of its own."""

    def __init__(self, folder: Path, *, notebook: str | None = "a.ipynb", cwd: Path | None = None) -> None:
        self.folder = folder
        self.witness = folder / "witness"
        env = {
            **os.environ,
            "IPYAGENT_STORE": str(folder / "store"),
            "WITNESS": str(self.witness),
            "IPYTHONDIR": str(folder / "ipython"),
        }
        env.pop("JPY_SESSION_NAME", None)
        if notebook is not None:
            env["JPY_SESSION_NAME"] = str(folder / notebook)
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(env=env, cwd=str(cwd or folder))
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def send(self, code: str, *, headless: bool = False) -> str:
        """Send a cell and return at once with the id of its request."""
        return str(self.client.execute(code, allow_stdin=not headless))

    def receive(self, request: str) -> Ran:
        """Everything that the cell of `request` gives until the kernel is idle again."""
        texts: list[str] = []
        htmls: list[str] = []
        error, message, traceback = None, "", list[str]()
        displays = updates = 0
        deadline = time.monotonic() + DEADLINE_S
        while True:
            got: dict[str, Any] = self.client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
            if got["parent_header"].get("msg_id") != request:
                continue
            kind, content = got["msg_type"], got["content"]
            if kind == "stream":
                texts.append(content["text"])
            elif kind in ("display_data", "execute_result", "update_display_data"):
                displays += kind != "update_display_data"
                updates += kind == "update_display_data"
                texts.append(content["data"].get("text/plain", "") + "\n")
                htmls.append(content["data"].get("text/html", ""))
            elif kind == "error":
                error, message, traceback = content["ename"], content["evalue"], content["traceback"]
            elif kind == "status" and content["execution_state"] == "idle":
                return Ran("".join(texts), "\n".join(htmls), error, message, traceback, displays, updates)

    def run(self, code: str, *, headless: bool = False) -> Ran:
        """Run a cell to its end."""
        return self.receive(self.send(code, headless=headless))

    def complete(self, code: str) -> list[str]:
        """What the Tab key offers at the end of `code`."""
        request = self.client.complete(code, len(code))
        while True:
            answer: dict[str, Any] = self.client.get_shell_msg(timeout=DEADLINE_S)
            if answer["parent_header"].get("msg_id") == request:
                return list(answer["content"]["matches"])

    def until_marked(self, line: str, times: int = 1) -> None:
        """Wait until the witness holds `line` that often."""
        deadline = time.monotonic() + DEADLINE_S
        while self.marks().count(line) < times:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the witness has no {line!r}: {self.marks()}")
            time.sleep(0.01)

    def marks(self) -> list[str]:
        """The lines of the witness."""
        return self.witness.read_text().splitlines() if self.witness.exists() else []

    def open_gate(self) -> None:
        """Let the step go on that waits."""
        Path(f"{self.witness}.go").touch()

    def kill(self) -> None:
        """SIGKILL the kernel, as the out-of-memory killer does."""
        os.kill(self.pid, signal.SIGKILL)

    def interrupt(self) -> None:
        """What the stop button does."""
        os.kill(self.pid, signal.SIGINT)

    @property
    def pid(self) -> int:
        provisioner: Any = self.manager.provisioner
        return int(provisioner.pid)
