"""Running tools: only a `ToolCall` may be run, and it comes only where its arguments arrived whole.

The same program is shown an answer that arrives whole, and one whose connection is cut inside the second call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp

from rillet.operators import TextDelta, ToolCall
from rillet.operators.errors import StreamError
from rillet.pipeline import ask, iterate
from rillet.pipeline.sandbox import Fault, Sandbox, Script, ScriptedCall, Wire

SCRIPT = Script(
    text="Let me add and look that up.",
    calls=(ScriptedCall("add", {"a": 2, "b": 40}), ScriptedCall("look_up", {"word": "rillet"})),
    interleave=False,
)


def add(a: int, b: int) -> int:
    return a + b


def look_up(word: str) -> str:
    return f"{word}: a small stream"


TOOLS: dict[str, Callable[..., object]] = {"add": add, "look_up": look_up}


async def answer(fault: Fault | None) -> None:
    async with Sandbox(SCRIPT, Wire(seed=3), fault) as base_url, aiohttp.ClientSession() as session:
        try:
            async for delta in iterate(ask(session, "2 + 40? And a rillet?", provider="openai", base_url=base_url)):
                match delta:
                    case TextDelta(text):
                        print(text, end="", flush=True)
                    case ToolCall(name=name, args=args):
                        print(f"\n{name} gives {TOOLS[name](**args)!r}", end="")
            print("\nThe answer is complete.\n")
        except StreamError as error:
            print(f"\nNot complete: {error}.")


async def main() -> None:
    await answer(None)
    await answer(Fault("cut", after=2_900))


if __name__ == "__main__":
    asyncio.run(main())
