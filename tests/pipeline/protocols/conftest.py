"""What the dialects' tests share: frames of AWS, and three checks of a whole stream that leave nothing out."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from copy import deepcopy
from typing import Any

import pytest

from rillet.operators import Message, ProviderEvent, ToolCall
from rillet.operators.errors import StreamError, TruncatedStream
from rillet.pipeline import StreamAssembler

Stream = Callable[..., bytes]
Path = tuple[str | int, ...]
BAD_VALUES: tuple[Any, ...] = (None, "", 0, -1, True, [], {}, "x")


def _frame(payload: bytes = b"{}", **headers: str) -> bytes:
    encoded = b""
    for key, value in headers.items():
        name = b":" + key.replace("_", "-").encode()
        encoded += struct.pack(">B", len(name)) + name + struct.pack(">BH", 7, len(value)) + value.encode()
    prelude = struct.pack(">II", 16 + len(encoded) + len(payload), len(encoded))
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + encoded + payload
    return body + struct.pack(">I", zlib.crc32(body))


@pytest.fixture(scope="session")
def frame() -> Callable[..., bytes]:
    """A frame of AWS's event stream from its payload and its headers: `event_type=` gives `:event-type`."""
    return _frame


@pytest.fixture(scope="session")
def check_cuts(cuts: Callable[[bytes], Iterator[list[bytes]]]) -> Callable[..., None]:
    """However a stream is cut, it gives the same deltas, and exactly these messages; extras only add to them."""

    def check(protocol: str, wire: bytes, *expected: Message) -> None:
        deltas = StreamAssembler(protocol).feed(wire)
        with_extras = StreamAssembler(protocol, extras=True).feed(wire)
        assert [delta for delta in with_extras if type(delta) is not ProviderEvent] == deltas
        for pieces in cuts(wire):
            assembler = StreamAssembler(protocol)
            assert [delta for piece in pieces for delta in assembler.feed(piece)] == deltas
            assembler.result()
            assert assembler.messages == expected

    return check


@pytest.fixture(scope="session")
def check_prefixes() -> Callable[..., None]:
    """Wherever a stream breaks off, it is truncated, or it gives these messages: all but their usage, which may come
    after the end of the answer."""

    def said(messages: Sequence[Message]) -> list[Any]:
        return [(one.text, one.reasoning, one.refusal, one.tool_calls, one.finish) for one in messages]

    def check(protocol: str, wire: bytes, *expected: Message) -> None:
        known = _calls(expected)
        for length in range(len(wire)):
            assembler = StreamAssembler(protocol)
            assembler.feed(wire[:length])
            try:
                assembler.result()
            except StreamError as error:
                assert type(error) is TruncatedStream, f"after {length} bytes"
                assert error.partial == assembler.messages
                assert all(call in known for call in _calls(error.partial)), f"after {length} bytes"
                continue
            assert said(assembler.messages) == said(expected), f"after {length} bytes: …{wire[:length][-60:]!r}"

    return check


@pytest.fixture(scope="session")
def check_bad_shapes() -> Callable[..., None]:
    """With any one value replaced, or any one key missing, a stream gives its calls with their own arguments, leaves
    some out, or fails with a `StreamError`. What is below the keys named `arguments` is left as it is."""

    def check(protocol: str, stream: Stream, events: list[Any], *arguments: str) -> None:
        known = {call.name: call.args for call in _told(protocol, stream(*events), extras=False)}
        for where, mutant in _mutants(events, arguments):
            for extras in (False, True):
                for call in _told(protocol, stream(*mutant), extras=extras):
                    allowed = [known[call.name]] if call.name in known else list(known.values())
                    assert call.args in allowed, where

    return check


def _calls(messages: Sequence[Message]) -> list[ToolCall]:
    return [call for message in messages for call in message.tool_calls]


def _told(protocol: str, wire: bytes, *, extras: bool) -> list[ToolCall]:
    """The calls that a stream gives, whether or not it fails then."""
    assembler = StreamAssembler(protocol, extras=extras)
    try:
        _ = assembler.feed(wire), assembler.result()
    except StreamError as error:
        assert error.partial == assembler.messages
    return _calls(assembler.messages)


def _mutants(events: list[Any], arguments: Collection[str]) -> Iterator[tuple[str, list[Any]]]:
    for n, event in enumerate(events):
        for *parents, last in _paths(event):
            if arguments and not {*parents, last}.isdisjoint(arguments):
                continue
            for bad in (*BAD_VALUES, "missing"):
                mutant = deepcopy(event)
                inner = mutant
                for step in parents:
                    inner = inner[step]
                if bad == "missing":
                    del inner[last]
                else:
                    inner[last] = bad
                yield f"event {n}, {[*parents, last]}: {bad!r}", [*events[:n], mutant, *events[n + 1 :]]


def _paths(value: Any) -> Iterator[Path]:
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (key,)
        yield from ((key, *rest) for rest in _paths(inner))
