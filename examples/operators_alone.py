"""Operators reused in a pipeline that has nothing to do with LLMs: the alarms in a device's log.

The log comes in pieces cut anywhere, inside characters and line ends too. `decode_utf8` and `split_lines` stand among
reactivex's own operators; `lift` makes one more operator of a stage written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import reactivex as rx
from reactivex import operators as rxops

from rillet.operators import Stage, decode_utf8, lift, split_lines

LOG = "12:00 ok 21 °C\r\n12:01 alarm 87 °C\r\n12:02 ok 22 °C\n12:03 alarm 91 °C\n12:04 alarm 93 °C\n".encode()


class Numbered(Stage[str, str]):
    """Puts a running number before each item."""

    def __init__(self) -> None:
        self._count = 0

    def feed(self, batch: Iterable[str]) -> Iterator[str]:
        for item in batch:
            self._count += 1
            yield f"{self._count}. {item}"


def is_alarm(line: str) -> bool:
    return "alarm" in line


def main() -> None:
    pieces = [LOG[at : at + 5] for at in range(0, len(LOG), 5)]
    alarms = rx.from_iterable(pieces).pipe(
        decode_utf8(),
        split_lines(max_line=1000),
        rxops.filter(is_alarm),
        lift(Numbered),
    )
    alarms.subscribe(print, on_completed=lambda: print("end of log"))


if __name__ == "__main__":
    main()
