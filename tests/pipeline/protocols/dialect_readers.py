"""`readers`: what a stream of one dialect gives, three ways."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rillet.operators import Delta, Message
from rillet.operators.errors import StreamError
from rillet.pipeline import StreamAssembler


def readers(
    protocol: str, stream: Callable[..., bytes]
) -> tuple[Callable[..., list[Delta]], Callable[..., Message], Callable[..., tuple[StreamError, Message]]]:
    """For events that `stream` makes bytes of: the deltas, the whole message, and the error with what came before."""

    def decoded(*events: object, extras: bool = False) -> list[Delta]:
        return StreamAssembler(protocol, extras=extras).feed(stream(*events))

    def message(*events: object) -> Message:
        assembler = StreamAssembler(protocol)
        _ = assembler.feed(stream(*events)), assembler.result()
        return assembler.message

    def failure(*events: object) -> tuple[StreamError, Message]:
        assembler = StreamAssembler(protocol)
        with pytest.raises(StreamError) as caught:
            _ = assembler.feed(stream(*events)), assembler.result()
        return caught.value, assembler.message

    return decoded, message, failure
