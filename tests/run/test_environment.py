"""The environment that a task ran under: what is read without asking the program it belongs to must be what that would say."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ipyagent_sessions.run import environment

GIT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
}


def git(folder: Path, *words: str) -> str:
    names = {k.replace("AUTHOR", "COMMITTER"): v for k, v in GIT.items()}
    done = subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True, env={**os.environ, **GIT, **names}
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    try:
        subprocess.run(["git", "--version"], capture_output=True, check=True)
    except OSError:
        pytest.skip("git is not installed")
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    return root


def revision(folder: Path) -> str | None:
    found: str | None = environment.snapshot(str(folder))["git"]
    return found


def test_the_revision_is_what_git_says_in_every_kind_of_checkout(repository: Path, tmp_path: Path) -> None:
    assert revision(repository) is None  # no commit yet
    git(repository, "commit", "-q", "--allow-empty", "-m", "one")
    inside = repository / "notebooks" / "deep"
    inside.mkdir(parents=True)
    assert revision(inside) == git(repository, "rev-parse", "HEAD")
    git(repository, "pack-refs", "--all")
    assert revision(inside) == git(repository, "rev-parse", "HEAD")
    git(repository, "worktree", "add", "-q", "-b", "other", str(tmp_path / "worktree"))
    git(tmp_path / "worktree", "commit", "-q", "--allow-empty", "-m", "two")
    assert revision(tmp_path / "worktree") == git(tmp_path / "worktree", "rev-parse", "HEAD") != revision(repository)
    git(repository, "checkout", "-q", "--detach")
    assert revision(repository) == git(repository, "rev-parse", "HEAD")


def test_without_a_repository_there_is_no_revision(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()  # not a repository, whatever it is
    if any((place / ".git" / "HEAD").exists() for place in tmp_path.parents):
        pytest.skip("the temporary folder lies in a repository")
    assert revision(tmp_path) is None
