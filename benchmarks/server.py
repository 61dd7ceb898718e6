"""A server that costs next to nothing: it writes one answer, rendered beforehand, to whoever asks.

    python benchmarks/server.py STREAM

Each event is an HTTP chunk of its own, as providers send them; chunks are written in pieces of about `PIECE` bytes,
and the connections take turns. Prints its URL, then serves until its input ends.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

PIECE = 1_400
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def rendered(body: bytes) -> list[bytes]:
    """The answer in the pieces in which it is written."""
    pieces, piece = [], HEAD
    for event in body.split(b"\n\n")[:-1]:
        piece += b"%x\r\n%b\n\n\r\n" % (len(event) + 2, event)
        if len(piece) >= PIECE:
            pieces.append(piece)
            piece = b""
    return [*pieces, piece + b"0\r\n\r\n"]


class Answering(asyncio.Protocol):
    """One connection; whatever it asks, it gets the pieces, a piece a turn of the loop."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces
        self._loop = asyncio.get_running_loop()
        self._asked = b""
        self._next = len(pieces)
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._asked += data
        head, found, body = self._asked.partition(b"\r\n\r\n")
        if found and len(body) >= _length(head):
            self._asked, self._next = b"", 0
            self._write()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._write()

    def _write(self) -> None:
        if self._paused or self._next == len(self._pieces) or self._transport.is_closing():
            return
        self._transport.write(self._pieces[self._next])
        self._next += 1
        if not self._paused:
            self._loop.call_soon(self._write)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


async def serve(pieces: list[bytes]) -> None:
    """Serve until the input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answering(pieces), "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}/v1", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(rendered(Path(f"{sys.argv[1]}.sse").read_bytes())))
