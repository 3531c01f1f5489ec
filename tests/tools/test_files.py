"""The tools for files: what a model reads, how it changes files, and what is known after a crash in between."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tools.conftest import Told

from ipyagent_sessions.agent.tools.edit_file import edit_file
from ipyagent_sessions.agent.tools.list_files import list_files
from ipyagent_sessions.agent.tools.read_file import read_file
from ipyagent_sessions.agent.tools.search_files import search_files
from ipyagent_sessions.agent.tools.workbench import Changed, FileChange, FileRead, Workbench, calling
from ipyagent_sessions.agent.tools.write_file import write_file
from ipyagent_sessions.errors import PersistenceError, UsageError
from ipyagent_sessions.run.definitions import Done


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class TestReading:
    def test_a_file_is_given_whole_and_remembered(self, bench: Workbench, root: Path, told: Told) -> None:
        (root / "a.txt").write_text("one\ntwo\n")
        assert read_file(bench)("./a.txt") == "one\ntwo\n"
        assert told == [FileRead("a.txt", sha("one\ntwo\n"))]
        read_file(bench)("a.txt")
        assert len(told) == 1

    def test_some_lines_say_where_they_are_and_how_to_go_on(self, bench: Workbench, root: Path) -> None:
        (root / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 11)))
        assert read_file(bench)("a.txt", 3, 4) == "3\n4\n[lines 3 to 4 of 10; go on with first_line=5]"
        assert read_file(bench)("a.txt", 9) == "9\n10\n[lines 9 to 10 of 10]"
        assert read_file(bench)("a.txt", 11) == "there is no line 11: the file has 10 lines"

    def test_a_long_file_is_given_in_parts_that_together_are_the_file(self, bench: Workbench, root: Path) -> None:
        lines = [f"line {n} " + "x" * (n % 90) + "\n" for n in range(1, 2_001)]
        (root / "a.txt").write_text("".join(lines))
        got, first = "", 1
        while True:
            part = read_file(bench)("a.txt", first)
            assert len(part) < 20_000
            body, _, note = part.rpartition("[lines ")
            got += body
            if "go on with" not in note:
                break
            first = int(note.rpartition("=")[2].rstrip("]"))
        assert got == "".join(lines)

    def test_a_line_too_long_to_show_is_cut_and_the_next_one_can_be_read(self, bench: Workbench, root: Path) -> None:
        (root / "a.txt").write_text("x" * 50_000 + "\nend")
        assert read_file(bench)("a.txt").endswith("[line 1 has 50,001 characters and is cut here; go on with first_line=2]")
        assert read_file(bench)("a.txt", 2) == "end\n[lines 2 to 2 of 2]"

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            (b"\x89PNG\r\n\x1a\n", "a PNG picture of 8 bytes"),
            (b"a\0b", "binary data of 3 bytes"),
            ("ä".encode("latin-1"), "text in another encoding than UTF-8 of 1 bytes"),
        ],
    )
    def test_what_is_no_text_is_told_and_not_shown(self, bench: Workbench, root: Path, data: bytes, said: str) -> None:
        (root / "a").write_bytes(data)
        assert read_file(bench)("a") == f"a is {said} and is not shown"

    def test_a_file_too_large_is_told(self, bench: Workbench, root: Path) -> None:
        with open(root / "big", "wb") as file:
            file.truncate(64 * 2**20 + 1)
        with pytest.raises(UsageError, match="more than 67,108,864 bytes"):
            read_file(bench)("big")

    def test_the_list_shows_sizes_and_is_bounded(self, bench: Workbench, root: Path) -> None:
        (root / "data").mkdir()
        (root / "data/a.csv").write_text("1234")
        (root / "link").symlink_to("/etc")
        assert list_files(bench)(depth=2) == "data/\ndata/a.csv  4\nlink (link, not followed)"
        assert list_files(bench)(pattern="*.csv", depth=2) == "data/a.csv  4"
        assert list_files(bench)("data", pattern="*.txt") == "nothing"
        for number in range(1_001):
            (root / "data" / f"{number}").touch()
        assert list_files(bench)("data").endswith("[more than 1,000 entries; list a folder of it, or give a pattern]")

    def test_the_search_finds_text_and_expressions(self, bench: Workbench, root: Path) -> None:
        (root / "a.py").write_text("import os\nprint(1)\n")
        (root / "b.txt").write_text("IMPORT\n")
        (root / "c.bin").write_bytes(b"import\0")
        (root / "node_modules").mkdir()
        find = search_files(bench)
        assert find("import") == "a.py:1: import os\n[node_modules/ was left out]"
        assert find("import", pattern="*.txt", ignore_case=True) == "b.txt:1: IMPORT\n[node_modules/ was left out]"
        assert find(r"^pr.*\d\)$", path="a.py", expression=True) == "a.py:2: print(1)"
        assert find("nowhere", path="a.py") == "no line of 1 files"
        with pytest.raises(UsageError, match="no expression"):
            find("(", expression=True)
        with pytest.raises(UsageError, match="no look-around"):
            find("(?=x)", expression=True)

    def test_an_expression_that_explodes_elsewhere_takes_no_time(self, bench: Workbench, root: Path) -> None:
        (root / "a").write_text("a" * 5_000 + "!")
        assert search_files(bench)(r"^(a|a)*$", expression=True) == "no line of 1 files"

    def test_hits_are_bounded(self, bench: Workbench, root: Path) -> None:
        (root / "a").write_text("x\n" * 500)
        said = search_files(bench)("x")
        assert said.count("\n") == 200
        assert said.endswith("[more than 200 lines; be more exact, or search one folder]")


class TestWriting:
    def test_the_pre_image_is_told_before_the_file_is_touched(self, bench: Workbench, root: Path) -> None:
        (root / "a").write_text("old")
        seen: list[tuple[Any, str]] = []
        bench.report = lambda item: seen.append((item, (root / "a").read_text()))
        with calling("c1"):
            assert write_file(bench)("a", "new") == "a written, 3 bytes; it had 3"
        assert seen[0] == (FileChange("a", "write_file", "c1", b"old", sha("old"), sha("new"), 3, b"new"), "old")
        assert seen[1:] == [(FileRead("a", sha("new")), "new")]
        assert (root / "a").read_text() == "new"

    def test_nothing_is_written_when_the_log_cannot_take_the_pre_image(self, bench: Workbench, root: Path) -> None:
        (root / "a").write_text("old")

        def full(_: object) -> None:
            raise PersistenceError("no space left")

        bench.report = full
        with pytest.raises(PersistenceError):
            write_file(bench)("a", "new")
        with pytest.raises(PersistenceError):
            edit_file(bench)("a", "old", "new")
        assert (root / "a").read_text() == "old"

    def test_a_new_file_has_no_pre_image_and_gets_its_folders(self, bench: Workbench, root: Path, told: Told) -> None:
        assert write_file(bench)("x/y/z.txt", "hé") == "x/y/z.txt written, 3 bytes"
        assert (root / "x/y/z.txt").read_text() == "hé"
        assert told[0].before is None

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(old=st.none() | st.text(max_size=20), new=st.text(max_size=20))
    def test_writing_twice_leaves_the_world_of_writing_once(self, root: Path, told: Told, old: str | None, new: str) -> None:
        """R155, also for a second try in another process, which remembers nothing."""
        (root / "a").unlink(missing_ok=True)
        if old is not None:
            (root / "a").write_bytes(old.encode())
        told.clear()
        write_file(Workbench(root, report=told.append))("a", new)
        once, count = (root / "a").read_bytes(), len(told.of(FileChange))
        write_file(Workbench(root, report=told.append, seen={"a": sha(old or "")}))("a", new)
        assert (root / "a").read_bytes() == once == new.encode()
        assert len(told.of(FileChange)) == count == (old != new)

    def test_a_file_that_a_person_changed_since_it_was_read_is_not_overwritten(self, bench: Workbench, root: Path) -> None:
        (root / "a").write_text("one")
        read_file(bench)("a")
        (root / "a").write_text("a person's")
        with pytest.raises(UsageError, match="changed by somebody else since you read it"):
            write_file(bench)("a", "x")
        with pytest.raises(UsageError, match="changed by somebody else since you read it"):
            edit_file(bench)("a", "person", "x")
        read_file(bench)("a")
        write_file(bench)("a", "x")
        write_file(bench)("a", "y")  # the model knows what it wrote itself
        assert (root / "a").read_text() == "y"

    def test_what_the_model_wrote_it_knows_also_in_another_turn(self, bench: Workbench, root: Path, told: Told) -> None:
        (root / "a").write_text("one")
        read_file(bench)("a")
        write_file(bench)("a", "two")
        edit_file(bench)("a", "two", "three")
        known = {item.path: item.sha256 for item in told.of(FileRead)}
        later = Workbench(root, seen=known)
        assert later.changed_since_seen() == []
        write_file(later)("a", "four")
        assert (root / "a").read_text() == "four"

    def test_what_changed_since_it_was_seen_is_named(self, bench: Workbench, root: Path) -> None:
        for name in "abc":
            (root / name).write_text(name)
            read_file(bench)(name)
        (root / "b").write_text("other")
        (root / "c").unlink()
        assert bench.changed_since_seen() == [Changed("b", "changed"), Changed("c", "gone")]

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_a_read_only_workspace_is_said_to_be_one(self, bench: Workbench, root: Path) -> None:
        root.chmod(0o555)
        assert "is read only" in (write_file(bench).unusable() or "")

    def test_a_workspace_that_is_gone_is_said_to_be(self, tmp_path: Path) -> None:
        for make in (list_files, read_file, search_files, write_file, edit_file):
            assert "is not there" in (make(Workbench(tmp_path / "gone")).unusable() or "")


class TestEditing:
    def test_the_only_passage_is_replaced(self, bench: Workbench, root: Path, told: Told) -> None:
        (root / "a").write_text("x = 1\ny = 2\n")
        assert edit_file(bench)("a", "y = 2", "y = 3") == "a edited at line 2"
        assert (root / "a").read_text() == "x = 1\ny = 3\n"
        assert told.of(FileChange)[0].before == b"x = 1\ny = 2\n"

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ("a", "b", r"more than once \(lines 1, 2\)"),
            ("z", "b", "does not hold that passage"),
            ("", "b", "old is empty"),
            ("a\n", "a\n", "are the same"),
        ],
    )
    def test_a_passage_that_is_not_one_is_refused(
        self, bench: Workbench, root: Path, told: Told, old: str, new: str, said: str
    ) -> None:
        (root / "f").write_text("a\na\n")
        with pytest.raises(UsageError, match=said):
            edit_file(bench)("f", old, new)
        assert not told

    def test_passages_that_overlap_are_more_than_one(self, bench: Workbench, root: Path) -> None:
        (root / "f").write_text("aaa")
        with pytest.raises(UsageError, match="more than once"):
            edit_file(bench)("f", "aa", "b")

    def test_line_ends_of_windows_are_kept(self, bench: Workbench, root: Path) -> None:
        (root / "f").write_bytes(b"a\r\nb\r\nc\r\n")
        edit_file(bench)("f", "a\nb", "x\ny")
        assert (root / "f").read_bytes() == b"x\r\ny\r\nc\r\n"

    def test_binary_files_and_missing_ones_are_refused(self, bench: Workbench, root: Path) -> None:
        (root / "f").write_bytes(b"a\0")
        with pytest.raises(UsageError, match="cannot be edited as text"):
            edit_file(bench)("f", "a", "b")
        with pytest.raises(UsageError, match="there is no file g"):
            edit_file(bench)("g", "a", "b")


class TestAfterACrash:
    """`verify` of edit_file, in a process that remembers nothing but what the log says."""

    @pytest.fixture
    def recorded(self, told: Told) -> Any:
        return lambda call: next((c for c in reversed(told.of(FileChange)) if c.call == call), None)

    def _verify(self, bench: Workbench, call: str = "c1") -> Any:
        verify = edit_file(bench).verify
        assert verify is not None
        with calling(call):
            return verify(path="a", old="x", new="xx")  # the new text holds the old one: only the hash can tell

    def test_an_edit_that_was_never_told_did_not_happen(self, root: Path, recorded: Any) -> None:
        (root / "a").write_text("x")
        assert self._verify(Workbench(root, recall=recorded)) is False

    def test_an_edit_that_was_told_and_not_made_did_not_happen(
        self, bench: Workbench, root: Path, recorded: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (root / "a").write_text("x")

        def killed(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, calling("c1"):
            patch.setattr(type(bench.workspace), "write", killed)
            with pytest.raises(KeyboardInterrupt):
                edit_file(bench)("a", "x", "xx")
        assert self._verify(Workbench(root, recall=recorded)) is False

    def test_an_edit_that_was_made_happened_and_its_result_is_known(self, bench: Workbench, root: Path, recorded: Any) -> None:
        (root / "a").write_text("x")
        with calling("c1"):
            said = edit_file(bench)("a", "x", "xx")
        assert self._verify(Workbench(root, recall=recorded)) == Done(said)

    def test_the_same_edit_made_by_an_earlier_call_is_another_one(self, bench: Workbench, root: Path, recorded: Any) -> None:
        (root / "a").write_text("x")
        with calling("c1"):
            edit_file(bench)("a", "x", "xx")
        assert self._verify(Workbench(root, recall=recorded), "c2") is False

    def test_where_somebody_has_changed_the_file_since_a_person_is_asked(
        self, bench: Workbench, root: Path, recorded: Any
    ) -> None:
        (root / "a").write_text("x")
        with calling("c1"):
            edit_file(bench)("a", "x", "xx")
        (root / "a").write_text("a person's")
        with pytest.raises(UsageError, match="neither what it was"):
            self._verify(Workbench(root, recall=recorded))
