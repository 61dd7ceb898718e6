"""What the preview operators share: the values they emit, and the frames in which they emit them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from threading import RLock
from typing import Generic, TypeAlias, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, SerialDisposable, SingleAssignmentDisposable

from .deltas import Delta, Json, is_attempt
from .errors import LimitExceeded
from .partial_json import MAX_SIZE, NO_VALUE, JsonPath, PartialJson
from .timers import timer_scheduler
from .value import value

FRAME = 1 / 30


@value
class ToolCallPreview:
    """What is certain of the arguments of a call that is still open: for display, and no `ToolCall`.

    Attributes:
        index: The call's number in the choice.
        name: The tool's name.
        value: The arguments so far, a snapshot that never changes (see `PartialJson`).
        open_path: Where in `value` the one value is that can still grow; all others are final. None where none can.
        choice: The choice it belongs to.
    """

    index: int
    name: str
    value: Json
    open_path: JsonPath | None
    choice: int = 0


@value
class JsonPreview:
    """What is certain of an answer that is itself JSON: for display.

    Attributes:
        value: The answer so far, a snapshot that never changes (see `PartialJson`).
        open_path: Where in `value` the one value is that can still grow; all others are final. None where none can.
        choice: The choice it belongs to.
    """

    value: Json
    open_path: JsonPath | None
    choice: int = 0


Preview = TypeVar("Preview")
Show: TypeAlias = Callable[[Json, "JsonPath | None"], Preview]


class Document(Generic[Preview]):
    """One document of a stream. What came of it waits unread until somebody wants to see it."""

    def __init__(self, show: Show[Preview]) -> None:
        self._show = show
        self._parser = PartialJson()
        self._waiting: list[str] = []
        self._room = MAX_SIZE

    def add(self, fragment: str) -> bool:
        """Whether the fragment may be seen: not after text that is no JSON, nor past the limit."""
        if self._room <= 0 or self._parser.broken is not None:
            return False
        self._waiting.append(fragment)
        self._room -= len(fragment)
        return True

    def preview(self) -> Preview | None:
        """What can be seen, None where it is what was seen before."""
        text = "".join(self._waiting)
        self._waiting.clear()
        with suppress(LimitExceeded):  # it stays as it was: whether the call is good, others say
            self._parser.feed(text)
        if not self._parser.changed:
            return None
        current = self._parser.value
        return None if current is NO_VALUE else self._show(current, self._parser.open_path)


class Documents(Generic[Preview]):
    """The documents of one stream that are open, and which of them have changed since they were shown."""

    def __init__(self) -> None:
        self._open: dict[Hashable, Document[Preview]] = {}
        self._changed: dict[Hashable, Document[Preview]] = {}

    @property
    def changed(self) -> bool:
        """Whether there may be something new to see."""
        return bool(self._changed)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._open

    def open(self, key: Hashable, show: Show[Preview]) -> None:
        """A document begins; `show` makes its previews."""
        self.close(key)
        self._open[key] = Document(show)

    def add(self, key: Hashable, fragment: str) -> None:
        """A fragment of a document; nothing where that is not open."""
        document = self._open.get(key)
        if document is not None and document.add(fragment):
            self._changed[key] = document

    def close(self, key: Hashable) -> None:
        """A document is over: it is not shown again."""
        self._open.pop(key, None)
        self._changed.pop(key, None)

    def close_all(self) -> None:
        """All of them are void."""
        self._open.clear()
        self._changed.clear()

    def frame(self) -> Iterator[Preview]:
        """What there is to see of each document that changed."""
        changed, self._changed = self._changed, {}
        for key, document in changed.items():
            if self._open.get(key) is document:  # a subscriber's on_next may have led to its end
                preview = document.preview()
                if preview is not None:
                    yield preview


Follow: TypeAlias = Callable[["Documents[Preview]", Delta], bool]
"""Follows a delta; says whether what changed must be seen before it."""


def with_previews(
    follow: Follow[Preview], every: float, scheduler: abc.SchedulerBase | None
) -> Callable[[Observable[Delta]], Observable[Delta | Preview]]:
    """An operator that hands on the deltas and, once a frame, the previews of the documents in them.

    A change starts the frame, its end shows all that changed meanwhile, and then nothing is scheduled until the next
    change. An `Attempt` voids what came before it. Deliveries never overlap, whatever thread the scheduler's timers run
    on.
    """
    if not every >= 0:
        raise ValueError(f"every must be 0 seconds or more, not {every}")

    def operator(source: Observable[Delta]) -> Observable[Delta | Preview]:
        def subscribe(
            observer: abc.ObserverBase[Delta | Preview], given: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            timers = timer_scheduler(scheduler, given)
            documents: Documents[Preview] = Documents()
            upstream, timer = SingleAssignmentDisposable(), SerialDisposable()
            subscription = CompositeDisposable(upstream, timer)
            lock = RLock()
            framing = False

            def deliver(items: Iterable[Delta | Preview]) -> bool:
                """Hand on the items. False where the subscription ended meanwhile."""
                try:
                    for item in items:
                        observer.on_next(item)
                        if subscription.is_disposed:
                            return False
                except Exception as fault:
                    subscription.dispose()
                    observer.on_error(fault)
                    return False
                return True

            def on_next(delta: Delta) -> None:
                nonlocal framing
                with lock:
                    if subscription.is_disposed:
                        return
                    if is_attempt(delta):
                        documents.close_all()
                    if follow(documents, delta) and not deliver(documents.frame()):
                        return
                    if not deliver((delta,)) or framing or not documents.changed:
                        return
                    if every == 0:
                        deliver(documents.frame())
                        return
                    framing = True
                    timer.disposable = timers.schedule_relative(every, end_frame)

            def end_frame(_: abc.SchedulerBase, __: object = None) -> None:
                nonlocal framing
                with lock:
                    framing = False
                    if not subscription.is_disposed:
                        deliver(documents.frame())

            def end(tell: Callable[[], None]) -> None:
                with lock:
                    if not subscription.is_disposed and deliver(documents.frame()):
                        subscription.dispose()
                        tell()

            upstream.disposable = source.subscribe(
                on_next,
                lambda error: end(lambda: observer.on_error(error)),
                lambda: end(observer.on_completed),
                scheduler=given,
            )
            return subscription

        return Observable(subscribe)

    return operator
