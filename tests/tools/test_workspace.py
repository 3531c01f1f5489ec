"""Below its root the workspace follows no link, whoever puts it there and whenever."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.workspace import folder
from ipyagent_sessions.workspace.workspace import Entry, Workspace


@pytest.fixture(params=["by descriptor", "by name"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The way of this platform, and the one of platforms without folder descriptors."""
    if request.param == "by name":
        monkeypatch.setattr(folder, "BY_DESCRIPTOR", False)
    elif not folder.BY_DESCRIPTOR:
        pytest.skip("this platform opens no files by folder descriptors")
    return str(request.param)


@pytest.fixture
def place(way: str, root: Path) -> Workspace:
    return Workspace(root)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A folder beside the workspace."""
    made = tmp_path / "secret"
    made.mkdir()
    (made / "key").write_text("the key")
    return made


def test_what_is_written_is_read_again(place: Workspace, root: Path) -> None:
    place.write("a/b/c.txt", b"one", before=None)
    assert place.read("a/b/c.txt") == b"one"
    assert (root / "a/b/c.txt").read_bytes() == b"one"
    assert place.read_if_there("a/x/y") is None
    assert place.read_if_there("a/x") is None
    assert place.size("a/b/c.txt") == 3
    assert place.size("a") is None


def test_a_link_to_outside_is_refused_wherever_it_stands(place: Workspace, root: Path, secret: Path) -> None:
    (root / "file").symlink_to(secret / "key")
    (root / "dir").symlink_to(secret)
    (root / "loop").symlink_to("loop")
    (root / "deep").mkdir()
    (root / "deep/up").symlink_to("../..")
    for path in ("file", "dir/key", "loop", "loop/x", "deep/up/secret/key", "dir"):
        with pytest.raises(UsageError, match="symbolic link"):
            place.read(path)
        with pytest.raises(UsageError, match="symbolic link"):
            place.write(path, b"changed", before=None)
    assert (secret / "key").read_text() == "the key"
    assert os.listdir(secret) == ["key"]


def test_a_link_inside_of_the_workspace_is_not_followed_either(place: Workspace, root: Path) -> None:
    (root / "true").write_text("x")
    (root / "link").symlink_to("true")
    with pytest.raises(UsageError, match="links are not followed"):
        place.read("link")


def test_a_hanging_link_is_not_written_through(place: Workspace, root: Path, secret: Path) -> None:
    (root / "new").symlink_to(secret / "new")
    with pytest.raises(UsageError, match="symbolic link"):
        place.write("new", b"x", before=None)
    assert not (secret / "new").exists()


def test_the_root_may_be_reached_by_a_link(way: str, root: Path, tmp_path: Path) -> None:
    (root / "a").write_text("x")
    (tmp_path / "alias").symlink_to(root)
    assert Workspace(tmp_path / "alias").read("a") == b"x"


def test_only_regular_files_are_opened_and_nothing_hangs(place: Workspace, root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "dir").mkdir()
    with pytest.raises(UsageError, match="special file"):
        place.read("pipe")
    with pytest.raises(UsageError, match="special file"):
        place.write("pipe", b"x", before=None)
    with pytest.raises(UsageError, match="is a folder"):
        place.read("dir")
    (root / "dir/x").write_text("")
    with pytest.raises(UsageError, match="is a file, not a folder"):
        place.write("dir/x/y", b"", before=None)


def test_the_permissions_of_a_file_stay(place: Workspace, root: Path) -> None:
    script = root / "run.sh"
    script.write_text("old")
    script.chmod(0o751)
    place.write("run.sh", b"new", before=b"old")
    assert stat.S_IMODE(script.stat().st_mode) == 0o751
    place.write("fresh", b"", before=None)
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((root / "fresh").stat().st_mode) == 0o666 & ~mask


def test_a_hard_link_is_cut_and_the_other_file_stays(place: Workspace, root: Path, secret: Path) -> None:
    os.link(secret / "key", root / "key")
    place.write("key", b"mine", before=b"the key")
    assert (secret / "key").read_text() == "the key"


def test_a_write_onto_what_changed_meanwhile_is_refused(place: Workspace, root: Path) -> None:
    (root / "a").write_text("a person's")
    with pytest.raises(UsageError, match="changed by somebody else meanwhile"):
        place.write("a", b"the model's", before=b"what it was")
    with pytest.raises(UsageError, match="meanwhile"):
        place.write("a", b"the model's", before=None)
    assert os.listdir(root) == ["a"]
    assert (root / "a").read_text() == "a person's"


def test_a_failing_rename_leaves_the_old_file_and_no_other(
    place: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a").write_text("old")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(UsageError, match="a cannot be written: No space left on device"):
        place.write("a", b"new", before=b"old")
    assert os.listdir(root) == ["a"]
    assert (root / "a").read_text() == "old"


def test_what_a_killed_writer_left_is_cleared_by_the_same_write_and_never_listed(
    place: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(folder.Folder, "rename", killed)
        patch.setattr(folder.Folder, "remove", lambda *_: None)
        with pytest.raises(Killed):
            place.write("a", b"new", before=None)
    assert len(os.listdir(root)) == 1
    assert list(place.walk()) == []
    place.write("a", b"new", before=None)
    assert os.listdir(root) == ["a"]


def test_protected_folders_are_closed_under_any_name(way: str, root: Path) -> None:
    store = root / "data" / "store"
    (store / "inbox").mkdir(parents=True)
    (store / "inbox" / "x.json").write_text("{}")
    place = Workspace(root, (store,))
    for path in ("data/store/inbox/x.json", "data/./store/inbox/x.json"):
        with pytest.raises(UsageError, match="belongs to ipyagent"):
            place.read(path)
        with pytest.raises(UsageError, match="belongs to ipyagent"):
            place.write(path, b"{}", before=None)
    assert list(place.walk()) == [Entry("data", "folder"), Entry("data/store", "folder", closed=True)]


def test_protected_files_are_closed_under_any_name_and_cannot_be_made(way: str, root: Path) -> None:
    (root / "conf").mkdir()
    (root / "conf/true.yaml").write_text("x")
    (root / "set.yaml").symlink_to("conf/true.yaml")
    os.link(root / "conf/true.yaml", root / "hard.yaml")
    place = Workspace(root, (root / "set.yaml", root / "not/yet.yaml", root / "later.yaml"))
    for path in ("set.yaml", "SET.yaml", "conf/true.yaml", "hard.yaml", "later.yaml", "Later.YAML"):
        with pytest.raises(UsageError, match=r"belongs to ipyagent"):
            place.write(path, b"y", before=None)
    with pytest.raises(UsageError, match="belongs to ipyagent"):
        place.write("not/yet.yaml", b"y", before=None)
    with pytest.raises(UsageError, match="belongs to ipyagent"):
        place.read("conf/true.yaml")
    assert (root / "conf/true.yaml").read_text() == "x"
    assert not (root / "not/yet.yaml").exists()
    assert not (root / "later.yaml").exists()


def test_a_protected_folder_that_is_not_there_yet_is_not_made(way: str, root: Path) -> None:
    place = Workspace(root, (root / "data" / "store",))
    with pytest.raises(UsageError, match="belongs to ipyagent"):
        place.write("data/store/inbox/x.json", b"{}", before=None)
    assert not (root / "data/store").exists()


@pytest.mark.parametrize("path", ["ipyagent.yaml", "a/b/ipyagent.yaml", "IPyAgent.YAML", "./ipyagent.yaml/."])
def test_a_file_that_would_give_permissions_is_written_nowhere(place: Workspace, root: Path, path: str) -> None:
    with pytest.raises(UsageError, match="would give permissions"):
        place.write(path, b"permissions: {effects: {irreversible: auto}}", before=None)
    assert list(root.iterdir()) == []


def test_a_name_in_other_letters_is_refused_where_it_is_the_same_file(
    place: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a file system does not tell capitals from small letters; played with a hard link that listings leave out."""
    (root / "Readme.md").write_text("x")
    os.link(root / "Readme.md", root / "rEADME.MD")
    assert place.read("rEADME.MD") == b"x"
    true = folder.Folder.names
    monkeypatch.setattr(folder.Folder, "names", lambda self: [n for n in true(self) if n != "rEADME.MD"])
    with pytest.raises(UsageError, match=r"is written Readme\.md here"):
        place.read("rEADME.MD")


def test_the_walk_names_links_and_closed_folders_and_follows_none(place: Workspace, root: Path, secret: Path) -> None:
    (root / "b").mkdir()
    (root / "b/x.txt").write_text("12345")
    (root / ".git").mkdir()
    (root / ".git/config").write_text("")
    (root / "out").symlink_to(secret)
    assert list(place.walk()) == [
        Entry(".git", "folder", closed=True),
        Entry("b", "folder"),
        Entry("b/x.txt", "file", 5),
        Entry("out", "link"),
    ]
    assert [e.path for e in place.walk(depth=1)] == [".git", "b", "out"]
    assert [e.path for e in place.walk("b")] == ["b/x.txt"]
    assert [e.path for e in place.walk(".git")] == [".git/config"]


def test_descriptors_do_not_leak(place: Workspace, root: Path) -> None:
    (root / "a/b").mkdir(parents=True)
    (root / "link").symlink_to("/")
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(20):
        place.write("a/b/c", b"x", before=place.read_if_there("a/b/c"))
        list(place.walk())
        for path in ("link/x", "a/missing/x", "a/b/c/d", "a"):
            with contextlib.suppress(UsageError):
                place.read(path)
    after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert after == before


needs_descriptors = pytest.mark.skipif(not folder.BY_DESCRIPTOR, reason="the promise needs folder descriptors")


@needs_descriptors
@pytest.mark.parametrize("look", range(1, 6))
@pytest.mark.parametrize("swapped", ["file", "dir", "dir/key"])
@pytest.mark.parametrize("writing", [False, True], ids=["read", "write"])
def test_a_link_put_in_place_between_check_and_use_is_not_followed(
    root: Path, secret: Path, monkeypatch: pytest.MonkeyPatch, swapped: str, look: int, writing: bool
) -> None:
    """A name is swapped for a link to outside right after it was looked at for the first time, the second, and so on."""
    place = Workspace(root)
    (root / "dir").mkdir()
    (root / "dir/key").write_text("mine")
    (root / "file").write_text("mine")
    true = folder.Folder.status
    last, looks = swapped.rpartition("/")[2], 0

    def status(self: folder.Folder, name: str) -> os.stat_result | None:
        nonlocal looks
        found = true(self, name)
        looks += name == last
        if name == last and looks == look:
            os.rename(root / swapped, root / "kept")
            os.symlink(secret if swapped == "dir" else secret / "key", root / swapped)
        return found

    monkeypatch.setattr(folder.Folder, "status", status)
    path = "dir/key" if swapped.startswith("dir") else "file"
    with contextlib.suppress(UsageError):
        if writing:
            place.write(path, b"changed", before=b"mine")
        else:
            assert place.read(path) != b"the key"
    assert (secret / "key").read_text() == "the key"
    assert os.listdir(secret) == ["key"]


@needs_descriptors
def test_links_that_come_and_go_are_never_followed(root: Path, secret: Path) -> None:
    """Two threads swap a folder and a file for links to the outside, as fast as they can, while another reads and writes."""
    place = Workspace(root)
    (root / "dir").mkdir()
    (root / "dir/key").write_text("mine")
    (root / "away").symlink_to(secret)
    (root / "file").write_text("mine")
    (root / "other").symlink_to(secret / "key")
    end = threading.Event()

    def swap(name: str, other: str) -> None:
        while not end.is_set():
            with contextlib.suppress(OSError):
                os.rename(root / name, root / f"{name}.kept")
                os.rename(root / other, root / name)
                os.rename(root / name, root / other)
                os.rename(root / f"{name}.kept", root / name)

    swappers = [threading.Thread(target=swap, args=pair) for pair in (("dir", "away"), ("file", "other"))]
    for thread in swappers:
        thread.start()
    seen: set[bytes] = set()
    try:
        for number in range(200):
            for path in ("dir/key", "file"):
                with contextlib.suppress(UsageError):
                    seen.add(place.read(path))
                with contextlib.suppress(UsageError):
                    place.write(path, b"written %d" % number, before=place.read_if_there(path))
    finally:
        end.set()
        for thread in swappers:
            thread.join()
    assert (secret / "key").read_text() == "the key"
    assert os.listdir(secret) == ["key"]
    assert b"the key" not in seen
    assert seen


_NAMES = st.sampled_from(["a", "b", "link", "out", "..", ".", "dir", "key", "secret", "/", "up"])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_NAMES, min_size=1, max_size=6).map("/".join), st.binary(max_size=20))
def test_no_path_reads_or_changes_what_is_outside(place: Workspace, root: Path, secret: Path, path: str, data: bytes) -> None:
    with contextlib.suppress(FileExistsError):
        (root / "dir").mkdir()
        (root / "link").symlink_to(secret)
        (root / "dir/up").symlink_to("../..")
        (root / "out").symlink_to(secret / "key")
    outside = dict(_files(secret.parent, but=root))
    with contextlib.suppress(UsageError):
        assert place.read(path) != b"the key"
    with contextlib.suppress(UsageError):
        place.write(path, data, before=place.read_if_there(path))
    assert dict(_files(secret.parent, but=root)) == outside


def _files(top: Path, *, but: Path) -> Iterator[tuple[str, bytes]]:
    for folder_, _, names in os.walk(top):
        if not Path(folder_).is_relative_to(but):
            for name in names:
                yield os.path.join(folder_, name), Path(folder_, name).read_bytes()
