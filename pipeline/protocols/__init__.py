"""The wire dialects, one file each. `PROTOCOLS` is the registry."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rillet.operators import WireProtocol

from .anthropic import ANTHROPIC
from .bedrock_converse import BEDROCK_CONVERSE
from .bedrock_invoke import BEDROCK_INVOKE
from .cohere import COHERE
from .gemini import GEMINI
from .google_interactions import GOOGLE_INTERACTIONS
from .ollama import OLLAMA
from .openai_chat import OPENAI_CHAT
from .openai_completions import OPENAI_COMPLETIONS
from .openai_responses import OPENAI_RESPONSES
from .plain import PLAIN

PROTOCOLS: Mapping[str, WireProtocol] = MappingProxyType(
    {
        protocol.name: protocol
        for protocol in (
            PLAIN,
            OPENAI_CHAT,
            OPENAI_COMPLETIONS,
            OPENAI_RESPONSES,
            ANTHROPIC,
            GEMINI,
            GOOGLE_INTERACTIONS,
            COHERE,
            OLLAMA,
            BEDROCK_CONVERSE,
            BEDROCK_INVOKE,
        )
    }
)
"""Every dialect by its name."""


CONTENT_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "sse": "text/event-stream",
        "ndjson": "application/x-ndjson",
        "eventstream": "application/vnd.amazon.eventstream",
    }
)
"""The content type of each framing."""


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


__all__ = [
    "ANTHROPIC",
    "BEDROCK_CONVERSE",
    "BEDROCK_INVOKE",
    "COHERE",
    "CONTENT_TYPES",
    "GEMINI",
    "GOOGLE_INTERACTIONS",
    "OLLAMA",
    "OPENAI_CHAT",
    "OPENAI_COMPLETIONS",
    "OPENAI_RESPONSES",
    "PLAIN",
    "PROTOCOLS",
    "find_protocol",
]
