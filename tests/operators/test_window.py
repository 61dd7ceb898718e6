from __future__ import annotations

import threading

import pytest

from rillet.operators import ByteWindow
from rillet.operators.window import current_window, offered


class Resumed:
    """Counts how often the source was told to read on."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


@pytest.mark.parametrize("limit", [0, -1])
def test_a_window_without_room_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="at least 1 byte"):
        ByteWindow(limit)


def test_open_below_the_limit_and_full_at_it() -> None:
    window, resumed = ByteWindow(10), Resumed()
    window.add(9)
    assert window.when_open(resumed)
    window.add(1)
    assert not window.when_open(resumed)
    assert (window.pending, window.read, window.stalls, resumed.times) == (10, 10, 1, 0)


def test_a_source_that_waits_is_resumed_once_half_of_the_window_is_free() -> None:
    window, resumed = ByteWindow(10), Resumed()
    marks: list[int] = []
    for size in (4, 1, 5):
        window.add(size)
        marks.append(window.mark())
    assert not window.when_open(resumed)
    window.release(marks[0])
    assert (resumed.times, window.pending, window.room) == (0, 6, 4)
    window.release(marks[1])
    assert (resumed.times, window.pending, window.room) == (1, 5, 5)
    window.release(marks[2])
    assert (resumed.times, window.pending, window.room) == (1, 0, 10)


def test_a_source_that_waits_no_more_is_not_resumed() -> None:
    window, resumed = ByteWindow(1), Resumed()
    window.add(1)
    assert not window.when_open(resumed)
    window.forget(resumed)
    window.forget(resumed)
    window.release_all()
    assert resumed.times == 0


def test_still_full_it_waits_on() -> None:
    window, resumed = ByteWindow(10), Resumed()
    window.add(2)
    mark = window.mark()
    window.add(10)
    assert not window.when_open(resumed)
    window.release(mark)
    assert (resumed.times, window.pending) == (0, 10)


def test_an_earlier_mark_takes_nothing_back() -> None:
    window = ByteWindow(10)
    early = window.mark()
    window.add(5)
    window.release(window.mark())
    window.release(early)
    assert window.pending == 0


def test_while_the_consumer_waits_nothing_is_held() -> None:
    window, resumed = ByteWindow(10), Resumed()
    window.add(10)
    assert not window.when_open(resumed)
    window.release_all()
    assert (resumed.times, window.pending) == (1, 0)
    window.add(100)
    window.add(50)
    assert (window.pending, window.room, window.when_open(resumed)) == (50, 10, True)


def test_the_next_item_ends_the_waiting() -> None:
    window = ByteWindow(10)
    window.release_all()
    window.add(7)
    mark = window.mark()
    window.add(5)
    assert window.pending == 12
    window.release(mark)
    assert window.pending == 5


def test_resuming_may_read_on_at_once() -> None:
    window, resumed = ByteWindow(10), Resumed()

    def read_on() -> None:
        window.add(20)
        window.when_open(resumed)

    window.add(10)
    window.when_open(read_on)
    window.release(window.mark())
    assert (window.pending, window.stalls) == (20, 2)


def test_two_threads_lose_nothing() -> None:
    window, marks = ByteWindow(100), list[int]()
    room, queued = threading.Event(), threading.Semaphore(0)

    def source() -> None:
        for _ in range(2000):
            room.clear()
            if not window.when_open(room.set):
                room.wait()
            window.add(30)
            marks.append(window.mark())
            queued.release()

    reader = threading.Thread(target=source)
    reader.start()
    highest = 0
    for n in range(2000):
        queued.acquire()
        highest = max(highest, window.pending)
        window.release(marks[n])
    reader.join()
    assert (window.read, window.pending) == (60_000, 0)
    assert highest < 100 + 30


def test_a_window_is_offered_inside_the_block_alone() -> None:
    outer, inner = ByteWindow(1), ByteWindow(2)
    assert current_window() is None
    with offered(outer):
        with offered(inner):
            assert current_window() is inner
        assert current_window() is outer
    assert current_window() is None


def test_an_exception_ends_the_offer() -> None:
    with pytest.raises(LookupError), offered(ByteWindow(1)):
        raise LookupError
    assert current_window() is None


class Preempted(ByteWindow):
    """Between one step and the next that no lock joins, another thread reads a chunk; `armed` says whether it may."""

    armed = False

    @property
    def read(self) -> int:  # type: ignore[override]
        before = self._read
        if self.armed and not self._lock.locked():
            self.armed = False
            self.add(20)
        return before

    @read.setter
    def read(self, count: int) -> None:
        self._read = count


def test_a_chunk_read_just_as_the_consumer_starts_to_wait_is_not_held() -> None:
    window = Preempted(10)
    window.armed = True
    window.release_all()
    window.armed = False
    assert window.pending == 0


def test_all_the_sources_of_one_window_are_resumed() -> None:
    window, resumed = ByteWindow(10), []
    window.add(20)
    for source in ("a", "b"):
        assert not window.when_open(lambda source=source: resumed.append(source))
    window.release(20)
    assert resumed == ["a", "b"]


def test_who_asks_again_while_it_is_full_is_called_once() -> None:
    window, calls = ByteWindow(1), list[int]()

    def resume() -> None:
        calls.append(1)

    window.add(1)
    assert not any(window.when_open(resume) for _ in range(3))
    window.release_all()
    assert calls == [1]
