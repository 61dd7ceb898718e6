"""`recognise`: which dialect a stream is written in, told from its beginning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rillet.operators import Chain, WireEvent, WireProtocol
from rillet.operators.decode_utf8 import DecodeUtf8
from rillet.operators.errors import MalformedPayload, StreamError
from rillet.operators.events import make_event
from rillet.operators.frame_sse import frame_sse
from rillet.operators.split_frames import SplitFrames
from rillet.operators.split_json_lines import SplitJsonLines

from .protocols import (
    ANTHROPIC,
    BEDROCK_CONVERSE,
    BEDROCK_INVOKE,
    COHERE,
    GEMINI,
    GOOGLE_INTERACTIONS,
    OLLAMA,
    OPENAI_CHAT,
    OPENAI_COMPLETIONS,
    OPENAI_RESPONSES,
    PLAIN,
)
from .protocols.payload import list_in, load_object, object_in

_PLAIN_TYPES = frozenset(("text", "tool_call_start", "tool_call_delta", "tool_call_end"))
_COHERE_PREFIXES = ("message-", "content-", "tool-", "citation-")
_ANTHROPIC_TYPES = ("message_", "content_block_", "ping", "error")


def recognise(head: bytes) -> WireProtocol | None:
    """Tell the dialect of a stream from its first bytes.

    Args:
        head: The stream so far. The more there is, the surer the answer, but the first event is enough.

    Returns:
        The dialect; None where it can't be told, or not yet.
    """
    if head[:1] == b"\0":  # a frame's length: no text begins like this
        return _first(_of_frame(frame) for frame in _events(SplitFrames(), head))
    if head.lstrip()[:1] == b"{":
        lines: Chain[bytes, WireEvent] = Chain(DecodeUtf8(), SplitJsonLines())
        return _first(_of_line(line) for line in _events(lines, head))
    return _first(_of_event(event) for event in _events(frame_sse(make_event, eof="dispatch"), head))


def _first(found: Iterable[WireProtocol | None]) -> WireProtocol | None:
    return next((protocol for protocol in found if protocol is not None), None)


def _events(framing: Any, head: bytes) -> list[WireEvent]:
    """The events in the head, as far as they are sound."""
    events: list[WireEvent] = []
    try:
        events.extend(framing.feed((head,)))
        events.extend(framing.finish())
    except StreamError:
        return events  # what is wrong with the stream, its dialect's decoder will say
    return events


def _payload(event: WireEvent) -> dict[str, Any]:
    try:
        return load_object(event.data)
    except MalformedPayload:
        return {}


def _of_frame(frame: WireEvent) -> WireProtocol:
    return BEDROCK_INVOKE if frame.event == "chunk" else BEDROCK_CONVERSE


def _of_line(line: WireEvent) -> WireProtocol | None:
    payload = _payload(line)
    if "done" in payload:
        return OLLAMA
    return OPENAI_CHAT if "error" in payload else None


def _of_event(event: WireEvent) -> WireProtocol | None:
    payload = _payload(event)
    kind = payload.get("type")
    kind = kind if isinstance(kind, str) else event.event
    if "choices" in payload:
        return _of_choices(payload)
    if "event_type" in payload:
        return GOOGLE_INTERACTIONS
    if "candidates" in payload or "promptFeedback" in payload:
        return GEMINI
    if kind.startswith("response."):
        return OPENAI_RESPONSES
    if kind.startswith(_COHERE_PREFIXES):
        return COHERE
    if kind in _PLAIN_TYPES:
        return PLAIN
    if "type" in payload and kind.startswith(_ANTHROPIC_TYPES):
        return ANTHROPIC
    return OPENAI_CHAT if "error" in payload else None


def _of_choices(payload: dict[str, Any]) -> WireProtocol:
    is_text = payload.get("object") == "text_completion" or any(map(_is_text, list_in(payload["choices"])))
    return OPENAI_COMPLETIONS if is_text else OPENAI_CHAT


def _is_text(choice: object) -> bool:
    try:
        keys = object_in(choice, "choice").keys()
    except MalformedPayload:
        return False
    return "text" in keys and not keys & {"delta", "message"}
