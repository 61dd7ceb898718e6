"""`decode_deltas`: the events of one wire dialect become deltas. Its contract is a `WireProtocol`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, Protocol

from reactivex import Observable

from .deltas import Delta, Done, ProviderEvent
from .errors import MalformedPayload, StreamError
from .events import WireEvent
from .heartbeat import is_heartbeat
from .meter import Meter, current_meter
from .stage import BatchStage, lift
from .value import value

# What reading a payload of another shape raises.
SHAPE_ERRORS = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)


class Decoder(Protocol):
    """One stream of a dialect: it reads events, keeps what it must, and knows what "done" means.

    One that has an attribute `template`, a `Template`, need not read what that knows at sight.

    A payload whose shape is not the dialect's may surface as the `KeyError`, `TypeError`, … that reading it raised:
    `decode_deltas` makes a `MalformedPayload` of it.
    """

    def decode(self, event: WireEvent, /) -> Iterable[Delta]:
        """What one event gives. `Done` is the last."""
        ...

    def finish(self) -> Iterable[Delta]:
        """What the clean end of the stream gives: `Done` where the dialect takes that for an ending."""
        ...


class Template(ABC):
    """What the commonest events of a stream look like: they differ in little, and need not be parsed."""

    __slots__ = ()

    @property
    @abstractmethod
    def is_hopeful(self) -> bool:
        """Whether it may know the next event, or come to know the one after it."""

    @abstractmethod
    def read(self, event: WireEvent, /) -> Sequence[Delta]:
        """What an event gives; raises nothing, and gives nothing where it takes `decode` to tell."""

    @abstractmethod
    def see(self, block: bytes, /) -> None:
        """Learn how a server lays out an event, from bytes that may be the one that was decoded last."""

    @abstractmethod
    def may_begin(self, data: bytes, /) -> bool:
        """Whether some bytes may be the beginning of an event that is known, or whose layout is still to be seen."""

    @abstractmethod
    def skim(self, data: bytes, at: int, /) -> tuple[list[Delta], int, int]:
        """What events give as long as they are known, where in the bytes that ends, and how many they were."""

    @abstractmethod
    def forget(self) -> None:
        """Know nothing until another event is learnt."""


@value
class WireProtocol:
    """The contract of one wire dialect.

    Attributes:
        name: What it is called: "openai-chat".
        decoder: Makes the decoder of one stream; its argument is `extras`, see `decode_deltas`.
        framing: How its bytes become events: "sse" (server-sent events), "ndjson" (a JSON object a line), or
            "eventstream" (the binary frames of AWS).
        ends_with_stream: Nothing comes after the terminal event, as `[DONE]` does elsewhere: a last event counts
            although no blank line ended it, where its data is whole JSON.
    """

    name: str
    decoder: Callable[[bool], Decoder]
    framing: Literal["sse", "ndjson", "eventstream"] = "sse"
    ends_with_stream: bool = False


class DecodeDeltas(BatchStage[WireEvent, Delta]):
    """The stage of `decode_deltas`.

    Attributes:
        events_seen: How many events were fed.
        template: What the decoder knows at sight, None where it knows nothing.
        meter: What counts the deltas.
    """

    def __init__(self, protocol: WireProtocol, *, extras: bool = False) -> None:
        self._protocol = protocol
        self._decoder = protocol.decoder(extras)
        template: object = getattr(self._decoder, "template", None)
        self.template = template if isinstance(template, Template) else None
        self._read = _read_nothing if self.template is None else self.template.read
        self.events_seen = 0
        self._done = False
        self.meter = current_meter() or Meter()
        self.meter.feeds_decoder = True
        self.meter.add_decoder()

    def take(self, batch: Sequence[WireEvent]) -> tuple[Sequence[Delta], Exception | None]:
        deltas: list[Delta] = []
        heartbeats = 0
        read, decode = self._read, self._decoder.decode
        try:
            for event in () if self._done else batch:
                self.events_seen += 1
                if known := read(event):
                    deltas += known
                    continue
                count = len(deltas)
                try:
                    deltas += decode(event)
                except MalformedPayload as error:
                    return deltas, self._malformed(str(error), event, error.__cause__)
                except StreamError as error:
                    return deltas, error
                except SHAPE_ERRORS as error:
                    return deltas, self._malformed(f"is not shaped as {self._protocol.name} says", event, error)
                if len(deltas) == count:
                    self.meter.add_heartbeat()
                    continue
                last = deltas[-1].__class__
                if last is Done:
                    self._end()
                    break
                if last is ProviderEvent and is_heartbeat(deltas[-1]):
                    heartbeats += 1
                    self.meter.add_heartbeat()
        finally:
            if len(deltas) > heartbeats:
                self.meter.add_deltas(len(deltas) - heartbeats, is_done=self._done)
        return deltas, None

    def finish(self) -> Iterator[Delta]:
        if self._done:
            return
        try:
            for delta in self._decoder.finish():
                self.meter.add_deltas(1, is_done=delta.__class__ is Done)
                yield delta
        except StreamError:
            raise
        except SHAPE_ERRORS as error:
            raise MalformedPayload(f"the stream does not end as {self._protocol.name} says") from error

    def _end(self) -> None:
        self._done = True
        if self.template is not None:
            self.template.forget()  # nothing is decoded after `Done`

    def _malformed(self, problem: str, event: WireEvent, cause: BaseException | None) -> MalformedPayload:
        where = f"event {self.events_seen:,} ({len(event.data):,} characters)"
        error = MalformedPayload(f"{where} {problem}", raw=event.data)
        error.__cause__ = cause
        return error


def _read_nothing(event: WireEvent, /) -> Sequence[Delta]:
    """What is known of an event without a template."""
    del event
    return ()


def decode_deltas(
    protocol: WireProtocol, *, extras: bool = False
) -> Callable[[Observable[WireEvent]], Observable[Delta]]:
    """Decode the events of one wire dialect.

    .. marble::

        ---Event('{…"content":"Hi"…}')---Event("[DONE]")---|
        [           decode_deltas(OPENAI_CHAT)             ]
        ---TextDelta("Hi")---------------Done--------------|

    Args:
        protocol: The dialect; `rillet.pipeline.protocols` has them.
        extras: Emit also what only this provider sends, as `ProviderEvent`; False by default.

    Returns:
        An operator from events to deltas.

        - emits: the dialect's deltas; after `Done` nothing is decoded
        - holds back: what the dialect must see first
        - completes: with the source
        - fails: `MalformedPayload` with the number of the event; `ProviderError` where the provider reports one

    Raises:
        TypeError: `protocol` is not a `WireProtocol`.
    """
    # Most likely it is a name, as `deltas` takes.
    if not isinstance(protocol, WireProtocol):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"decode_deltas takes a WireProtocol, not {type(protocol).__name__}: see find_protocol")
    return lift(lambda: DecodeDeltas(protocol, extras=extras))
