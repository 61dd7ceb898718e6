"""A web page that shows an answer as it comes: this server asks, and relays the deltas as server-sent events.

python examples/ui/web.py            the sandbox answers; open http://127.0.0.1:8000
python examples/ui/web.py anthropic  Anthropic does; its key is in ANTHROPIC_API_KEY, and stays on the server

`--port 8080` serves there instead.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path

import aiohttp
from aiohttp import web

from rillet.operators import ByteWindow, coalesce, preview_tools
from rillet.operators.errors import StreamError
from rillet.pipeline import Asking, ask, iterate, stream_llm
from rillet.pipeline.sandbox import DEMO, Sandbox, Wire

PAGE = Path(__file__).with_name("page.html")
FRAME = 1 / 30
SESSION = web.AppKey("session", aiohttp.ClientSession)
ASKING = web.AppKey("asking", Asking)


async def page(request: web.Request) -> web.FileResponse:
    return web.FileResponse(PAGE)


async def answer(request: web.Request) -> web.StreamResponse:
    """The answer to ?q=…, an event for each delta, at most one batch a frame.

    A browser that leaves cancels this handler, which ends the request upstream. One that reads slowly holds up `write`,
    so the window fills, and the provider is read no further.
    """
    if not (question := request.query.get("q")):
        raise web.HTTPBadRequest(text="what is the question? /answer?q=…")
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await response.prepare(request)
    frames = ask(request.app[SESSION], question, **request.app[ASKING]).pipe(coalesce(FRAME), preview_tools(every=0))
    try:
        async with aclosing(iterate(frames, window=ByteWindow(64 * 1024))) as deltas:
            async for delta in deltas:
                await response.write(event(type(delta).__name__, asdict(delta)))
    except StreamError as error:
        await response.write(event("StreamError", {"text": str(error)}))
    return response


def event(name: str, data: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


async def session(app: web.Application) -> AsyncIterator[None]:
    async with aiohttp.ClientSession() as app[SESSION]:
        yield


def application(asking: Asking) -> web.Application:
    app = web.Application()
    app[ASKING] = asking
    app.cleanup_ctx.append(session)
    app.router.add_get("/", page)
    app.router.add_get("/answer", answer)
    return app


def main() -> None:
    parser = ArgumentParser(description="A web page that shows an answer as it comes.")
    parser.add_argument("provider", nargs="?", help="by default the sandbox answers")
    parser.add_argument("--port", type=int, default=8000, help="default: %(default)s")
    options = parser.parse_args()
    with Sandbox(DEMO, Wire(delay=0.02)) as base_url:
        asking: Asking = {"provider": options.provider} if options.provider else {"base_url": base_url}
        try:
            stream_llm("", **asking)  # it asks nothing until it is iterated over, but knows whether it could
            web.run_app(application(asking), host="127.0.0.1", port=options.port, handler_cancellation=True)
        except ValueError as error:
            sys.exit(str(error))
        except OSError as error:
            sys.exit(f"port {options.port}: {error.strerror}")


if __name__ == "__main__":
    main()
