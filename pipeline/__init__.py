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
from .measure import Outcome, StreamStats, measure
from .protocols import PROTOCOLS, find_protocol
from .providers import PROVIDERS, Prompt, Provider
from .recorder import Recording, recorder
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
    "Outcome",
    "Prompt",
    "Provider",
    "Recording",
    "RequestOptions",
    "ResumeBy",
    "SSEParser",
    "StreamAssembler",
    "StreamStats",
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
    "measure",
    "parse_arguments",
    "parse_sse",
    "recorder",
    "stream_llm",
]
