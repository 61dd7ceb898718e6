"""`Body`: the body of an answer as aiohttp reads it, with the ends that aiohttp does not tell."""

from __future__ import annotations

import asyncio

import aiohttp

from rillet.operators.errors import TruncatedStream

from .connect import BREAKS

DRAIN_BYTES = 64 * 1024
DRAIN_SECONDS = 0.02


class Body:
    """The body of one answer, compressed as it came.

    Args:
        response: The answer.
        connector: That of its session.

    Attributes:
        bytes_read: How many bytes of it have been read.
    """

    def __init__(self, response: aiohttp.ClientResponse, connector: aiohttp.BaseConnector | None) -> None:
        self.bytes_read = 0
        self._response = response
        self._content = response.content
        self._connector = connector
        self._gone: asyncio.Future[None] | None = None
        self._watch_connection()
        self._stop_clock()

    async def read(self) -> bytes:
        """What has come, once there is something; nothing at the end.

        Raises:
            TruncatedStream: The connection broke, after all that came over it.
        """
        broke: Exception | None = None
        try:
            chunk = await self._content.readany()
        except BREAKS as error:
            chunk, broke = self._left(), error
        fault = self._content.exception() or broke
        if not chunk and isinstance(fault, Exception):
            raise self._broken(fault) from fault
        self.bytes_read += len(chunk)
        return chunk

    async def drain(self) -> None:
        """Read what is there already: then the connection of an answer that is over goes back to the pool."""
        if self._content.at_eof():
            return
        room = DRAIN_BYTES
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while room > 0 and (chunk := await self._content.readany()):
                    room -= len(chunk)
        except BREAKS:
            return  # the answer was over: how its connection ends is nobody's business

    def close(self) -> None:
        """Close the connection, unless the body was read to its end."""
        if self._gone is not None:
            self._gone.remove_done_callback(self._connection_gone)
        self._response.close()

    def _watch_connection(self) -> None:
        """Hear how the connection ends.

        A session that is closed forgets its readers: nobody else would wake this one. And to aiohttp, a body that
        lasts as long as its connection is whole, however that was lost.
        """
        if self._response.connection is None or self._response.connection.protocol is None:
            return  # the whole answer is here already
        self._gone = self._response.connection.protocol.closed
        if self._gone is not None:
            self._gone.remove_done_callback(_heard)
            self._gone.add_done_callback(_heard)  # once a connection, however many answers come on it
            self._gone.add_done_callback(self._connection_gone)

    def _stop_clock(self) -> None:
        """Silence is timed by whoever reads: aiohttp's clock also runs while a full window keeps us from reading, and
        goes on in the pool, where it spoils the connection for the next request.
        """
        protocol = self._response.connection and self._response.connection.protocol
        if protocol is not None:
            protocol.read_timeout = None
            protocol.start_timeout()  # which stops it, since there is no time

    def _connection_gone(self, gone: asyncio.Future[None]) -> None:
        content = self._content
        if content.exception() is not None or (content.is_eof() and not self._lasts_as_its_connection()):
            return
        loss = None if gone.cancelled() else gone.exception()
        if loss is not None or not content.is_eof() or (self._connector is not None and self._connector.closed):
            content.set_exception(loss or aiohttp.ClientConnectionError("the session was closed"))

    def _lasts_as_its_connection(self) -> bool:
        headers = self._response.headers
        return "chunked" not in headers.get("Transfer-Encoding", "").lower() and "Content-Length" not in headers

    def _left(self) -> bytes:
        """What had come before the connection broke: the reader would raise before it gives that."""
        fault = self._content.exception()
        if fault is None:
            return b""
        self._content.set_exception(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        try:
            return self._content.read_nowait()
        finally:
            self._content.set_exception(fault)

    def _broken(self, error: Exception) -> TruncatedStream:
        return TruncatedStream(
            f"the connection broke after {self.bytes_read:,} bytes of the body: {type(error).__name__}",
            bytes_seen=self.bytes_read,
            retry_safe=self.bytes_read == 0,
        )


def _heard(gone: asyncio.Future[None]) -> None:
    """How the connection ended is told by its reader: what this future says must not be complained of as unheard."""
    if not gone.cancelled():
        gone.exception()
