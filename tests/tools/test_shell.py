"""A command runs in the workspace, without the user's keys, and nothing that it started outlives it."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from ipyagent_sessions.agent.tools import processes
from ipyagent_sessions.agent.tools.run_shell import run_shell
from ipyagent_sessions.agent.tools.workbench import Started, Workbench
from ipyagent_sessions.errors import PersistenceError, UsageError
from ipyagent_sessions.testing import wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the commands are those of a Unix shell")


DAEMON = "import os,time; os.fork() or (os.setsid(), os.fork() and os._exit(0)); time.sleep(300)"


def run(bench: Workbench, command: str, timeout_s: float = 30.0) -> str:
    return str(asyncio.run(run_shell(bench)(command, timeout_s)))


def of(bench: Workbench) -> list[psutil.Process]:
    return processes.marked(bench.mark)


def test_the_exit_code_and_both_outputs_come_back_in_order(bench: Workbench, root: Path) -> None:
    assert run(bench, "echo one; echo two >&2; pwd; exit 3") == f"[exit code 3]\none\ntwo\n{root}\n"
    assert run(bench, "kill -9 $$").startswith("[ended by signal 9]")


def test_a_command_gets_no_input(bench: Workbench) -> None:
    assert run(bench, "cat; echo end") == "[exit code 0]\nend\n"


def test_keys_are_not_handed_on(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-1")
    monkeypatch.setenv("HARMLESS_LOOKING", "sk-canary0123456789abcdef")
    monkeypatch.setenv("PLAIN", "stays")
    said = run(bench, "env")
    assert "canary" not in said
    assert "PLAIN=stays" in said
    assert "PATH=" in said


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("AWS_SECRET_ACCESS_KEY", "x", False),
        ("GITHUB_TOKEN", "x", False),
        ("PGPASSWORD", "x", False),
        ("MYSQL_PWD", "x", False),
        ("SSH_AUTH_SOCK", "/tmp/agent", False),
        ("JPY_API_TOKEN", "x", False),
        ("SENTRY_DSN", "x", False),
        ("DATABASE_URL", "postgres://me:pw@host/db", False),
        ("X", "ghp_0123456789", False),
        ("Y", "-----BEGIN RSA PRIVATE KEY-----", False),
        ("PWD", "/home", True),
        ("HOME", "/home", True),
        ("KEYBOARD", "de", True),
        ("MONKEY", "x", True),
        ("HTTP_PROXY", "http://proxy:3128", True),
        ("LANG", "C.UTF-8", True),
    ],
)
def test_what_looks_like_a_key_is_told_from_what_does_not(name: str, value: str, kept: bool) -> None:
    assert (name in processes.without_secrets({name: value})) is kept


def test_a_flood_is_bounded_and_keeps_its_beginning_and_its_end(bench: Workbench) -> None:
    handed: list[str] = []
    bench.output = handed.append
    said = run(bench, "echo begin; yes | head -c 3000000; echo end")
    assert len(said) < 20_000
    assert said.startswith("[exit code 0]\nbegin\n")
    assert said.endswith("\nend\n")
    assert "of 3,000,010 bytes are left out here" in said
    assert sum(map(len, handed)) < 1_200_000


def test_output_is_handed_on_while_the_command_runs(bench: Workbench, root: Path) -> None:
    """The command waits for a file that is only made once its first line has come."""
    bench.output = lambda text: (root / "go").touch() if "ready" in text else None
    assert run(bench, "echo ready; until [ -e go ]; do sleep 0.02; done; echo gone") == "[exit code 0]\nready\ngone\n"


def test_text_that_is_cut_between_two_reads_or_no_text_is_no_trouble(bench: Workbench) -> None:
    handed: list[str] = []
    bench.output = handed.append
    said = run(bench, r"printf 'h\303'; sleep 0.1; printf '\251 \377'")
    assert said == "[exit code 0]\nhé \ufffd"
    assert "".join(handed).startswith("hé ")


def test_what_is_left_in_the_background_is_ended_and_told(bench: Workbench) -> None:
    said = run(bench, "sleep 300 & echo started")
    assert said == "[exit code 0; 1 process that it had left running were ended]\nstarted\n"
    assert of(bench) == []


def test_what_drops_its_mark_is_ended_with_its_group(bench: Workbench) -> None:
    assert run(bench, "env -i sleep 301.25 & echo started").startswith("[exit code 0")
    assert [p for p in psutil.process_iter() if "301.25" in _words(p)] == []


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline() if processes.lives(process) else []
    except psutil.Error:
        return []


@pytest.mark.parametrize(
    ("command", "count"),
    [
        ("sleep 300", 1),
        ("sleep 300 & sleep 300 & wait", 3),
        ("trap '' TERM; sleep 300; sleep 300", 2),
        ("setsid sleep 300 & wait", 2),
        (f"{sys.executable} -c '{DAEMON}'", 2),
    ],
    ids=["plain", "jobs", "deaf", "session", "daemon"],
)
def test_stopping_ends_it_with_all_its_children_within_a_second(bench: Workbench, command: str, count: int) -> None:
    took = 0.0

    async def stopped() -> None:
        nonlocal took
        task = asyncio.create_task(run_shell(bench)(f"echo up > up; {command}"))
        while not (bench.folder / "up").exists() or len(of(bench)) < count:
            await asyncio.sleep(0.01)
        before = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        took = time.monotonic() - before

    asyncio.run(stopped())
    assert of(bench) == []
    assert took < 1.0


def test_the_time_limit_ends_it_and_keeps_what_it_said(bench: Workbench) -> None:
    said = run(bench, "echo early; sleep 300", timeout_s=0.5)
    assert said == "[ended after 0.5 s, when its time was over]\nearly\n"
    assert of(bench) == []


def test_its_process_is_told_when_it_starts_and_when_it_has_ended(bench: Workbench) -> None:
    log: list[tuple[str, Started]] = []
    bench.started = lambda entry: log.append(("started", entry))
    bench.ended = lambda entry: log.append(("ended", entry))
    run(bench, "sleep 0.05")
    (first, entry), (last, same) = log
    assert (first, last) == ("started", "ended")
    assert entry is same
    assert entry.command == "sleep 0.05"
    assert abs(entry.started - time.time()) < 60
    assert entry.mark.startswith("m-test/")
    assert not psutil.pid_exists(entry.pid)


def test_what_is_told_of_a_command_says_whether_it_ended_by_itself(bench: Workbench) -> None:
    log: list[bool] = []
    bench.ended = lambda entry: log.append(entry.stopped)
    run(bench, "exit 3")
    run(bench, "sleep 300", timeout_s=0.2)
    assert log == [False, True]


def test_a_process_that_cannot_be_recorded_is_ended_at_once(bench: Workbench) -> None:
    def full(_: Started) -> None:
        raise PersistenceError("no space left")

    bench.started = full
    with pytest.raises(PersistenceError):
        run(bench, "sleep 300")
    assert of(bench) == []


def test_no_descriptor_stays_open(bench: Workbench) -> None:
    run(bench, "true")
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("descriptors cannot be counted here")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        run(bench, "echo x")
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before, what="descriptors closed")


def test_nothing_to_run_is_refused(bench: Workbench, tmp_path: Path) -> None:
    for command in ("", "  ", "echo \0"):
        with pytest.raises(UsageError, match="no command"):
            run(bench, command)
    assert "is not there" in (run_shell(Workbench(tmp_path / "gone")).unusable() or "")
    assert run_shell(bench).unusable() is None
