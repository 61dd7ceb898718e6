"""sseclient-py: server-sent events over any iterable of bytes; the JSON is for the caller, so orjson."""

from __future__ import annotations

import orjson
import sseclient
from fixtures import Stream

from . import DIALECTS, Chunks, Contestant, Take, payloads

PACKAGE = "sseclient-py"


def run(stream: Stream, chunks: Chunks, take: Take) -> None:
    for event in sseclient.SSEClient(iter(chunks)).events():
        if event.data != "[DONE]":
            take(orjson.loads(event.data))


CONTESTANTS = {"sseclient-py, orjson": Contestant("payloads", DIALECTS, run, payloads.hear)}
