"""Where the operators meet the world: the network, the dialects of the providers, and callers who know no Rx."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rillet.operators import ByteWindow, parse_arguments

    from .answer import Answer
    from .assembler import SSEParser, StreamAssembler, parse_sse
    from .attempts import attempts
    from .background import Background, BackgroundLoop, run_in_background
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
    "Background",
    "BackgroundLoop",
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
    "run_in_background",
    "stream_llm",
]

# Where each name comes from. It is imported when it is asked for: who reads recorded bytes waits for no aiohttp.
_EXPORTS = {
    "rillet.operators": ("ByteWindow", "parse_arguments"),
    ".answer": ("Answer",),
    ".assembler": ("SSEParser", "StreamAssembler", "parse_sse"),
    ".attempts": ("attempts",),
    ".backoff": ("Backoff",),
    ".background": ("Background", "BackgroundLoop", "run_in_background"),
    ".chain": ("Limits", "deltas"),
    ".client": ("Asking", "ask", "collect_stream", "stream_llm"),
    ".connect": ("RequestOptions",),
    ".event_source": ("event_source",),
    ".for_each": ("for_each",),
    ".iterate": ("iterate",),
    ".measure": ("Outcome", "StreamStats", "measure"),
    ".protocols": ("PROTOCOLS", "find_protocol"),
    ".providers": ("PROVIDERS", "Prompt", "Provider"),
    ".recorder": ("Recording", "recorder"),
    ".resume_by": ("ResumeBy", "background_response"),
    ".source": ("bytes_from",),
    ".timeouts": ("Timeouts",),
    ".transient": ("is_transient",),
}
_HOMES = {name: home for home, names in _EXPORTS.items() for name in names}


class _Face(ModuleType):
    """This package as a module that imports what it exports on demand."""

    def __getattr__(self, name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value: object = getattr(import_module(_HOMES[name], self.__name__), name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType) and name in _HOMES:  # the module `iterate` must not hide what it exports
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Face
