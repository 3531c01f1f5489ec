"""A server on loopback that speaks OpenAI chat completions and Anthropic messages, streamed or not, with faults by plan.

    with FakeProvider() as server:
        server.plan = [Fault(status=429, headers={"retry-after": "7"}), Reply("Hello world")]
        settings base_url: server.openai  ("http://127.0.0.1:PORT/v1")  or  server.anthropic  ("http://127.0.0.1:PORT")

Each request takes the next entry of the plan; the last one stays.  `server.seen` holds what was asked.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Reply:
    """An answer: `text` in words, and calls as (tool, arguments).  `drop_after` closes the connection after so many words of
    a stream; `garbage_after` sends a chunk that is not JSON instead of the next word."""

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    tokens: tuple[int, int] = (11, 7)
    drop_after: int | None = None
    garbage_after: int | None = None
    counted: bool = True
    """Whether an OpenAI stream ends with the usage; small servers leave it out."""
    hold: threading.Event | None = None
    """When set, a stream waits for it (at most 10 s) before its last word."""


@dataclass(frozen=True)
class Fault:
    """An HTTP error, or with `silent` no answer at all until the server stops or the client goes away."""

    status: int = 500
    message: str = "it broke"
    code: str | None = None
    kind: str = "server_error"
    headers: dict[str, str] = field(default_factory=dict)
    silent: bool = False
    body: str | None = None
    """A body of another kind than the provider's JSON."""


@dataclass(frozen=True)
class Asked:
    """One request as it came in; header names are lower case."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class FakeProvider:
    """The server; a context manager that starts and stops it."""

    def __init__(self, *plan: Reply | Fault) -> None:
        self.plan: list[Reply | Fault] = list(plan) or [Reply("Hello world")]
        self.seen: list[Asked] = []
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    @property
    def root(self) -> str:
        """Its address without a path; what Anthropic's client wants."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def openai(self) -> str:
        """The address for OpenAI's client."""
        return f"{self.root}/v1"

    def next(self, asked: Asked) -> Reply | Fault:
        with self._lock:
            self.seen.append(asked)
            return self.plan.pop(0) if len(self.plan) > 1 else self.plan[0]


def _handler(server: FakeProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Tests print nothing."""

        def do_GET(self) -> None:
            self._json(
                200, {"object": "list", "data": [{"id": "tiny", "object": "model"}, {"id": "small", "object": "model"}]}
            )

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            entry = server.next(Asked(self.path, {key.lower(): value for key, value in self.headers.items()}, body))
            anthropic = self.path.endswith("/messages")
            if isinstance(entry, Fault):
                self._fault(entry, anthropic)
            elif body.get("stream"):
                self._stream(entry, _anthropic_chunks(entry) if anthropic else _openai_chunks(entry, body["model"]))
            else:
                self._json(200, _anthropic_whole(entry) if anthropic else _openai_whole(entry, body["model"]))

        def _fault(self, fault: Fault, anthropic: bool) -> None:
            if fault.silent:
                server.stopping.wait(30)
                self.close_connection = True
                return
            if fault.body is not None:
                self._send(fault.status, fault.body.encode(), "application/json", fault.headers)
                return
            error = {"type": fault.kind, "message": fault.message}
            document = {"type": "error", "error": error} if anthropic else {"error": {**error, "code": fault.code}}
            self._json(fault.status, document, fault.headers)

        def _json(self, status: int, document: Any, headers: dict[str, str] | None = None) -> None:
            self._send(status, json.dumps(document).encode(), "application/json", headers or {})

        def _send(self, status: int, content: bytes, kind: str, headers: dict[str, str]) -> None:
            self.send_response(status)
            for key, value in {"content-type": kind, "content-length": str(len(content)), **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(content)

        def _stream(self, reply: Reply, chunks: Iterator[tuple[bool, str]]) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            words, total = 0, len(_words(reply.text))
            for is_word, chunk in chunks:
                if is_word:
                    if words == reply.drop_after:
                        self.close_connection = True  # without the last, empty chunk: the client sees a broken stream
                        return
                    if words == reply.garbage_after:
                        self._chunk('event: content_block_delta\ndata: {"broken\n\n')
                    if words == total - 1 and reply.hold is not None:
                        reply.hold.wait(10)
                    words += 1
                self._chunk(chunk)
            self.wfile.write(b"0\r\n\r\n")

        def _chunk(self, text: str) -> None:
            data = text.encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

    return Handler


def _words(text: str) -> list[str]:
    words = text.split(" ")
    return [*(f"{word} " for word in words[:-1]), words[-1]] if text else []


def _openai_whole(reply: Reply, model: str) -> dict[str, Any]:
    calls = [
        {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
        for i, (name, args) in enumerate(reply.calls)
    ]
    message = {"role": "assistant", "content": reply.text or None, **({"tool_calls": calls} if calls else {})}
    finish = "tool_calls" if calls else "stop"
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": _openai_usage(reply),
    }


def _openai_usage(reply: Reply) -> dict[str, int]:
    read, written = reply.tokens
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _openai_chunks(reply: Reply, model: str) -> Iterator[tuple[bool, str]]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        whole = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]}
        return f"data: {json.dumps(whole)}\n\n"

    yield False, chunk({"role": "assistant", "content": ""})
    for word in _words(reply.text):
        yield True, chunk({"content": word})
    for i, (name, args) in enumerate(reply.calls):
        function = {"name": name, "arguments": json.dumps(args)}
        yield False, chunk({"tool_calls": [{"index": i, "id": f"call_{i}", "type": "function", "function": function}]})
    yield False, chunk({}, "tool_calls" if reply.calls else "stop")
    last = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": []}
    usage = {"usage": _openai_usage(reply)} if reply.counted else {}
    yield False, f"data: {json.dumps({**last, **usage})}\n\n"
    yield False, "data: [DONE]\n\n"


def _anthropic_whole(reply: Reply) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": reply.text}] if reply.text else []
    blocks += [
        {"type": "tool_use", "id": f"toolu_{i}", "name": name, "input": args} for i, (name, args) in enumerate(reply.calls)
    ]
    read, written = reply.tokens
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": blocks,
        "stop_reason": "tool_use" if reply.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": read, "output_tokens": written},
    }


def _anthropic_chunks(reply: Reply) -> Iterator[tuple[bool, str]]:
    def event(kind: str, **fields: Any) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"

    whole = _anthropic_whole(reply)
    empty = {**whole, "content": [], "stop_reason": None, "usage": {"input_tokens": reply.tokens[0], "output_tokens": 1}}
    yield False, event("message_start", message=empty)
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            yield False, event("content_block_start", index=index, content_block={"type": "text", "text": ""})
            for word in _words(reply.text):
                yield True, event("content_block_delta", index=index, delta={"type": "text_delta", "text": word})
        else:
            yield False, event("content_block_start", index=index, content_block={**block, "input": {}})
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            yield False, event("content_block_delta", index=index, delta=delta)
        yield False, event("content_block_stop", index=index)
    stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield False, event("message_delta", delta=stop, usage={"output_tokens": reply.tokens[1]})
    yield False, event("message_stop")
