"""Operators that turn the bytes of a streaming LLM response into typed deltas, finished tool calls and a verdict."""

from . import errors
from .assemble_tools import assemble_tools
from .bounded import bounded
from .coalesce import coalesce
from .decode_deltas import Decoder, WireProtocol, decode_deltas
from .decode_utf8 import decode_utf8
from .decompress import decompress
from .deltas import (
    Attempt,
    Delta,
    Done,
    Finish,
    FinishReason,
    Json,
    Message,
    ProviderEvent,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from .events import EventFrame, JsonLine, ServerSentEvent, StreamPosition, WireEvent
from .group_events import group_events
from .parse_arguments import parse_arguments
from .partial_json import NO_VALUE, JsonPath, NoValue, PartialJson
from .preview_json import preview_json
from .preview_tools import preview_tools
from .previews import JsonPreview, ToolCallPreview
from .progress_timeout import progress_timeout
from .require_done import require_done
from .share import share
from .split_frames import split_frames
from .split_json_lines import split_json_lines
from .split_lines import split_lines
from .stage import BatchStage, Chain, Stage, lift
from .window import ByteWindow

__all__ = [
    "NO_VALUE",
    "Attempt",
    "BatchStage",
    "ByteWindow",
    "Chain",
    "Decoder",
    "Delta",
    "Done",
    "EventFrame",
    "Finish",
    "FinishReason",
    "Json",
    "JsonLine",
    "JsonPath",
    "JsonPreview",
    "Message",
    "NoValue",
    "PartialJson",
    "ProviderEvent",
    "ReasoningDelta",
    "RefusalDelta",
    "ServerSentEvent",
    "Stage",
    "StreamPosition",
    "TextDelta",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallEnd",
    "ToolCallPreview",
    "ToolCallStart",
    "Usage",
    "WireEvent",
    "WireProtocol",
    "assemble_tools",
    "bounded",
    "coalesce",
    "decode_deltas",
    "decode_utf8",
    "decompress",
    "errors",
    "group_events",
    "lift",
    "parse_arguments",
    "preview_json",
    "preview_tools",
    "progress_timeout",
    "require_done",
    "share",
    "split_frames",
    "split_json_lines",
    "split_lines",
]
