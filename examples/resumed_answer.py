"""A long answer over a bad line: it is made in the background, and each connection goes on where the last broke."""

from __future__ import annotations

import asyncio

import aiohttp

from rillet.operators import TextDelta, assemble_tools, decode_deltas, require_done
from rillet.pipeline import Backoff, background_response, event_source, iterate
from rillet.pipeline.protocols import OPENAI_RESPONSES
from rillet.pipeline.sandbox import Fault, Sandbox, Script

SCRIPT = Script("It was a dark and stormy night, and no line held for longer than a sentence.")


async def main() -> None:
    sandbox = Sandbox(SCRIPT, fault=Fault("cut", after=1500))
    async with sandbox as base_url, aiohttp.ClientSession() as session:
        url = f"{base_url}/responses"
        events = event_source(
            session,
            url,
            method="POST",
            json={"model": "any", "input": "Once upon a time?", "stream": True, "background": True},
            resume=background_response(url),
            backoff=Backoff(first=0.01),
        )
        async for delta in iterate(events.pipe(decode_deltas(OPENAI_RESPONSES), assemble_tools(), require_done())):
            if isinstance(delta, TextDelta):
                print(delta.text, end="", flush=True)
        print(f"\nThat took {len(sandbox.requests)} connections.")


if __name__ == "__main__":
    asyncio.run(main())
