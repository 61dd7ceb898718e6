"""What it costs to show JSON while it comes, beside parsers that begin anew; and that it grows in proportion.

    python benchmarks/partial_json.py [--quick]

Documents come in fragments of 4 characters, about a token each, and are read after each fragment or once a frame. A
frame is 20 fragments: what 600 tokens a second leave of it at 30 frames a second. What comes within a frame is joined
and read at its end, by everybody, as `preview_tools` does it. A reader looks at a value and lets it go; "the last one
kept" holds it until the next one is there.

Exits with 1 where ours, read once a frame, takes more than 2.6 times the time for twice the input; without --quick also
where ours, read after each fragment, is behind jiter at 2 KB, or less than 20 times as fast at 128 KB. Not held to the
first is what each reading must copy: a long string that somebody still holds, and the keys of an object that is open.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import count, pairwise
from math import inf
from statistics import median
from time import process_time
from typing import Any, NamedTuple, TypeAlias

from rillet.operators import PartialJson

FRAGMENT = 4
FRAME = 20 * FRAGMENT
SIZES = (0.5, 2, 8, 32, 128, 512)
GROWTH_LIMIT = 2.6
OURS, KEPT, JITER = "PartialJson", "the last one kept", "jiter"
TARGETS = {2: 1, 128: 20}  # at so many KB, so many times as fast as jiter

Take: TypeAlias = Callable[[Any], None]
Contestant: TypeAlias = Callable[[Sequence[str], Take], None]
"""Takes the pieces of a document and hands on what it can see after each of them."""


class Effort(NamedTuple):
    """How much is measured.

    Attributes:
        largest: The largest size, in KB.
        rounds: How often each size is measured.
        patience: Seconds that one run of a rival may take; of jiter, which the targets name, six times as long.
        doublings: How often the input of the growth doubles.
    """

    largest: float
    rounds: int
    patience: float
    doublings: int


FULL = Effort(largest=512, rounds=3, patience=5, doublings=3)
QUICK = Effort(largest=8, rounds=3, patience=0.1, doublings=1)
GROWTH_SIZE = 64 * 1024
GROWTH_ROUNDS = 9


def main() -> int:
    """Run both benchmarks; the exit code."""
    parser = argparse.ArgumentParser(description="What it costs to show JSON while it comes, beside other parsers.")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds: a few seconds, for CI")
    effort = QUICK if parser.parse_args().quick else FULL
    contestants = {OURS: ours, KEPT: ours, **rivals()}
    failures = [failure for name, make in SHAPES.items() for failure in contest(name, make, contestants, effort)]
    failures = [*(failures if effort is FULL else ()), *grow(effort)]
    for failure in failures:
        print(failure, file=sys.stderr)
    return int(bool(failures))


def a_file(size: int) -> str:
    """One long string: a file being written, with a new line or a quotation mark to escape every 30 characters."""
    line = '    if name in seen:  # "once" only\n        return seen[name]\n'
    return json.dumps({"path": "src/names.py", "content": (line * (size // len(line) + 1))[:size]})


def many_fields(size: int) -> str:
    """Many fields: rows of an order, five values each."""
    rows = [
        {"id": n, "name": f"item {n}", "price": n / 4, "tags": ["a", "b"], "sold": True}
        for n in range(max(1, size // 78))
    ]
    return json.dumps({"rows": rows})


def one_object(size: int) -> str:
    """As many keys as there can be in one object, which is open all the time."""
    return json.dumps({f"field {n}": f"value {n}" for n in range(max(1, size // 28))})


SHAPES: Mapping[str, Callable[[int], str]] = {"a file": a_file, "many fields": many_fields, "one object": one_object}
HELD_TO_IT = {(OURS, "a file"), (OURS, "many fields")}


def ours(pieces: Sequence[str], take: Take) -> None:
    """Reads on from where it was."""
    parser = PartialJson()
    for piece in pieces:
        parser.feed(piece)
        take(parser.value)


def rivals() -> dict[str, Contestant]:
    """The parsers that begin anew at each reading, as far as they are installed."""
    found: dict[str, Contestant] = {}
    for name, make in {JITER: jiter, "partial-json-parser": partial_json_parser, "json-repair": json_repair}.items():
        try:
            found[name] = make()
        except ImportError:
            print(f"{name} is missing: no row for it (pip install 'rillet[bench]')")
    return found


def jiter() -> Contestant:
    from_json = import_module("jiter").from_json

    def contestant(pieces: Sequence[str], take: Take) -> None:
        seen = bytearray()
        for piece in pieces:
            seen += piece.encode()
            take(from_json(bytes(seen), partial_mode="trailing-strings"))

    return contestant


def partial_json_parser() -> Contestant:
    return anew(import_module("partial_json_parser").loads)


def json_repair() -> Contestant:
    loads = import_module("json_repair").loads
    return anew(lambda text: loads(text, skip_json_loads=True))


def anew(loads: Callable[[str], Any]) -> Contestant:
    """Reads all that there is, each time."""

    def contestant(pieces: Sequence[str], take: Take) -> None:
        seen = ""
        for piece in pieces:
            seen += piece
            take(loads(seen))

    return contestant


def contest(name: str, make: Callable[[int], str], contestants: Mapping[str, Contestant], effort: Effort) -> list[str]:
    """Print what a document of each size costs each contestant; what is behind its target."""
    sizes = [size for size in SIZES if size <= effort.largest]
    behind: list[str] = []
    for reading, length in {"after each fragment": FRAGMENT, "once a frame": FRAME}.items():
        print(f"\n{name}, read {reading}: CPU milliseconds a document of")
        print(f"{'':24}" + "".join(f"{f'{size:g} KB':>12}" for size in sizes), flush=True)
        rows = {
            who: costs(who, contestant, [cut(make(int(size * 1024)), length) for size in sizes], effort)
            for who, contestant in contestants.items()
        }
        for who, row in rows.items():
            print(f"{who:24}" + "".join(f"{'skipped' if cost == inf else f'{cost * 1e3:.2f}':>12}" for cost in row))
        if JITER in rows:
            ratios = {size: their / our for size, our, their in zip(sizes, rows[OURS], rows[JITER], strict=True)}
            cells = (f"{'' if ratio == inf else f'{ratio:.1f}x':>12}" for ratio in ratios.values())
            print(f"{'jiter takes, times ours':24}" + "".join(cells))
            behind += [
                f"{name}, read {reading}, at {size:g} KB: {ratios[size]:.1f} times as fast as jiter, not {target}"
                for size, target in TARGETS.items()
                if length == FRAGMENT and ratios.get(size, inf) < target
            ]
    if any(inf in row for row in rows.values()):
        print(f"skipped: by the size before, more than {effort.patience:g} seconds ({effort.patience * 6:g} for jiter)")
    return behind


def costs(who: str, contestant: Contestant, documents: Sequence[Sequence[str]], effort: Effort) -> list[float]:
    """Seconds a document of each size, the median of rounds; infinite from where one would take too long."""
    found: list[float] = []
    patience = effort.patience * (6 if who == JITER else 1)
    for pieces in documents:
        expected = found[-1] * 16 if found and who not in (OURS, KEPT) else 0.0  # four times the size
        if expected > patience:
            return [*found, *[inf] * (len(documents) - len(found))]
        check(who, contestant, pieces)
        rounds = effort.rounds if expected < 1 else 1
        found.append(median(cpu_seconds(who, contestant, pieces) for _ in range(rounds)))
    return found


def check(who: str, contestant: Contestant, pieces: Sequence[str]) -> None:
    """Exit where a contestant does not come to the whole value."""
    last: deque[Any] = deque(maxlen=1)
    contestant(pieces[-1:] if len(pieces) == 1 else ["".join(pieces[:-1]), pieces[-1]], last.append)
    if last.pop() != json.loads("".join(pieces)):
        sys.exit(f"{who} does not give the value that was sent")


def cpu_seconds(who: str, contestant: Contestant, pieces: Sequence[str]) -> float:
    """The processor time of one run; of a short one, of as many as it takes to measure it."""
    take = deque[Any](maxlen=1 if who == KEPT else 0).append
    gc.collect()
    start = process_time()
    for runs in count(1):
        contestant(pieces, take)
        spent = process_time() - start
        if spent > 0.02:
            return spent / runs
    raise AssertionError


def cut(text: str, length: int) -> list[str]:
    """The text in pieces of this many characters."""
    return [text[at : at + length] for at in range(0, len(text), length)]


def grow(effort: Effort) -> list[str]:
    """Print how the time of reading once a frame grows where the input doubles; what grows too fast."""
    sizes = [GROWTH_SIZE << doubling for doubling in range(effort.doublings + 1)]
    labels = (f"{small >> 10} → {large >> 10} KB" for small, large in pairwise(sizes))
    print(f"\n{OURS}, read once a frame: time(2n) / time(n), at most {GROWTH_LIMIT}")
    print(f"{'':24}" + "".join(f"{label:>16}" for label in labels))
    failures: list[str] = []
    for name, make in SHAPES.items():
        for who in (OURS, KEPT):
            ratios = growth(who, [cut(make(size), FRAME) for size in sizes])
            label = f"{name}, kept" if who == KEPT else name
            note = "" if (who, name) in HELD_TO_IT else "   (not held to it)"
            print(f"{label:24}" + "".join(f"{ratio:16.2f}" for ratio in ratios) + note)
            if max(ratios) > GROWTH_LIMIT and not note:
                failures.append(f"{name} ({who}): more than {GROWTH_LIMIT} times the time for twice the input")
    return failures


def growth(who: str, documents: Sequence[Sequence[str]]) -> list[float]:
    """By how much the time grows from each document to the next, the median of rounds."""
    times = [[cpu_seconds(who, ours, pieces) for pieces in documents] for _ in range(GROWTH_ROUNDS)]
    ratios = [[large / small for small, large in pairwise(round_)] for round_ in times]
    return [median(column) for column in zip(*ratios, strict=True)]


if __name__ == "__main__":
    sys.exit(main())
