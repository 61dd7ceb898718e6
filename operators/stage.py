"""Stages: the core that knows no Rx. `Chain` joins them, `lift` makes a reactivex operator of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import SingleAssignmentDisposable

from .meter import Meter, current_meter, metering

In = TypeVar("In")
Out = TypeVar("Out")


class Stage(ABC, Generic[In, Out]):
    """One layer of a stream, with the state of one stream.

    `feed` maps an iterable to an iterator, so stages nest by plain composition, lazily. The same object serves an Rx
    operator, a loop over chunks, `StreamAssembler` and an asynchronous loop.

    Attributes:
        closed: Set by the stage once it wants nothing more: the stream completes here.
        lazy: Whether what it does must not run ahead of what is handed on, not even within one item of its chain.
        refuses: Items of these types are given to it by mistake: text to what takes bytes, or the reverse.
    """

    closed: bool = False
    lazy: bool = False
    refuses: tuple[type, ...] = ()

    @abstractmethod
    def feed(self, batch: Iterable[In]) -> Iterator[Out]:
        """Yield what the items of `batch` give. What came before a fault is yielded before the fault is raised."""

    def take(self, batch: Sequence[In]) -> tuple[Sequence[Out], Exception | None]:
        """The same at once: what `feed` yields, and the fault that it raises after that."""
        return collected(partial(self.feed, batch))

    def finish(self) -> Iterator[Out]:
        """Yield what a clean end of the stream still gives, or raise where it must not end here."""
        return iter(())

    def fail(self, error: Exception) -> Iterator[Out]:
        """Yield what the stage gives although the stream failed before it, then raise; by default, raise on."""
        raise error


class BatchStage(Stage[In, Out]):
    """A stage that is written as `take`, since a loop over lists costs half of what generators in a row do."""

    @abstractmethod
    def take(self, batch: Sequence[In]) -> tuple[Sequence[Out], Exception | None]:
        """What the items of `batch` give, as far as the first fault, and that fault."""

    def feed(self, batch: Iterable[In]) -> Iterator[Out]:
        for item in batch:
            given, fault = self.take((item,))
            yield from given
            if fault is not None:
                raise fault
            if self.closed:
                return


class Chain(Stage[In, Out]):
    """Stages one after another, as one stage.

    Each item goes through all the stages at once, so that what one chunk of bytes gives is known when the first of it
    is handed on; unless one of them is lazy.

    Args:
        stages: The stages, in the order of the flow; each takes what the one before it gives.
    """

    def __init__(self, *stages: Stage[Any, Any]) -> None:
        self.stages = tuple(_flat(stages))
        self.lazy = any(stage.lazy for stage in self.stages)
        self.refuses = self.stages[0].refuses if self.stages else ()

    def feed(self, batch: Iterable[In]) -> Iterator[Out]:
        for item in batch:
            if self.lazy:
                yield from _through(self.stages, iter((item,)))
                self.closed = any(stage.closed for stage in self.stages)
            else:
                given, fault = self.take((item,))
                yield from given
                if fault is not None:
                    raise fault
            if self.closed:
                return

    def take(self, batch: Sequence[In]) -> tuple[Sequence[Out], Exception | None]:
        items: Sequence[Any] = batch
        stages = iter(self.stages)
        for stage in stages:
            try:
                items, fault = stage.take(items)
            except Exception as error:  # a stage of somebody else's, which should have given it
                items, fault = (), error
            if stage.closed:
                self.closed = True
            if fault is not None:
                rest = collected(partial(_through, stages, _then_raise(items, fault)))
                self.closed = any(stage.closed for stage in self.stages)
                return rest
            if not items:
                break
        return items, None

    def finish(self) -> Iterator[Out]:
        return self._end(iter(()))

    def fail(self, error: Exception) -> Iterator[Out]:
        return self._end(_then_raise((), error))

    def _end(self, flow: Iterator[Any]) -> Iterator[Out]:
        last_closed = max((n for n, stage in enumerate(self.stages) if stage.closed), default=-1)
        return _through(self.stages[last_closed + 1 :], flow, end=True)


def _flat(stages: Iterable[Stage[Any, Any]]) -> Iterator[Stage[Any, Any]]:
    """The stages, with those of a plain chain in its place: what closes inside it must not hide what follows there."""
    for stage in stages:
        yield from stage.stages if type(stage) is Chain else (stage,)


def collected(give: Callable[[], Iterable[Out]]) -> tuple[list[Out], Exception | None]:
    """All that `give` gives, and the fault that ends it."""
    items: list[Out] = []
    try:
        items.extend(give())
    except Exception as error:
        return items, error
    return items, None


def _run(stage: Stage[Any, Any], flow: Iterable[Any], *, end: bool = False) -> Iterator[Any]:
    """Feed a stage; a fault of the flow goes through the stage's `fail`, and its end, if wanted, through `finish`."""
    fault: Exception | None = None

    def watched() -> Iterator[Any]:
        nonlocal fault
        try:
            yield from flow
        except Exception as error:
            fault = error

    yield from stage.feed(watched())
    if fault is not None:
        yield from stage.fail(fault)
    elif end and not stage.closed:
        yield from stage.finish()


def _through(stages: Iterable[Stage[Any, Any]], flow: Iterator[Any], *, end: bool = False) -> Iterator[Any]:
    """The flow through the stages, lazily."""
    for stage in stages:
        flow = _run(stage, flow, end=end)
    return flow


def _then_raise(items: Iterable[Any], error: Exception) -> Iterator[Any]:
    yield from items
    raise error


class BatchObserver(abc.ObserverBase[Out]):
    """An observer that takes what came together at once."""

    @abstractmethod
    def on_batch(self, values: Sequence[Out]) -> None:
        """Several items, in order."""


def subscribe_in_batches(observable: Observable[Out], observer: BatchObserver[Out]) -> abc.DisposableBase:
    """Subscribe; where the last operators are lifted stages, what a chunk gives arrives as one batch.

    For boundaries, which only queue what comes: an item costs them half as much that way.
    """
    if isinstance(observable, StageObservable):
        return observable.begin(observer)
    return observable.subscribe(observer)


class StageObservable(Observable[Out]):
    """The observable behind lifted operators: the source, and the stages that each subscription makes anew."""

    def __init__(self, source: Observable[Any], makers: tuple[Callable[[], Stage[Any, Any]], ...]) -> None:
        super().__init__(self.begin)
        self._source = source
        self._makers = makers

    def then(self, make: Callable[[], Stage[Out, In]]) -> StageObservable[In]:
        """The same with one more stage at the end: still one chain in one subscription."""
        return StageObservable(self._source, (*self._makers, make))

    def begin(self, observer: abc.ObserverBase[Out], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        """Subscribe an observer as it is: what `subscribe` does between it and its caller."""
        offered = current_meter()
        own = Meter(offered)
        with metering(own):
            stages = [make() for make in self._makers]
        # Streams that are merged share what is offered to them: one whose deltas are decoded here has its own.
        with metering(own if own.feeds_decoder else offered):
            return self._connect(observer, scheduler, stages)

    def _connect(
        self,
        observer: abc.ObserverBase[Out],
        scheduler: abc.SchedulerBase | None,
        stages: Sequence[Stage[Any, Any]],
    ) -> abc.DisposableBase:
        from .shorten import shortened  # here, since it knows the stages, and they this module

        stages = shortened(stages)
        stage: Stage[Any, Out] = stages[0] if len(stages) == 1 else Chain(*stages)
        upstream = SingleAssignmentDisposable()
        refuses = stage.refuses
        hand_on = observer.on_next
        hand_on_all = observer.on_batch if isinstance(observer, BatchObserver) and not stage.lazy else None

        def deliver(given: Iterable[Out], fault: Exception | None) -> bool:
            """Hand on what was given. False where the subscription ended meanwhile."""
            try:
                if hand_on_all is not None:
                    hand_on_all(tuple(given))
                    given = ()
                for item in given:
                    hand_on(item)
                    if upstream.is_disposed:
                        return False
            except Exception as error:  # a lazy stage's, or the observer's own: nothing may follow half a batch
                fault = error
            if fault is None:
                return True
            upstream.dispose()
            observer.on_error(fault)
            return False

        def complete(given: Iterable[Out], fault: Exception | None) -> None:
            if deliver(given, fault):
                upstream.dispose()
                observer.on_completed()

        def on_next(item: object) -> None:
            if upstream.is_disposed:  # a source that pushes inside subscribe can't be stopped from here
                return
            try:
                if type(item) in refuses:
                    raise TypeError(_mistaken(item))
                given, fault = (stage.feed((item,)), None) if stage.lazy else stage.take((item,))
            except Exception as error:  # of a stage that should have given it
                given, fault = (), error
            if deliver(given, fault) and stage.closed:  # what closed is over; in a chain, what comes after it is not
                complete(*(collected(stage.finish) if isinstance(stage, Chain) else ((), None)))

        def on_error(error: Exception) -> None:
            if not upstream.is_disposed:
                complete(*collected(partial(stage.fail, error)))

        def on_completed() -> None:
            if not upstream.is_disposed:
                complete(*collected(stage.finish))

        upstream.disposable = self._source.subscribe(on_next, on_error, on_completed, scheduler=scheduler)
        return upstream


def _mistaken(item: object) -> str:
    if isinstance(item, str):
        return "got str where bytes are wanted: what is text already needs no decode_utf8()"
    return f"got {type(item).__name__} where str is wanted: put decode_utf8() before it"


def lift(make: Callable[[], Stage[In, Out]]) -> Callable[[Observable[In]], Observable[Out]]:
    """Make a reactivex operator of a stage.

    The stage is made on each subscription, never on assembly. Lifted operators next to each other run as one `Chain`
    in one subscription. A fault of the stage, or an exception that the observer raises, disposes the source and
    arrives once at `on_error`; a stage that closes disposes the source, then completes.

    Args:
        make: Makes the stage for one subscription.

    Returns:
        The operator, for `pipe`.
    """

    def operator(source: Observable[In]) -> Observable[Out]:
        if isinstance(source, StageObservable):
            return source.then(make)
        return StageObservable(source, (make,))

    return operator
