"""Stages: the core that knows no Rx. `Chain` joins them, `lift` makes a reactivex operator of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar, cast

from reactivex import Observable, abc
from reactivex.disposable import SingleAssignmentDisposable

In = TypeVar("In")
Out = TypeVar("Out")


class Stage(ABC, Generic[In, Out]):
    """One layer of a stream, with the state of one stream.

    `feed` maps an iterable to an iterator, so stages nest by plain composition, lazily. The same object serves an Rx
    operator, a loop over chunks, `StreamAssembler` and an asynchronous loop.

    Attributes:
        closed: Set by the stage once it wants nothing more: the stream completes here.
    """

    closed: bool = False

    @abstractmethod
    def feed(self, batch: Iterable[In]) -> Iterator[Out]:
        """Yield what the items of `batch` give. What came before a fault is yielded before the fault is raised."""

    def finish(self) -> Iterator[Out]:
        """Yield what a clean end of the stream still gives, or raise where it must not end here."""
        return iter(())

    def fail(self, error: Exception) -> Iterator[Out]:
        """Yield what the stage gives although the stream failed before it, then raise; by default, raise on."""
        raise error


class Chain(Stage[In, Out]):
    """Stages one after another, as one stage.

    Args:
        stages: The stages, in the order of the flow; each takes what the one before it gives.
    """

    def __init__(self, *stages: Stage[Any, Any]) -> None:
        self.stages = tuple(_flat(stages))
        self._feeds = tuple(partial(_run, stage) if _minds_failures(stage) else stage.feed for stage in self.stages)

    @property
    def closed(self) -> bool:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether one of the stages wants nothing more."""
        for stage in self.stages:  # noqa: SIM110 - it is asked for every chunk, and a generator costs twice as much
            if stage.closed:
                return True
        return False

    def feed(self, batch: Iterable[In]) -> Iterator[Out]:
        flow: Iterable[Any] = batch
        for feed in self._feeds:
            flow = feed(flow)
        return cast("Iterator[Out]", flow)

    def finish(self) -> Iterator[Out]:
        return self._end(iter(()))

    def fail(self, error: Exception) -> Iterator[Out]:
        return self._end(_raise(error))

    def _end(self, flow: Iterator[Any]) -> Iterator[Out]:
        last_closed = max((n for n, stage in enumerate(self.stages) if stage.closed), default=-1)
        for stage in self.stages[last_closed + 1 :]:
            flow = _run(stage, flow, end=True)
        return flow


def _flat(stages: Iterable[Stage[Any, Any]]) -> Iterator[Stage[Any, Any]]:
    """The stages, with those of a plain chain in its place: what closes inside it must not hide what follows there."""
    for stage in stages:
        yield from stage.stages if type(stage) is Chain else (stage,)


def _minds_failures(stage: Stage[Any, Any]) -> bool:
    """Only a stage that minds them pays for the hop that shows it the failures of the stages before it."""
    return type(stage).fail is not Stage[Any, Any].fail


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


def _raise(error: Exception) -> Iterator[Any]:
    raise error
    yield


class StageObservable(Observable[Out]):
    """The observable behind lifted operators: the source, and the stages that each subscription makes anew."""

    def __init__(self, source: Observable[Any], makers: tuple[Callable[[], Stage[Any, Any]], ...]) -> None:
        super().__init__(self._run)
        self._source = source
        self._makers = makers

    def then(self, make: Callable[[], Stage[Out, In]]) -> StageObservable[In]:
        """The same with one more stage at the end: still one chain in one subscription."""
        return StageObservable(self._source, (*self._makers, make))

    def _run(self, observer: abc.ObserverBase[Out], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        stages = [make() for make in self._makers]
        stage: Stage[Any, Out] = stages[0] if len(stages) == 1 else Chain(*stages)
        upstream = SingleAssignmentDisposable()
        hand_on = observer.on_next

        def deliver(give: Callable[..., Iterator[Out]], *args: object) -> bool:
            """Hand on all that `give` gives. False where the subscription ended meanwhile."""
            try:
                for item in give(*args):
                    hand_on(item)
                    if upstream.is_disposed:
                        return False
            except Exception as error:  # the stage's, or the observer's own: half a batch is out, nothing may follow
                upstream.dispose()
                observer.on_error(error)
                return False
            return True

        def complete(give: Callable[..., Iterator[Out]], *args: object) -> None:
            if deliver(give, *args):
                upstream.dispose()
                observer.on_completed()

        def on_next(item: object) -> None:
            if upstream.is_disposed:  # a source that pushes inside subscribe can't be stopped from here
                return
            if deliver(stage.feed, (item,)) and stage.closed:
                complete(stage.finish)

        def on_error(error: Exception) -> None:
            complete(stage.fail, error)

        def on_completed() -> None:
            complete(stage.finish)

        upstream.disposable = self._source.subscribe(on_next, on_error, on_completed, scheduler=scheduler)
        return upstream


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
