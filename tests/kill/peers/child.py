"""The process that is killed: begins a library's run, or goes on with it as the library's documentation says.

    python -m tests.kill.peers.child LIBRARY                       prints its version, or `missing: ...`
    python -m tests.kill.peers.child LIBRARY FOLDER [WORD WHO]     runs, and kills itself right after that note

LIBRARY is a module of `tests.kill.peers.libraries`, with

    PACKAGES                        what has to be installed, of which the first gives the version
    run(folder, witness) -> list    begins or goes on, answers the question once it is asked, gives the result
"""

from __future__ import annotations

import importlib
import json
import sys
from importlib import metadata
from pathlib import Path

from tests.kill.peers.steps import APPROVAL, note
from tests.kill.witness import Trap, Witness


def version_of(library: str) -> str:
    """The versions of what `library` needs, or what is missing."""
    try:
        module = importlib.import_module(f"tests.kill.peers.libraries.{library}")
    except ImportError as error:
        return f"missing: {error}"
    return ", ".join(f"{name} {_version(name)}" for name in module.PACKAGES)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "from its sources"


def main(library: str, folder: Path, word: str = "", who: str = "") -> None:
    witness = Witness(str(folder / "witness.jsonl"))
    if word:
        Witness.after = Trap(word, who)
    module = importlib.import_module(f"tests.kill.peers.libraries.{library}")
    witness.note("ready")
    result = module.run(folder / "kept", witness)
    witness.note("done", result=json.loads(json.dumps(result)))


def asked(witness: Witness) -> None:
    """Note that a person has been asked; whoever calls this answers at once."""
    note(witness, "asked", APPROVAL)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(version_of(sys.argv[1]))
    else:
        main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
