"""Outages that are really there: sockets on the loopback that refuse, hang up, stay silent, drip or ask for patience, a device
without room, memory that nobody has.  Each function returns nothing: it meets its outage and raises what the system raised.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Generator
from typing import Final

PATIENCE_S: Final = 0.05
HOST: Final = "127.0.0.1"


def refused() -> None:
    """Nobody listens: the port is taken by a socket that never does."""
    with socket.socket() as deaf:
        deaf.bind((HOST, 0))
        _ask(deaf.getsockname()[1])


def hung_up() -> None:
    """The connection is reset after the request."""

    def behave(connection: socket.socket) -> None:
        connection.recv(1024)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with _peer(behave) as port:
        _ask(port)


def silent() -> None:
    """The request is taken and never answered."""

    def behave(connection: socket.socket) -> None:
        while connection.recv(1024):
            pass

    with _peer(behave) as port:
        _ask(port)


def dripping() -> None:
    """The answer comes byte by byte and has no end; whoever reads it has a deadline."""

    def behave(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection.sendall(b".")
                time.sleep(PATIENCE_S / 10)

    with _peer(behave) as port:
        _ask(port)


def busy() -> None:
    """A server answers 429 and says when to come again."""

    def behave(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(
            b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )

    straight = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with _peer(behave) as port:
        straight.open(f"http://{HOST}:{port}/", timeout=10)


def full_disk() -> None:
    """A write to a device that has no room; where there is no such device, what a write raises then."""
    if not os.path.exists("/dev/full"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    fd = os.open("/dev/full", os.O_WRONLY)
    try:
        os.write(fd, b"something")
    finally:
        os.close(fd)


def full_quota() -> None:
    """Only what a write raises then: a quota needs a file system made for it."""
    raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


def no_memory() -> None:
    """More than any machine has."""
    bytearray(sys.maxsize // 2)


def _ask(port: int) -> None:
    """Send a request and read the answer to its end.  Raises TimeoutError when that is not there within `PATIENCE_S`."""
    deadline = time.monotonic() + PATIENCE_S
    with socket.create_connection((HOST, port), PATIENCE_S) as connection:
        connection.sendall(b"a request")
        while connection.recv(1):
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            if time.monotonic() > deadline:
                raise TimeoutError("the answer has no end")


@contextlib.contextmanager
def _peer(behave: Callable[[socket.socket], None]) -> Generator[int]:
    """The port of a server that takes one connection and treats it so."""
    with socket.create_server((HOST, 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                behave(connection)

        thread = threading.Thread(target=serve, name="outside", daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            thread.join(10)
