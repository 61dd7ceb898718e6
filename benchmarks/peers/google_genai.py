"""google-genai: the chunks that `generate_content_stream` gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fixtures import Stream
from google import genai
from google.genai import types

from . import Chunks, Contestant, Piece, Take, payloads, replay

PACKAGE = "google-genai"


def run(stream: Stream, chunks: Chunks, take: Take) -> None:
    options = types.HttpOptions(base_url="http://localhost", httpx_client=replay.client(chunks))
    client = genai.Client(api_key="none", vertexai=False, http_options=options)
    for chunk in client.models.generate_content_stream(model="gemini-2.5-flash", contents="Hello?"):
        take(chunk)


def hear(chunk: Any) -> Iterator[Piece]:
    return payloads.hear(chunk.model_dump(exclude_none=True))


CONTESTANTS = {"google-genai": Contestant("objects", ("gemini",), run, hear)}
