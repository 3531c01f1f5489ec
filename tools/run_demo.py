"""Runs a notebook from its first cell to its last without a browser, says what it is at, and in a few lines what happened.

The store, the IPython profile and the working folder are fresh and private, so no earlier session and no start-up file of
somebody's changes what comes out.  Exit code 1, with the cell and its error, when the notebook does not reach its end.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any, Final

import nbformat as untyped_nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, CellTimeoutError, DeadKernelError

nbformat: Final[Any] = untyped_nbformat
"""It claims to be typed and annotates none of its functions."""

CLOSING_LINES: Final = 24
COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run a notebook headless and say what happened.")
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="where the executed notebook goes")
    parser.add_argument("--work", type=Path, required=True, help="folder of this run; emptied first")
    parser.add_argument("--timeout", type=int, default=300, help="seconds that one cell may take")
    args = parser.parse_args(argv)

    work: Path = args.work.resolve()
    shutil.rmtree(work, ignore_errors=True)
    beside: Path = args.notebook.with_suffix("")
    (work / "files").mkdir(parents=True)
    if beside.is_dir():  # what the notebook reads: a folder of the same name
        shutil.copytree(beside, work / "files" / beside.name)
    os.environ["IPYAGENT_STORE"] = str(work / "store")
    os.environ["IPYTHONDIR"] = str(work / "ipython")

    notebook = nbformat.read(args.notebook, as_version=4)
    started = time.monotonic()
    client = NotebookClient(
        notebook,
        timeout=args.timeout,
        resources={"metadata": {"path": str(work / "files")}},
        record_timing=False,
        on_cell_start=_Sections(notebook, started).begin,
        # else the kernel warns on each start that it talks TCP, to a client on the same machine
        extra_arguments=["--log-level=ERROR"],
    )
    failure: str | None = None
    try:
        client.execute()
    except (CellControlSignal, CellTimeoutError, DeadKernelError) as error:
        failure = COLOURS.sub("", str(error)).strip()
    finally:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, args.out)

    code: list[Any] = [cell for cell in notebook.cells if cell.cell_type == "code"]
    ran = [cell for cell in code if cell.execution_count is not None]
    where = f"executed notebook: {_shown(args.out)}\nits store:         {_shown(work / 'store')}"
    if failure is not None:
        print(f"\n{args.notebook.name} stopped at code cell {len(ran)} of {len(code)}:\n{failure}\n\n{where}", file=sys.stderr)
        return 1
    print(f"\n{args.notebook.name}: {len(ran)} of {len(code)} code cells ran in {time.monotonic() - started:.0f} s\n")
    print(f"{_closing(code)}\n\n{where}")
    return 0


class _Sections:
    """Prints a section's heading when its first cell starts."""

    def __init__(self, notebook: Any, started: float) -> None:
        self._started = started
        self._heading: dict[int, str] = {}
        self._last = heading = ""
        for index, cell in enumerate(notebook.cells):
            found = re.search(r"^##? (.+)$", cell.source, re.MULTILINE) if cell.cell_type == "markdown" else None
            heading = found[1] if found else heading
            self._heading[index] = heading

    def begin(self, cell: Any, cell_index: int) -> None:
        heading = self._heading[cell_index]
        if cell.cell_type == "code" and heading != self._last:
            self._last = heading
            print(f"{time.monotonic() - self._started:4.0f} s  {heading}", flush=True)


def _closing(code: list[Any]) -> str:
    """The text of the last cell that showed any, its last lines."""
    for cell in reversed(code):
        text = "".join(_text(output) for output in cell.outputs).strip()
        if text:
            return "\n".join(text.splitlines()[-CLOSING_LINES:])
    return "(no cell showed any text)"


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text)
    return str(output.get("data", {}).get("text/plain", "")) + "\n"


def _shown(path: Path) -> str:
    """Relative to where the command was given, when it lies below."""
    path = path.resolve()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


if __name__ == "__main__":
    sys.exit(main())
