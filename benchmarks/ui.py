"""What a window costs: 20,000 deltas at 5,000 a second into a Qt and a Tk window, with `coalesce` and without it.

    python benchmarks/ui.py [--quick]

Prints, for each toolkit that is here, how often the window's thread was woken and its text changed, the longest time
that it was held, and the share of the time that it was busy: with `coalesce` and `post`, with `post` alone, and with a
call for each delta, as `observe_on` makes them. Exits with 1 where the text is not exact to the letter, or where
`coalesce` woke the window more often than there were frames. Qt runs offscreen; Tk needs an X display (xvfb-run).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple, Protocol, TypeAlias

import reactivex as rx
from reactivex import Observable, abc

from rillet.operators import Delta, TextDelta, coalesce
from rillet.operators.timers import timer_scheduler
from rillet.pipeline import BackgroundLoop

DELTAS = 20_000
RATE = 5_000
BURST = 0.002  # seconds between reads of the network
FRAME = 1 / 30


Post: TypeAlias = Callable[[Callable[[], None]], None]
Way: TypeAlias = Callable[[BackgroundLoop, Observable[Delta], Post], Observable[Delta]]
"""How the deltas come to the window."""


class Reading(NamedTuple):
    """What was measured: calls on the window's thread, changes of the text, seconds, and whether the text is exact."""

    wake_ups: int
    updates: int
    longest: float
    busy: float
    took: float
    exact: bool


class Toolkit(Protocol):
    """A window with a text, and a loop."""

    def post(self, call: Callable[[], None]) -> None: ...
    def append(self, text: str) -> None: ...
    def text(self) -> str: ...
    def run(self) -> None: ...
    def quit(self) -> None: ...


def main() -> int:
    """Measure each toolkit with and without frames; the exit code judges those with."""
    parser = argparse.ArgumentParser(description="What a window costs.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the deltas")
    deltas = DELTAS // 10 if parser.parse_args().quick else DELTAS
    toolkits = [toolkit for toolkit in (qt, tk) if available(toolkit)]
    print(f"{deltas:,} deltas at {RATE:,} a second\n")
    print(" " * 20 + "".join(f"{title:>12}" for title in ("wake-ups", "updates", "longest", "busy", "exact")))
    faults = 0
    for toolkit in toolkits:
        framed, *others = (measured(toolkit, way, deltas) for way in (coalesced, posted, each))
        faults += framed.wake_ups > framed.took / FRAME + 3 or not all(one.exact for one in (framed, *others))
    return int(bool(faults) or not toolkits)


def available(toolkit: Callable[[], Toolkit]) -> bool:
    """Whether it is here; where not, it says so."""
    module = {"qt": "PySide6", "tk": "tkinter"}[toolkit.__name__]
    if importlib.util.find_spec(module) is None:
        print(f"{toolkit.__name__}: no {module} here")
        return False
    if toolkit is tk and not os.environ.get("DISPLAY"):
        print("tk: no X display here; xvfb-run makes one")
        return False
    return True


def measured(make: Callable[[], Toolkit], way: Way, deltas: int) -> Reading:
    """Run the flow into a new window in one way, and print the row."""
    toolkit = make()
    wake_ups = updates = 0
    longest = busy = 0.0
    failed: list[Exception] = []

    def post(call: Callable[[], None]) -> None:
        def timed() -> None:
            nonlocal wake_ups, longest, busy
            begun = time.perf_counter()
            call()
            held = time.perf_counter() - begun
            wake_ups, longest, busy = wake_ups + 1, max(longest, held), busy + held

        toolkit.post(timed)

    def show(delta: Delta) -> None:
        nonlocal updates
        assert isinstance(delta, TextDelta)
        toolkit.append(delta.text)
        updates += 1

    def fail(error: Exception) -> None:
        failed.append(error)
        toolkit.quit()

    begun = time.perf_counter()
    with BackgroundLoop() as background:
        subscription = way(background, flow(deltas), post).subscribe(show, fail, toolkit.quit)
        toolkit.run()
        subscription.dispose()
    took = time.perf_counter() - begun
    exact = not failed and toolkit.text() == "".join(pieces(deltas))
    reading = Reading(wake_ups, updates, longest, busy / took, took, exact)
    cells = f"{wake_ups:12,}{updates:12,}{longest * 1e3:9.1f} ms{reading.busy:12.0%}{'yes' if exact else 'NO':>12}"
    print(f"{make.__name__ + ', ' + way.__name__:20}{cells}")
    return reading


def coalesced(background: BackgroundLoop, deltas: Observable[Delta], post: Post) -> Observable[Delta]:
    """As a window should."""
    return background.run(deltas.pipe(coalesce(FRAME)), post=post)


def posted(background: BackgroundLoop, deltas: Observable[Delta], post: Post) -> Observable[Delta]:
    """All that waits in one call."""
    return background.run(deltas, post=post)


def each(background: BackgroundLoop, deltas: Observable[Delta], post: Post) -> Observable[Delta]:
    """A call for each delta."""

    def on(observer: abc.ObserverBase[Delta], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        return background.run(deltas).subscribe(
            lambda delta: post(lambda: observer.on_next(delta)),
            lambda error: post(lambda: observer.on_error(error)),
            lambda: post(observer.on_completed),
            scheduler=scheduler,
        )

    return Observable(on)


def pieces(deltas: int) -> list[str]:
    """The text, in the pieces of the deltas, all different."""
    return [f"{n:x} " if n % 20 else f"{n:x}\n" for n in range(deltas)]


def flow(deltas: int) -> Observable[Delta]:
    """The deltas at their rate, in bursts as a network gives them."""

    def on(observer: abc.ObserverBase[Delta], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        waiting = iter(pieces(deltas))
        sent = 0
        begun = time.perf_counter()

        def burst(_: int) -> None:
            nonlocal sent
            due = min(int((time.perf_counter() - begun) * RATE), deltas)
            for _ in range(due - sent):
                observer.on_next(TextDelta(next(waiting)))
            sent = due
            if sent == deltas:
                observer.on_completed()

        return rx.interval(BURST, scheduler=timer_scheduler(scheduler)).subscribe(burst, observer.on_error)

    return Observable(on)


class qt:
    """A Qt text, offscreen."""

    def __init__(self) -> None:
        os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
        from PySide6.QtCore import QObject, Signal, Slot
        from PySide6.QtGui import QTextCursor
        from PySide6.QtWidgets import QApplication, QPlainTextEdit

        class Door(QObject):
            posted = Signal(object)

            @Slot(object)
            def enter(self, call: Callable[[], None]) -> None:
                call()

        self._app = QApplication.instance() or QApplication([])
        self._door = Door()
        self._door.posted.connect(self._door.enter)
        self._text = QPlainTextEdit()
        self._end = QTextCursor.MoveOperation.End
        self._text.show()

    def post(self, call: Callable[[], None]) -> None:
        self._door.posted.emit(call)

    def append(self, text: str) -> None:
        self._text.moveCursor(self._end)
        self._text.insertPlainText(text)

    def text(self) -> str:
        return self._text.toPlainText()

    def run(self) -> None:
        self._app.exec()

    def quit(self) -> None:
        self._app.quit()


class tk:
    """A Tk text, which looks into its queue once a frame."""

    def __init__(self) -> None:
        import tkinter

        self._root = tkinter.Tk()
        self._text = tkinter.Text(self._root)
        self._text.pack()
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._look()

    def _look(self) -> None:
        for _ in range(self._calls.qsize()):
            self._calls.get()()
        self._root.after(round(FRAME * 1000), self._look)

    def post(self, call: Callable[[], None]) -> None:
        self._calls.put(call)

    def append(self, text: str) -> None:
        self._text.insert("end", text)
        self._text.see("end")

    def text(self) -> str:
        return self._text.get("1.0", "end-1c")

    def run(self) -> None:
        self._root.mainloop()

    def quit(self) -> None:
        self._root.quit()


if __name__ == "__main__":
    sys.exit(main())
