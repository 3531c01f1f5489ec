"""What importing costs: the engine in a fresh process, and the extension in a real kernel that has just started."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from measure import SAMPLES, Row, child, child_environment, row

LOAD = """
import time
begun = time.perf_counter()
get_ipython().run_line_magic("load_ext", "ipyagent")
print("took", time.perf_counter() - begun)
"""


def measure(work: Path) -> Iterator[Row]:
    for module in ("ipyagent_sessions", "ipyagent_sessions.run.launch"):
        took = [child(work, "imports", module)["ms"] for _ in range(SAMPLES + 1)][1:]
        yield row(f"import {module} in a fresh process", took, "ms", at_most=200)
    if importlib.util.find_spec("ipyagent") is None:
        print("  the magics (package ipyagent) are not here: %load_ext is left out")
        return
    yield row(
        "%load_ext ipyagent in a kernel that has just started",
        [_load(work) for _ in range(SAMPLES + 1)][1:],
        "ms",
        at_most=200,
    )


def _load(work: Path) -> float:
    """Milliseconds, in a new kernel with a store of its own."""
    from jupyter_client.manager import start_new_kernel

    environment = {**child_environment(work), "IPYAGENT_STORE": str(work / "store")}
    manager, client = start_new_kernel(kernel_name="python3", env=environment, cwd=os.fspath(work))
    said: list[str] = []
    try:
        reply = client.execute_interactive(
            LOAD, timeout=60, output_hook=lambda message: said.append(str(message["content"].get("text", "")))
        )
        if reply["content"]["status"] != "ok":
            raise RuntimeError("\n".join(reply["content"]["traceback"]))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return float("".join(said).rpartition("took ")[2].split()[0]) * 1000
