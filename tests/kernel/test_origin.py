"""What is asked of the server at loading, and what a store that cannot be read does to it."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ipyagent import hello, origin
from ipyagent_sessions.log.layout import FORMAT

TOKEN = "the-token"


class Listener:
    """An HTTP server that notes paths and credentials, and answers with a redirect or a list of sessions."""

    def __init__(self, body: bytes = b"[]", to: str = "") -> None:
        heard: list[tuple[str, str | None]] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                heard.append((self.path, self.headers.get("Authorization")))
                self.send_response(302 if to else 200)
                if to:
                    self.send_header("Location", to)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.heard = heard
        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def other() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Say where the server is that started this kernel."""

    def at(url: str) -> None:
        (tmp_path / "jpserver-1.json").write_text(json.dumps({"url": url, "token": TOKEN, "root_dir": "/home/x"}))
        monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
        monkeypatch.setenv("JPY_PARENT_PID", "1")
        monkeypatch.setattr(origin, "kernel_id", lambda: "k")
        monkeypatch.delenv("JPY_SESSION_NAME", raising=False)

    return at


def asked() -> str | None:
    shell: Any = SimpleNamespace(user_ns={})
    return origin.notebook(shell)


def test_the_token_goes_to_the_server_and_to_no_proxy(other: Listener, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = [{"kernel": {"id": "k"}, "type": "notebook", "path": "a.ipynb"}]
    server = Listener(json.dumps(sessions).encode())
    try:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, other.url)
        monkeypatch.delenv("no_proxy", raising=False)
        served(server.url)
        assert asked() == "/home/x/a.ipynb"
        assert server.heard == [("/api/sessions", f"token {TOKEN}")]
        served("http://notebook.example:8888/")
        assert asked() is None
        assert other.heard == []
    finally:
        server.close()


def test_the_token_is_not_taken_along_to_where_an_answer_points(other: Listener, served: Any) -> None:
    server = Listener(to=f"{other.url}elsewhere")
    try:
        served(server.url)
        assert asked() is None
        assert [credentials for _, credentials in other.heard] == [None]
    finally:
        server.close()


@pytest.mark.parametrize("body", [b"{", b"[1]", b"[{}]", b"5", b'[{"kernel":null}]'])
def test_an_answer_that_makes_no_sense_is_no_answer(served: Any, body: bytes) -> None:
    server = Listener(body)
    try:
        served(server.url)
        assert asked() is None
    finally:
        server.close()


@pytest.mark.parametrize("body", ["{", json.dumps({"id": "x1", "format": FORMAT + 1})])
def test_a_store_that_cannot_be_read_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], body: str
) -> None:
    (tmp_path / "store.json").write_text(body)
    monkeypatch.setenv("IPYAGENT_STORE", str(tmp_path))
    shell: Any = SimpleNamespace(user_ns={})
    hello.greet(shell)
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("ipyagent: ")
    assert str(tmp_path)[:20] in line


def test_in_a_plain_ipython_there_is_no_kernel_and_the_extension_loads(tmp_path: Path) -> None:
    words = "%load_ext ipyagent\nprint('loaded', 6 * 7)\n%agent ls\nexit\n"
    command = [sys.executable, "-m", "IPython", "--simple-prompt", "--no-banner", "--colors=NoColor"]
    env = {**os.environ, "IPYAGENT_STORE": str(tmp_path / "store"), "IPYTHONDIR": str(tmp_path / "ipython")}
    ran = subprocess.run(command, input=words, capture_output=True, text=True, timeout=120, cwd=tmp_path, env=env, check=False)
    said = ran.stdout + ran.stderr
    assert "loaded 42" in said
    assert "Traceback" not in said
    assert "no sessions yet" in said or "there is no store" in said
