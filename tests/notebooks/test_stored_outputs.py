"""The notebooks of this repository do what they show: each cell runs again, and nbval compares its output with the stored one.

They run in a folder of their own whose name has a blank and letters beyond ASCII, on a fresh store.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SANITIZER = files("ipyagent_sessions.testing") / "nbval_sanitize.cfg"
CELL_S = 240


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "notebook", ["demo.ipynb", *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("examples/*.ipynb"))]
)
def test_every_cell_gives_again_what_is_stored_in_the_notebook(notebook: str, tmp_path: Path) -> None:
    folder = tmp_path / "项目 测试" / "é"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / notebook, folder)
    beside = (ROOT / notebook).with_suffix("")
    if beside.is_dir():  # what the notebook reads: a folder of the same name
        shutil.copytree(beside, folder / beside.name)
    environment = {
        **os.environ,
        "IPYAGENT_STORE": str(tmp_path / "store"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    environment.pop("JPY_SESSION_NAME", None)
    tested = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "--color=no", "--nbval", "--nbval-current-env"),
            *("--nbval-sanitize-with", str(SANITIZER), "--nbval-cell-timeout", str(CELL_S), Path(notebook).name),
        ],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout[-8000:] + tested.stderr[-2000:]
