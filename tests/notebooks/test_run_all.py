"""Restart and Run All in a browser, where a cell may wait for somebody, and once more in the same store: nobody is needed, and
what a notebook prints is what is stored in it."""

from __future__ import annotations

import os
import queue
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import nbformat as untyped_nbformat
import pytest
from tests.kernel.notebook import DEADLINE_S, Notebook, Ran

nbformat: Final[Any] = untyped_nbformat
ROOT: Final = Path(__file__).parents[2]
ASKING: Final = ("demo.ipynb", "examples/data_migration.ipynb", "examples/test_generation.ipynb")
"""They ask a person.  So does environment_report, in the same way and in twice the time of the other examples."""
LONG: Final = re.compile(r"## (?:[2348]\. |What is not)")
"""The sections of the demo about the audit, which takes most of its minute; no other section needs them."""
ID: Final = re.compile(r"\b[a-z][0-9a-z]{9}\b")


@pytest.mark.parametrize("notebook", ASKING)
def test_run_all_needs_nobody_and_can_be_done_again(notebook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    beside = (ROOT / notebook).with_suffix("")
    if beside.is_dir():  # what the notebook reads: a folder of the same name
        shutil.copytree(beside, tmp_path / beside.name)
    for _ in range(2):
        with Notebook(tmp_path, notebook=Path(notebook).name) as opened:
            for cell in _code(notebook):
                _expect(cell, _ran(opened, cell))


def _code(notebook: str) -> Iterator[Any]:
    """The code cells, of the demo without its long sections."""
    left_out = False
    for cell in nbformat.read(ROOT / notebook, as_version=4).cells:
        if cell.cell_type == "code" and not left_out:
            yield cell
        elif cell.cell_type == "markdown" and cell.source.startswith("## "):
            left_out = notebook == "demo.ipynb" and LONG.match(cell.source) is not None


def _ran(opened: Notebook, cell: Any) -> Ran:
    try:
        return opened.run(cell.source)
    except queue.Empty:
        pytest.fail(f"the cell {cell.id} still waits after {DEADLINE_S:.0f} s")


def _expect(cell: Any, ran: Ran) -> None:
    tags = cell.metadata.get("tags", [])
    assert (ran.error is not None) == ("raises-exception" in tags), f"{cell.id}: {ran.message or 'raised nothing'}"
    if not tags and all(output.output_type == "stream" for output in cell.outputs):
        stored = "".join(output.text for output in cell.outputs)
        assert ID.sub("ID", ran.text) == ID.sub("ID", stored), cell.id
