"""What a run came to: results.json, docs/benchmarks.md, and its plot.

    python benchmarks/report.py

That writes the page and the plot again, from benchmarks/results.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import plot
import start
from inprocess import CHUNKS, PEER_CHUNKS
from over_http import RUNS
from peers.rillet import CHAIN, FLOOR, FRAMING, IN_RX, PARSER
from targets import OURS_OVER_HTTP, OVER_HTTP, TEXT, Results, targets, times, word

OURS = (FLOOR, CHAIN, IN_RX, FRAMING, PARSER)
GIVES = {
    "payloads": "payloads (parsed JSON)",
    "objects": "objects of its own types",
    "verified": "typed deltas, verified whole",
}
ROUNDS = re.compile(r"\[([-+.\de,\s]+)\]")

HEAD = """\
# Benchmarks

*This page is written by `make bench`. Don't edit it: `benchmarks/report.py` holds the words.*

What it costs to get from the bytes of a streaming answer to something of use, beside the packages that people use for
it; and whether the cost grows in proportion. All figures are of one run, on one machine:

{machine}

Another machine gives other microseconds. The ratios travel better: everybody reads the same bytes, takes turns with the
others in each round, and runs on one core of its own. Figures are medians of the rounds, with the lowest and the
highest in brackets; a ratio is the median of the rounds' own ratios. Time is processor time, of all threads.

## How to repeat it

```sh
make bench              # about ten minutes; makes .venv-bench, with the peers from PyPI and npm
make bench QUICK=1      # a smoke run of a minute or two, whose figures say little
```

`benchmarks/run.py` conducts; `benchmarks/peers/` and `benchmarks/node/` have a file for each package, written as the
package's own documentation shows it. Nobody is timed before saying, to the letter, what was sent. `results.json` has
every round.
"""

FLOOR_WORDS = """\
The floor is the least that can be done: split the bytes at blank lines, `orjson.loads`, nothing else. It assumes
whole UTF-8, one kind of line end and one layout of an event, and does not notice when a stream is cut. The chain
decodes, frames, types, assembles tool calls, and verifies that the answer is whole. Streams of about {events:,} events;
microseconds an event, and times the floor.
"""

PEER_WORDS = """\
The packages get the bytes through a transport that replays them, so that no socket is in the figures; streams of about
{events:,} events, the set-up of a client and of a request included. What they give differs, and so does what it is
worth: **payloads** are parsed JSON, **objects** are of the package's own types, and only **verified** deltas come from
an answer that is known to be whole. (The helpers that sum an answer up keep more than the raw streams do; that is what
they are for.)
"""

CUT_WORDS = """\
Each stream again, but cut in its middle, between two events, as a proxy does that gives up. Whoever says nothing here
gives half an answer as a whole one.
"""

MEMORY_WORDS = """\
Counted by tracemalloc in a pass of its own: the peak while a stream of about {events:,} events is read and its items
dropped, and the memory blocks that an event's items hold while they are kept. (There is no such count on Node.)
"""

HTTP_WORDS = """\
Streams of openai-chat, each event an HTTP chunk, from `benchmarks/server.py`, which writes bytes
that were rendered beforehand, on the other core. A run ends when all streams have, or when its time is over; what was
handed on by then counts. "Deltas a second" is for each second of the client's core. The floor is aiohttp's
`iter_any`, split, and orjson; `iterate` is `async for` with a window that slows the server down; `subscribe` has no
queue. All streams that are read at once begin at once, so a first delta waits for the core, too; ≥ where some had none
yet when the time was over. (The packages on Node take part in process only.)
"""

WINS_WORDS = """\
The packages compared here do much that Rillet does not: they build requests, retry them, type every field of an answer,
run agents. Where all of that is wanted, the parsing is the smallest part of the bill. And by this run's figures:
"""


def write(results: Mapping[str, Any], root: Path) -> Iterator[Path]:
    """Write the files; gives their paths as they are there."""
    for name, content in (
        ("benchmarks/results.json", as_json(results)),
        ("docs/benchmarks.md", page(results)),
        ("docs/benchmarks.svg", plot.drawn(*charts(results))),
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        yield path


def as_json(results: Mapping[str, Any]) -> str:
    """Indented, but with the rounds of a figure on one line."""
    text = json.dumps(results, indent=1, ensure_ascii=False)
    return ROUNDS.sub(lambda rounds: f"[{' '.join(rounds[1].split())}]", text) + "\n"


def page(results: Results) -> str:
    """The page."""
    return "\n".join(
        (
            HEAD.format(machine=machine(results)),
            "![what an event costs, and what a core carries](benchmarks.svg)\n",
            *section("Targets", target_table(results)),
            *section(
                "In process: the chain beside the floor",
                FLOOR_WORDS.format(events=results["events"]["chain"]),
                chain_table(results),
            ),
            *section(
                "In process: beside the peers",
                PEER_WORDS.format(events=results["events"]["peers"]),
                *peer_tables(results),
                instructions(results),
            ),
            *section("Who notices a cut", CUT_WORDS, cut_table(results)),
            *section("Memory in process", memory_words(results), *memory_tables(results)),
            *section("Over HTTP", HTTP_WORDS, *http_tables(results), server_words(results)),
            *section("Growth", growth_words(results), growth_table(results)),
            *section("Start", start_words(results), start_table(results)),
            *section("Where others win", WINS_WORDS, wins(results)),
            *section("Who took part, and who did not", versions(results)),
        )
    )


def section(title: str, *parts: str) -> Iterator[str]:
    yield f"## {title}\n"
    yield from (part.rstrip("\n") + "\n" for part in parts if part)


def machine(results: Results) -> str:
    facts = results["machine"]
    node = f"Node {facts['node']}"
    words = [facts["date"], facts["cpu"], f"{facts['cores']} cores", facts["system"], facts["python"], node]
    load = f"The machine's load before it was {facts['load_before']}: "
    load += "it was busy with other work, too." if facts["load_before"] > 0.5 else "it was idle."
    quick = ["", "**This was a smoke run: too few events and rounds to say much.**"] if results["quick"] else []
    return "\n".join((", ".join(words) + ".", load, *quick))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the first column is text, the others are figures."""
    return joined([head, ["---", *["---:"] * (len(head) - 1)], *rows])


def joined(rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def spread(rounds: Sequence[float], digits: int = 2) -> str:
    """The median, with the lowest and the highest."""
    return f"{median(rounds):,.{digits}f} ({min(rounds):,.{digits}f}–{max(rounds):,.{digits}f})"


def target_table(results: Results) -> str:
    rows = [(word(target), target.part, target.wanted, target.measured) for target in targets(results)]
    return joined([("", "part", "wanted", "measured"), ("---",) * 4, *rows])


def chain_words(results: Results) -> str:
    return FLOOR_WORDS.format(events=results["events"]["chain"])


def chain_table(results: Results) -> str:
    rows = []
    for stream, chunks in results["chain"].items():
        for name in (FLOOR, CHAIN, IN_RX):
            cells = [
                f"{spread(chunks[label][name])}, {times(chunks[label][name], chunks[label][FLOOR]):.2f} ×"
                if name != FLOOR
                else spread(chunks[label][name])
                for label in CHUNKS
            ]
            rows.append((f"{stream}: {name}", *cells))
    return table(("stream, and who reads it", *CHUNKS), rows)


def peer_words(results: Results) -> str:
    return PEER_WORDS.format(events=results["events"]["peers"])


def peer_tables(results: Results) -> Iterator[str]:
    for stream, chunks in results["peers"].items():
        yield f"**{stream}**, µs an event in chunks of {' and of '.join(PEER_CHUNKS)}:"
        names = sorted(chunks[PEER_CHUNKS[-1]], key=lambda name: median(chunks[PEER_CHUNKS[-1]][name]))
        rows = []
        for name in names:
            cells = [spread(chunks[label][name]) for label in PEER_CHUNKS]
            ratios = [f"{times(chunks[label][name], chunks[label][CHAIN]):.1f} ×" for label in PEER_CHUNKS]
            rows.append((f"{'**' + name + '**' if name in OURS else name}", results["gives"][name], *cells, *ratios))
        yield table(("who", "gives", *PEER_CHUNKS, *(f"times {CHAIN}, {label}" for label in PEER_CHUNKS)), rows)


def instructions(results: Results) -> str:
    counts = results["instructions"]
    if not counts:
        return "Instructions were not counted: valgrind is not installed."
    words = ", ".join(f"{name} {count:,.0f}" for name, count in counts.items())
    return f"Instructions an event ({TEXT}, 1.4 KB), counted by valgrind, the same in every run: {words}."


def cut_table(results: Results) -> str:
    rows = [("stream", "who fails", "who says nothing"), ("---",) * 3]
    for stream, faults in results["cut"].items():
        fail = [f"{name} ({fault.partition(':')[0]})" for name, fault in faults.items() if fault]
        rows.append((stream, ", ".join(fail), ", ".join(name for name, fault in faults.items() if not fault)))
    return joined(rows)


def memory_words(results: Results) -> str:
    return MEMORY_WORDS.format(events=results["events"]["memory"])


def memory_tables(results: Results) -> Iterator[str]:
    for stream, rows in results["memory"].items():
        yield f"**{stream}**"
        cells = [
            (name, f"{figures['peak_kb']:,.0f} KB", f"{figures['blocks_per_event']:.1f}")
            for name, figures in sorted(rows.items(), key=lambda row: row[1]["peak_kb"])
        ]
        yield table(("who", "peak", "blocks an event"), cells)


def http_tables(results: Results) -> Iterator[str]:
    memory = results["http"]["memory_kb"]
    for at_once, loads in results["http"]["at_once"].items():
        run = RUNS[int(at_once)]
        yield f"**{at_once} at once**: {run.streams} streams of {run.events} events, about {run.seconds:g} s at most:"
        head = ("who", "deltas a second", "CPU s a million", "first delta p50", "p99", "server's core")
        rows: list[tuple[str, ...]] = []
        for name in sorted(loads, key=lambda name: -median(loads[name]["deltas_per_cpu_second"])):
            load = loads[name]
            late = "≥ " if max(load["unanswered"]) else ""
            rows.append(
                (
                    name,
                    spread(load["deltas_per_cpu_second"], 0),
                    million(median(load["deltas_per_cpu_second"])),
                    f"{late}{median(load['first_p50_ms']):,.1f} ms",
                    f"{late}{median(load['first_p99_ms']):,.1f} ms",
                    f"{median(load['server_share']):.0%}",
                )
            )
        yield table(head, rows)
    most = max(map(int, results["http"]["at_once"]))
    yield f"**Memory**: what {most} streams at once add to the process at most, for each of them:"
    sizes = [(name, f"{size:,.0f} KB") for name, size in sorted(memory.items(), key=lambda row: row[1])]
    yield table(("who", "memory"), sizes)


def million(rate: float) -> str:
    """The seconds that a million take at this rate."""
    return f"{1e6 / rate:.2f}" if rate else "none came"


def server_words(results: Results) -> str:
    alone = results["http"]["server_alone"]
    rate = median(round_["events_per_cpu_second"] for round_ in alone)
    busiest = max(
        (median(load["server_share"]), name, at_once)
        for at_once, loads in results["http"]["at_once"].items()
        for name, load in loads.items()
    )
    return (
        f"The server is not what is measured: alone, with a client that does nothing but `recv`, it writes {rate:,.0f} "
        f"events in a second of its core; beside these clients it was busiest, {busiest[0]:.0%} of its core, with "
        f"{busiest[1]}, {busiest[2]} at once."
    )


def growth_words(results: Results) -> str:
    return (
        "time(2n) / time(n) of the whole chain, medians of several rounds; 2 is linear, and from 2.6 on `make bench` "
        "fails. Seconds are of the largest size."
    )


def growth_table(results: Results) -> str:
    rows = []
    for name, grown in results["growth"].items():
        sizes = " → ".join(f"{size:,}" for size in grown["sizes"])
        ratios = ", ".join(f"{ratio:.2f}" for ratio in grown["ratios"])
        rows.append((name, f"{sizes} {grown['unit']}", ratios, f"{grown['seconds'][-1]:.3f}"))
    return table(("what grows", "sizes", "time(2n) / time(n)", "s"), rows)


def start_words(results: Results) -> str:
    started = results["start"]
    dearest = ", ".join(f"{name} {us / 1000:.1f}" for name, us in started["dearest_us"].items())
    heavy = ", ".join(started["heavy"]) or "none"
    return (
        f"`rillet.operators` brings {started['modules']} modules; of {', '.join(start.HEAVY)}: {heavy}. The "
        f"dearest, in ms of their own: {dearest}. Milliseconds of processor time from start to end, with Python's own:"
    )


def start_table(results: Results) -> str:
    return table(("command", "ms"), ((name, spread(ms, 0)) for name, ms in results["start"]["ms"].items()))


def wins(results: Results) -> str:
    """Each figure of ours that somebody beats who does the same or less, by name."""
    lines = [*faster_in_process(results), *lighter_in_process(results), *better_over_http(results)]
    return "\n".join(f"- {line}" for line in lines) or "- nobody was faster or lighter than Rillet's counterpart."


def rivals(results: Results, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each that is not ours, with ours that does as much."""
    for name in names:
        if name not in OURS:
            yield name, FRAMING if results["gives"][name] == "payloads" else CHAIN


def faster_in_process(results: Results) -> Iterator[str]:
    for stream, chunks in results["peers"].items():
        for label, costs in chunks.items():
            for name, ours in rivals(results, costs):
                if (ratio := times(costs[name], costs[ours])) < 1:
                    yield f"{name} takes {ratio:.2f} × the time of {ours}: {stream}, in chunks of {label}."


def lighter_in_process(results: Results) -> Iterator[str]:
    for stream, rows in results["memory"].items():
        for name, ours in rivals(results, rows):
            peak, limit = rows[name]["peak_kb"], rows[ours]["peak_kb"]
            if peak < limit:
                yield f"{name} peaks at {peak:,.0f} KB, {ours} at {limit:,.0f}: {stream}."


def better_over_http(results: Results) -> Iterator[str]:
    for at_once, loads in results["http"]["at_once"].items():
        ours = loads[OVER_HTTP]
        for name in (name for name in loads if name not in OURS_OVER_HTTP):
            rate = times(loads[name]["deltas_per_cpu_second"], ours["deltas_per_cpu_second"])
            first = times(loads[name]["first_p50_ms"], ours["first_p50_ms"])
            if rate > 1:
                yield f"{name} hands on {rate:.2f} × as many deltas a second, {at_once} at once."
            if first < 1:
                yield f"{name} has the first delta after {first:.2f} × the time (median), {at_once} at once."


def versions(results: Results) -> str:
    took_part = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    lines = [f"Took part: {took_part}."]
    lines += [f"- **Missing**: {name}: {reason}" for name, reason in results["missing"].items()]
    lines += [f"- {name}: gives {GIVES[gives]}" for name, gives in results["gives"].items() if name not in OURS]
    return "\n".join([lines[0], "", *lines[1:]])


def charts(results: Results) -> Iterator[plot.Chart]:
    """What is drawn: microseconds an event in process, and deltas a second over HTTP."""
    costs = {name: median(rounds) for name, rounds in results["peers"][TEXT]["1.4 KB"].items()}
    yield plot.Chart("in process: µs an event (openai-chat text, 1.4 KB; less is better)", costs, OURS)
    at_once = "50"
    loads = results["http"]["at_once"][at_once]
    rates = {name: rate / 1000 for name, load in loads.items() if (rate := median(load["deltas_per_cpu_second"]))}
    title = f"over HTTP: thousand deltas a second of a core ({at_once} streams at once; more is better)"
    yield plot.Chart(title, rates, OURS_OVER_HTTP)


if __name__ == "__main__":
    here = Path(__file__).parent
    for written in write(json.loads((here / "results.json").read_text()), here.parent):
        print(written)
