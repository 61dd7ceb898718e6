"""Where the operators meet the world."""

from rillet.operators import parse_arguments

from .assembler import SSEParser, StreamAssembler, parse_sse
from .chain import Limits, deltas

__all__ = ["Limits", "SSEParser", "StreamAssembler", "deltas", "parse_arguments", "parse_sse"]
