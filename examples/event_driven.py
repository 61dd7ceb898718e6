"""An event-driven program: several subscribers share one stream, each takes what concerns it, one hears the verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import aiohttp
import reactivex as rx
from reactivex import Observable
from reactivex import operators as rxops

from rillet.operators import Delta, Finish, TextDelta, ToolCall, Usage
from rillet.pipeline import ask
from rillet.pipeline.sandbox import Sandbox, Script, ScriptedCall, Wire

T = TypeVar("T")

SCRIPT = Script(
    text="Booking a table for two. It is quiet there on Tuesdays.",
    calls=(ScriptedCall("book", {"people": 2, "day": "Tuesday"}),),
    usage=(12, 34),
)


def listen(stream: Observable[Delta], kind: type[T], handler: Callable[[T], None]) -> None:
    """Give a handler the deltas of one kind; that the stream failed is for others to hear."""

    def on_next(delta: Delta) -> None:
        if isinstance(delta, kind):
            handler(delta)

    stream.pipe(rxops.catch(rx.empty())).subscribe(on_next)


async def main() -> None:
    words: list[str] = []
    verdict: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async with Sandbox(SCRIPT, Wire(seed=5)) as base_url, aiohttp.ClientSession() as session:
        answer = ask(session, "A table for two, please.", provider="openai", base_url=base_url).pipe(rxops.publish())

        listen(answer, TextDelta, lambda delta: words.append(delta.text))
        listen(answer, ToolCall, lambda call: print(f"tools: {call.name}({call.args})"))
        listen(answer, Usage, lambda usage: print(f"meter: {usage.input_tokens} tokens in, {usage.output_tokens} out"))
        listen(answer, Finish, lambda finish: print(f"log:   the reason is {finish.reason}"))
        answer.subscribe(on_error=verdict.set_exception, on_completed=lambda: verdict.set_result("complete"))

        answer.connect()
        print(f"The answer is {await verdict}: {''.join(words)}")


if __name__ == "__main__":
    asyncio.run(main())
