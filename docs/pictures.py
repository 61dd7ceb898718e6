"""Makes the README's pictures of the terminal and of the page, in the middle of an answer.

    python docs/pictures.py

Needs the extra `ui`, and Chromium for the page.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import aiohttp
from aiohttp import web
from chromium import chromium, new_page

from rillet.pipeline.sandbox import DEMO, Fault, Sandbox, Wire

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
QUESTION = "Is Saturday good for a walk with Ada?"
MIDDLE = Fault("stall", after=9_000)  # inside the last argument of the second call
LAST_SHOWN = "Fløyen"


def example(name: str) -> ModuleType:
    """The example of that name."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / "ui" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def terminal(base_url: str) -> None:
    """The chat in the terminal, as SVG."""
    async with aiohttp.ClientSession() as session:
        chat = example("terminal").Chat(session, {"base_url": base_url})
        chat.title = "examples/ui/terminal.py"
        async with chat.run_test(size=(78, 24)) as pilot:
            chat.query_one("Input").value = QUESTION
            await pilot.press("enter")
            async with asyncio.timeout(10):
                while LAST_SHOWN not in (svg := chat.export_screenshot(title=chat.title)):
                    await pilot.pause(0.05)
    (PICTURES / "terminal.svg").write_text(svg, encoding="utf-8")


async def page(base_url: str, command: str) -> None:
    """The page, as PNG."""
    runner = web.AppRunner(example("web").application({"base_url": base_url}), handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    _, port = runner.addresses[0][:2]
    async with new_page(command, 720, 440, scale=1.5) as browser:
        calm = {"name": "prefers-reduced-motion", "value": "reduce"}
        await browser.call("Emulation.setEmulatedMedia", features=[calm])
        await browser.open(f"http://127.0.0.1:{port}/?q={QUESTION}")
        await browser.until(f"document.body?.innerText.includes({LAST_SHOWN!r})")
        await browser.save(PICTURES / "page.png")
    await runner.cleanup()


async def main() -> None:
    async with Sandbox(DEMO, Wire(), MIDDLE) as base_url:
        await terminal(base_url)
        if command := chromium():
            await page(base_url, command)
        else:
            print("no Chromium here: the page is left as it was", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main())
