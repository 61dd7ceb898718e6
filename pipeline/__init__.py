"""Where the operators meet the world: the network, the dialects of the providers, and callers who know no Rx."""

from rillet.operators import ByteWindow, parse_arguments

from .answer import Answer
from .assembler import SSEParser, StreamAssembler, parse_sse
from .chain import Limits, deltas
from .client import Asking, ask, collect_stream, stream_llm
from .connect import RequestOptions
from .for_each import for_each
from .iterate import iterate
from .measure import Outcome, StreamStats, measure
from .protocols import PROTOCOLS, find_protocol
from .providers import PROVIDERS, Prompt, Provider
from .recorder import Recording, recorder
from .source import bytes_from
from .timeouts import Timeouts

__all__ = [
    "PROTOCOLS",
    "PROVIDERS",
    "Answer",
    "Asking",
    "ByteWindow",
    "Limits",
    "Outcome",
    "Prompt",
    "Provider",
    "Recording",
    "RequestOptions",
    "SSEParser",
    "StreamAssembler",
    "StreamStats",
    "Timeouts",
    "ask",
    "bytes_from",
    "collect_stream",
    "deltas",
    "find_protocol",
    "for_each",
    "iterate",
    "measure",
    "parse_arguments",
    "parse_sse",
    "recorder",
    "stream_llm",
]
