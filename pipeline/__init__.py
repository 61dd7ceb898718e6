"""Where the operators meet the world: the network, the dialects of the providers, and callers who know no Rx."""

from rillet.operators import ByteWindow, parse_arguments

from .answer import Answer
from .assembler import SSEParser, StreamAssembler, parse_sse
from .attempts import attempts
from .backoff import Backoff
from .chain import Limits, deltas
from .client import Asking, ask, collect_stream, stream_llm
from .connect import RequestOptions
from .event_source import event_source
from .for_each import for_each
from .iterate import iterate
from .protocols import PROTOCOLS, find_protocol
from .providers import PROVIDERS, Prompt, Provider
from .resume_by import ResumeBy, background_response
from .source import bytes_from
from .timeouts import Timeouts
from .transient import is_transient

__all__ = [
    "PROTOCOLS",
    "PROVIDERS",
    "Answer",
    "Asking",
    "Backoff",
    "ByteWindow",
    "Limits",
    "Prompt",
    "Provider",
    "RequestOptions",
    "ResumeBy",
    "SSEParser",
    "StreamAssembler",
    "Timeouts",
    "ask",
    "attempts",
    "background_response",
    "bytes_from",
    "collect_stream",
    "deltas",
    "event_source",
    "find_protocol",
    "for_each",
    "is_transient",
    "iterate",
    "parse_arguments",
    "parse_sse",
    "stream_llm",
]
