"""An MCP server over standard input and output, from the kept package; run by the tests as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

server = MCPServer("test")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def put(text: str) -> str:
    """Put a text somewhere."""
    return text


@server.tool()
def send(text: str) -> str:
    """Send a text."""
    return f"{text} for {os.environ.get('WHO', 'nobody')}"


@server.tool()
def long(n: int) -> str:
    """A long text."""
    return "x" * n


@server.tool()
def fail(text: str) -> str:
    """Fail."""
    raise ToolError(text)


@server.tool()
def die() -> str:
    """End the server in the middle of a call."""
    os._exit(3)


@server.tool(name="dotted.name")
def dotted() -> str:
    """A name that no provider takes."""
    return ""


if __name__ == "__main__":
    if "--deaf" in sys.argv:  # does not end when its input is closed, nor when it is asked to
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["sleep", "300"], start_new_session=True)
    if "--silent" in sys.argv:
        signal.pause()
    server.run()
    if "--deaf" in sys.argv:
        signal.pause()
