"""anthropic's own client: the stream that `create(stream=True)` gives, and the helper that sums it up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
from fixtures import Stream

from . import PROMPT, Chunks, Contestant, Piece, Take, payloads, replay

PACKAGE = "anthropic"
MODEL = "any"
DIALECTS = ("anthropic",)


def opened(chunks: Chunks) -> anthropic.Anthropic:
    """A client that is answered with the chunks."""
    return anthropic.Anthropic(api_key="none", base_url="http://localhost", http_client=replay.client(chunks))


def run(stream: Stream, chunks: Chunks, take: Take) -> None:
    for event in opened(chunks).messages.create(model=MODEL, max_tokens=1024, messages=PROMPT, stream=True):
        take(event)


def with_helper(stream: Stream, chunks: Chunks, take: Take) -> None:
    with opened(chunks).messages.stream(model=MODEL, max_tokens=1024, messages=PROMPT) as events:
        for event in events:
            take(event)


def hear(event: Any) -> Iterator[Piece]:
    return payloads.hear(event.model_dump())


CONTESTANTS = {
    "anthropic, raw stream": Contestant("objects", DIALECTS, run, hear),
    "anthropic, stream helper": Contestant("objects", DIALECTS, with_helper, hear),
}
