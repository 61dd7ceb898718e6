"""`bedrock-invoke`: Amazon Bedrock's InvokeModelWithResponseStream, for Anthropic's models."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from rillet.operators import Delta, ServerSentEvent, WireEvent, WireProtocol
from rillet.operators.errors import MalformedPayload

from .anthropic import AnthropicDecoder
from .bedrock_converse import frame_object
from .payload import required_text


class BedrockInvokeDecoder:
    """One stream of `bedrock-invoke`: each frame holds, in base64, an event of the model's own protocol.

    Args:
        extras: See `AnthropicDecoder`.

    Source: docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InvokeModelWithResponseStream.html.
    """

    def __init__(self, extras: bool = False) -> None:
        self._model = AnthropicDecoder(extras)

    def decode(self, event: WireEvent, /) -> Iterable[Delta]:
        payload = frame_object(event)
        if event.event != "chunk":
            return ()
        encoded = required_text(payload, "bytes")
        try:
            data = base64.b64decode(encoded, validate=True).decode()
        except ValueError as error:
            raise MalformedPayload("holds bytes that are no base64 of UTF-8") from error
        inner = ServerSentEvent("message", data)
        return self._model.template.read(inner) or self._model.decode(inner)

    def finish(self) -> Iterable[Delta]:
        return self._model.finish()


BEDROCK_INVOKE = WireProtocol("bedrock-invoke", BedrockInvokeDecoder, framing="eventstream")
"""InvokeModelWithResponseStream frames around Anthropic's events; done at `message_stop`."""
