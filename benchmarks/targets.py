"""What this library wants to be, as figures, and whether a run met them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from statistics import median
from typing import Any, NamedTuple

import growth
import start
from inprocess import PEER_CHUNKS, Rounds
from peers.rillet import CHAIN, FLOOR, FRAMING

TEXT = "openai-chat, text"
MESSAGES = "anthropic, thinking and tools"
FASTEST_PYTHON = "httpx-sse, orjson"
ON_NODE = "eventsource-parser, JSON.parse"
OPENAI = "openai-python, raw stream"
OVER_HTTP = "iterate"
OURS_OVER_HTTP = (FLOOR, OVER_HTTP, "subscribe")
TIMES_AS_FAST = {
    (OPENAI, TEXT): 40,
    ("anthropic, raw stream", MESSAGES): 12,
    ("Vercel's ai, streamText", TEXT): 20,
    ("TanStack AI, chat", TEXT): 20,
}
HELP_MS = 150.0

Results = Mapping[str, Any]


class Target(NamedTuple):
    """One target: what is wanted, what was measured; met is None where nothing was."""

    part: str
    wanted: str
    measured: str
    met: bool | None


def times(more: Sequence[float], less: Sequence[float]) -> float:
    """How many times as much, by the median of the rounds, in each of which both were measured."""
    return median(a / b if b else inf for a, b in zip(more, less, strict=True))


def targets(results: Results) -> list[Target]:
    """All of them, in the order of the report."""
    parts = (chain, framing, verified, over_http, grown, started)
    return [target for part in parts for target in part(results)]


def chain(results: Results) -> Iterator[Target]:
    """The chain beside the floor."""
    table = results["chain"]
    for label, limit in (("1.4 KB", 2.0), ("one event", 2.5)):
        cost = times(table[TEXT][label][CHAIN], table[TEXT][label][FLOOR])
        wanted = f"{TEXT}, in chunks of {label}: at most {limit} × the floor"
        yield Target("the chain", wanted, f"{cost:.2f} ×", cost <= limit)
    for stream in table:
        if stream == TEXT:
            continue
        costs = {label: times(cells[CHAIN], cells[FLOOR]) for label, cells in table[stream].items()}
        worst = max(costs, key=costs.__getitem__)
        measured = f"{costs[worst]:.2f} × in chunks of {worst}"
        yield Target("the chain", f"{stream}: at most 2.5 × the floor", measured, costs[worst] <= 2.5)


def framing(results: Results) -> Iterator[Target]:
    """The framing operators with JSON, beside what does no more."""
    table = results["peers"][TEXT]
    yield at_least("framing, JSON", table, FASTEST_PYTHON, FRAMING, 2.5)
    yield at_least("framing, JSON", table, ON_NODE, FRAMING, 1.0)


def verified(results: Results) -> Iterator[Target]:
    """The chain beside what gives objects and verifies nothing."""
    for (peer, stream), limit in TIMES_AS_FAST.items():
        yield at_least("typed and verified", results["peers"].get(stream, {}), peer, CHAIN, limit)


def at_least(part: str, table: Mapping[str, Any], peer: str, ours: str, limit: float) -> Target:
    """So many times as fast as a peer, in chunks of either size."""
    wanted = f"at least {limit:g} × as fast as {peer}"
    if not all(peer in table.get(label, ()) for label in PEER_CHUNKS):
        return Target(part, wanted, "not measured", None)
    found = {label: times(table[label][peer], table[label][ours]) for label in PEER_CHUNKS}
    measured = ", ".join(f"{times_:.2f} × ({label})" for label, times_ in found.items())
    at_best = min(times(table[label][peer], table[label][FLOOR]) for label in PEER_CHUNKS)
    if at_best < limit:
        measured += f"; the floor itself is {at_best:.2f} × as fast"
    return Target(part, wanted, measured, min(found.values()) >= limit)


def over_http(results: Results) -> Iterator[Target]:
    """Fifty streams at once."""
    http = results["http"]
    loads = http["at_once"].get("50", {})

    def rate(client: str) -> Rounds:
        rounds: Rounds = loads[client]["deltas_per_cpu_second"]
        return rounds

    for peer, limit in ((FLOOR, 0.7), (OPENAI, 25), (FASTEST_PYTHON, 2)):
        wanted = f"50 streams: at least {limit:g} × the deltas a second of {peer}"
        if peer in loads and OVER_HTTP in loads:
            found = times(rate(OVER_HTTP), rate(peer))
            yield Target("over HTTP", wanted, f"{found:.2f} ×", found >= limit)
        else:
            yield Target("over HTTP", wanted, "not measured", None)
    yield less_memory(http["memory_kb"])


def less_memory(memory: Mapping[str, float]) -> Target:
    """Less memory for each stream than any peer."""
    peers = {name: size for name, size in memory.items() if name not in OURS_OVER_HTTP}
    wanted = "less memory for each stream than any of them"
    if not peers or OVER_HTTP not in memory:
        return Target("over HTTP", wanted, "not measured", None)
    least = min(peers, key=peers.__getitem__)
    measured = f"{memory[OVER_HTTP]:.0f} KB; {least}: {peers[least]:.0f} KB"
    return Target("over HTTP", wanted, measured, memory[OVER_HTTP] < peers[least])


def grown(results: Results) -> Iterator[Target]:
    """Twice of anything takes twice the time."""
    for name, figures in results["growth"].items():
        worst = max(figures["ratios"])
        yield Target("growth", f"{name}: time(2n) / time(n) under {growth.LIMIT}", f"{worst:.2f}", worst < growth.LIMIT)


def started(results: Results) -> Iterator[Target]:
    """What starting costs."""
    heavy = results["start"]["heavy"]
    wanted = f"rillet.operators imports none of {', '.join(start.HEAVY)}"
    yield Target("start", wanted, f"imports {', '.join(heavy)}" if heavy else "none", not heavy)
    cost = start.help_costs(results["start"])
    wanted = f"rillet --help: at most {HELP_MS:g} ms more than bare Python"
    yield Target("start", wanted, f"{cost:.0f} ms", cost <= HELP_MS)


def printed(found: Sequence[Target], say: Callable[[str], None] = print) -> None:
    """One line each, and a sum."""
    for target in found:
        say(f"{word(target):9} {target.part:19} {target.wanted}: {target.measured}")
    counts = [sum(target.met is met for target in found) for met in (True, False, None)]
    say("{} met, {} not met, {} not measured".format(*counts))


def word(target: Target) -> str:
    """Met, or not."""
    return {True: "met", False: "NOT MET", None: "unknown"}[target.met]
