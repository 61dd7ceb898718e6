"""One answer for many clients: a server asks once, and relays the deltas to each as server-sent events.

A client that comes late first gets the answer so far; one that reads too slowly is let go; nobody waits for either.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import asdict

import aiohttp
import reactivex as rx
from aiohttp import web
from reactivex import Observable, abc
from reactivex import operators as rxops

from rillet.operators import ByteWindow, Delta, Message, share
from rillet.operators.errors import StreamError
from rillet.pipeline import Answer, ask, event_source, iterate
from rillet.pipeline.sandbox import Sandbox, Script, Wire

SCRIPT = Script("This is told once, and heard by all. " * 300_000, piece=40_000)
BEHIND = 512 * 1024  # so many of the provider's bytes may wait here for one client


class Relay:
    """An answer that is asked for by its first client, and ends with its last."""

    def __init__(self, answer: Observable[Delta]) -> None:
        self.so_far = Answer()
        self.deltas = answer.pipe(
            rxops.do_action(self.add),
            rxops.finally_action(self.forget),  # who comes after the end asks anew
            share(on_slow="drop_subscriber"),
        )

    def add(self, delta: Delta) -> None:
        self.so_far.add(delta)

    def forget(self) -> None:
        self.so_far = Answer()

    def for_one_client(self) -> Observable[Delta | Message]:
        """What has arrived, then each delta; nothing comes between the two, since nothing is awaited there."""

        def joined(_: abc.SchedulerBase) -> Observable[Delta | Message]:
            so_far: Observable[Delta | Message] = rx.of(self.so_far.message())
            return rx.concat(so_far, self.deltas)

        return rx.defer(joined)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        try:
            async with aclosing(iterate(self.for_one_client(), window=ByteWindow(BEHIND))) as shown:
                async for one in shown:
                    await response.write(event(type(one).__name__, asdict(one)))
        except StreamError as error:
            await response.write(event("StreamError", {"text": str(error)}))
        return response


def event(name: str, data: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


async def client(name: str, url: str, heard: asyncio.Event, go_on: asyncio.Event) -> None:
    """Say what one client got: after its first text it sets `heard`, and reads on once it may `go_on`."""
    so_far, text, last = 0, 0, ""
    async with aiohttp.ClientSession() as session, aclosing(iterate(event_source(session, url))) as events:
        async for came in events:
            data, last = json.loads(came.data), came.event
            if last == "Message":
                so_far = len(data["text"])
            elif last == "TextDelta":
                text += len(data["text"])
                heard.set()
                await go_on.wait()
    whole = "all of it" if so_far + text == len(SCRIPT.text) else "a part of it"
    print(f"{name}: {whole}, {'some' if so_far else 'nothing'} of that at once, and last {last}")


async def main() -> None:
    at_once, begun, over = asyncio.Event(), asyncio.Event(), asyncio.Event()
    at_once.set()
    async with Sandbox(SCRIPT, Wire(delay=0.005)) as base_url, aiohttp.ClientSession() as session:
        relay = Relay(ask(session, "Tell us all.", base_url=base_url))
        app = web.Application()
        app.router.add_get("/answer", relay.serve)
        runner = web.AppRunner(app, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        url = f"http://{host}:{port}/answer"
        try:
            async with asyncio.TaskGroup() as tasks:
                first = tasks.create_task(client("the first", url, begun, at_once))
                slow = tasks.create_task(client("one too slow", url, asyncio.Event(), over))
                await begun.wait()
                late = tasks.create_task(client("one that came late", url, asyncio.Event(), at_once))
                await asyncio.gather(first, late)
                over.set()
                await slow
        finally:
            await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
