"""The wire dialects, one file each. `PROTOCOLS` is the registry."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rillet.operators import WireProtocol

from .openai_chat import OPENAI_CHAT
from .plain import PLAIN

PROTOCOLS: Mapping[str, WireProtocol] = MappingProxyType({protocol.name: protocol for protocol in (PLAIN, OPENAI_CHAT)})
"""Every dialect by its name."""


def find_protocol(protocol: str | WireProtocol) -> WireProtocol:
    """The dialect of that name; a `WireProtocol` is its own.

    Raises:
        ValueError: There is none of that name; the message lists those there are.
    """
    if isinstance(protocol, WireProtocol):
        return protocol
    try:
        return PROTOCOLS[protocol]
    except KeyError:
        raise ValueError(f"unknown protocol {protocol!r}; known: {', '.join(PROTOCOLS)}") from None


__all__ = ["OPENAI_CHAT", "PLAIN", "PROTOCOLS", "find_protocol"]
