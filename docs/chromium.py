"""A page in a headless Chromium, driven over its DevTools protocol: for the pictures, and for the tests."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

FLAGS = (
    "--headless",
    "--no-sandbox",  # it does not start as root otherwise
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
START_SECONDS = 30.0
WAIT_SECONDS = 15.0


def chromium() -> str | None:
    """The browser's command, None where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """One page."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)

    async def call(self, method: str, **params: object) -> dict[str, Any]:
        """What a command gives."""
        wanted = next(self._ids)
        await self._socket.send_json({"id": wanted, "method": method, "params": params})
        async for message in self._socket:
            answer = message.json()
            if answer.get("id") == wanted:
                return dict(answer["result"])
        raise ConnectionError("the browser has gone")

    async def open(self, url: str) -> None:
        """Go there."""
        await self.call("Page.navigate", url=url)

    async def value(self, expression: str) -> Any:
        """What an expression of JavaScript gives on the page."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not await self.value(expression):
                await asyncio.sleep(0.02)

    async def save(self, path: Path) -> None:
        """Save a picture of it, as PNG."""
        answer = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))


@asynccontextmanager
async def new_page(command: str, width: int = 720, height: int = 560, scale: float = 1) -> AsyncIterator[Page]:
    """An empty page in a browser with a profile of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            command,
            *FLAGS,
            f"--user-data-dir={profile}",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with aiohttp.ClientSession() as session:
                port = await _port(Path(profile, "DevToolsActivePort"))
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    (target,) = [target for target in await answer.json() if target["type"] == "page"]
                async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    page = Page(socket)
                    await page.call(
                        "Emulation.setDeviceMetricsOverride",
                        width=width,
                        height=height,
                        deviceScaleFactor=scale,
                        mobile=False,
                    )
                    yield page
        finally:
            process.terminate()
            await process.wait()


async def _port(file: Path) -> int:
    """The port that the browser writes down once it listens."""
    async with asyncio.timeout(START_SECONDS):
        while not (file.exists() and file.read_text().count("\n")):
            await asyncio.sleep(0.02)
    return int(file.read_text().splitlines()[0])
