"""Where the operators meet the world: the network, the dialects of the providers, and callers who know no Rx."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rillet.operators import ByteWindow, parse_arguments

    from .answer import Answer
    from .assembler import SSEParser, StreamAssembler, parse_sse
    from .chain import Limits, deltas
    from .client import Asking, ask, collect_stream, stream_llm
    from .connect import RequestOptions
    from .for_each import for_each
    from .iterate import iterate
    from .protocols import PROTOCOLS, find_protocol
    from .providers import PROVIDERS, Prompt, Provider
    from .source import bytes_from
    from .timeouts import Timeouts

__all__ = [
    "PROTOCOLS",
    "PROVIDERS",
    "Answer",
    "Asking",
    "ByteWindow",
    "Limits",
    "Prompt",
    "Provider",
    "RequestOptions",
    "SSEParser",
    "StreamAssembler",
    "Timeouts",
    "ask",
    "bytes_from",
    "collect_stream",
    "deltas",
    "find_protocol",
    "for_each",
    "iterate",
    "parse_arguments",
    "parse_sse",
    "stream_llm",
]

# Where each name comes from. It is imported when it is asked for: who reads recorded bytes waits for no aiohttp.
_EXPORTS = {
    "rillet.operators": ("ByteWindow", "parse_arguments"),
    ".answer": ("Answer",),
    ".assembler": ("SSEParser", "StreamAssembler", "parse_sse"),
    ".chain": ("Limits", "deltas"),
    ".client": ("Asking", "ask", "collect_stream", "stream_llm"),
    ".connect": ("RequestOptions",),
    ".for_each": ("for_each",),
    ".iterate": ("iterate",),
    ".protocols": ("PROTOCOLS", "find_protocol"),
    ".providers": ("PROVIDERS", "Prompt", "Provider"),
    ".source": ("bytes_from",),
    ".timeouts": ("Timeouts",),
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
