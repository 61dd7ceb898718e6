"""A transport for the clients of OpenAI, Anthropic and Google that answers every request with the chunks given."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from . import EVENT_STREAM, Chunks, delivered

web: Any = import_module("httpx2" if find_spec("httpx2") else "httpx")
"""What those clients speak HTTP with."""


def client(chunks: Chunks) -> Any:
    """A client that never leaves the process."""
    return web.Client(transport=web.MockTransport(lambda _: answer(iter(chunks))))


def async_client(chunks: Chunks) -> Any:
    """The same for asyncio."""
    return web.AsyncClient(transport=web.MockTransport(lambda _: answer(delivered(chunks))))


def answer(content: object) -> Any:
    """An answer whose body comes as `content` gives it."""
    return web.Response(200, headers=EVENT_STREAM, content=content)
