"""Children in real ipykernels: the same work as a cell of a notebook, in a kernel started by jupyter_client."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Final

import msgspec
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from tests.kill.child import Spec
from tests.kill.nursery import child_environment

START_S: Final = 60.0


class Kernel:
    """A kernel that has been started; after `ready` it has the engine imported and takes a cell."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._manager = KernelManager()
        self._manager.connection_file = str(folder / f"kernel-{id(self):x}.json")
        self._manager.start_kernel(
            env=child_environment(), cwd=str(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.kernel_id = str(self._manager.kernel_id or f"{id(self):x}")
        provisioner = self._manager.provisioner
        process = getattr(provisioner, "process", None)
        assert isinstance(process, subprocess.Popen)
        self._process = process
        self.pid: int = process.pid
        self._client: BlockingKernelClient = self._manager.client()
        self._client.start_channels()

    def ready(self) -> None:
        """Wait until it has started."""
        self._client.wait_for_ready(timeout=START_S)
        self._cell("from tests.kill.child import main_of")

    def _cell(self, code: str) -> None:
        """Run a cell to its end.  Raises RuntimeError with what it raised."""
        reply = self._client.execute_interactive(code, timeout=START_S, output_hook=lambda message: None)
        if reply["content"]["status"] != "ok":
            raise RuntimeError("\n".join(reply["content"].get("traceback", ["the kernel refused a cell"])))

    def run(self, spec: Spec) -> None:
        """Start the cell that does what `spec` says; it blocks the kernel until it ends or dies."""
        text = msgspec.json.encode(msgspec.structs.replace(spec, kernel=self.kernel_id)).decode()
        self._message = self._client.execute(f"main_of({text!r})")

    def wait(self, timeout: float) -> int | None:
        """The exit code once the kernel is dead, 0 once the cell has ended, None when neither came in `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            code = self._process.poll()
            if code is not None:
                return int(code)
            if (
                self._client.shell_channel.msg_ready()
                and self._client.get_shell_msg(timeout=1)["parent_header"].get("msg_id") == self._message
            ):
                return 0
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.003)

    def signal(self, number: int) -> None:
        """Send a signal to the kernel's process and no other."""
        self._process.send_signal(number)

    def close(self) -> None:
        """End the kernel and everything that belongs to it."""
        self._client.stop_channels()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(START_S)
        self._manager.cleanup_resources()
