"""No text of a path leads out of the workspace, on any platform."""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.workspace.names import parts

ROOT = PurePosixPath("/home/me/work")
DRIVE = PureWindowsPath(r"C:\work")

_PIECES = st.sampled_from(
    [
        "..",
        ".",
        "a",
        "b.txt",
        "/",
        "\\",
        "C:",
        "~",
        " ",
        "NUL",
        "con.txt",
        "x:y",
        "\0",
        "home",
        "me",
        "work",
        "...",
        "..\\..",
        "é",
        "",
    ]
)


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../x",
        "a/../../x",
        "a/..",
        "./..",
        "/etc/passwd",
        "//server/share",
        "/home/me/work/../x",
        "/home/me/workshop/x",
        "/home/me",
        "~/x",
        "~root/x",
        "\\x",
        "a\\..\\..\\x",
        "..\\x",
        "C:x",
        "C:/x",
        "c:\\x",
        "\\\\?\\C:\\x",
        "\\\\server\\share",
        "a.txt:stream",
        "a.txt::$DATA",
        "con",
        "NUL",
        "nul.txt",
        "Aux.tar.gz",
        "COM1",
        "com\u00b9.log",
        "lpt9",
        "CON .txt",
        "conin$",
        "a/prn/b",
        "a.",
        "a ",
        "a/b./c",
        "... ",
        " a",
        "a\0b",
        "a\nb",
        "a\x7fb",
        "a\ud800b",
        "what?",
        "*.csv",
        'a"b',
        "a|b",
        "x" * 256,
        "é" * 128,
    ],
)
@pytest.mark.parametrize("root", [ROOT, DRIVE], ids=["posix", "windows"])
def test_a_path_that_could_mean_something_else_is_refused(path: str, root: PurePosixPath) -> None:
    with pytest.raises(UsageError):
        parts(path, root)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a.txt", ("a.txt",)),
        ("./a//b/", ("a", "b")),
        (".", ()),
        ("", ()),
        (".hidden/x y.txt", (".hidden", "x y.txt")),
        ("/home/me/work", ()),
        ("/home/me/work/a/b", ("a", "b")),
        ("console.log", ("console.log",)),
        ("data/ü/日本.csv", ("data", "ü", "日本.csv")),
    ],
)
def test_a_plain_path_is_taken(path: str, found: tuple[str, ...]) -> None:
    assert parts(path, ROOT) == found


def test_a_windows_path_inside_of_the_workspace_is_taken() -> None:
    assert parts(r"C:\work\a\b.txt", DRIVE) == ("a", "b.txt")
    assert parts(r"a\b.txt", DRIVE) == ("a", "b.txt")


@given(st.lists(_PIECES, max_size=8).map("/".join) | st.lists(_PIECES, max_size=8).map("".join) | st.text(max_size=40))
def test_what_is_taken_stays_below_the_root_wherever_it_is_joined(path: str) -> None:
    for root in (ROOT, DRIVE):
        try:
            found = parts(path, root)
        except UsageError:
            continue
        for name in found:
            assert name not in ("", ".", "..")
            assert not set(name) & set("/\\:\0")
            assert name == name.rstrip(". ")
        assert PureWindowsPath("D:/root", *found).is_relative_to("D:/root")
        assert not PureWindowsPath(*found).is_reserved()
        assert Path("/root", *found).resolve().is_relative_to("/root") or not found


def test_the_refusal_says_what_to_give() -> None:
    with pytest.raises(UsageError, match=r"outside of the workspace.*list_files"):
        parts("/etc/passwd", ROOT)
