"""The page in a real browser, and what the relay does upstream when the browser leaves or is slow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from rillet.pipeline import SSEParser
from rillet.pipeline.sandbox import DEMO, Fault, Sandbox, Script

MIDDLE = Fault("stall", after=9_000)


@pytest.fixture
def example(program: Callable[[str], ModuleType]) -> Any:
    return program("examples/ui/web.py")


@asynccontextmanager
async def served(example: Any, sandbox: Sandbox) -> AsyncIterator[str]:
    async with sandbox as base_url:
        runner = web.AppRunner(
            example.application({"base_url": base_url}), handler_cancellation=True, shutdown_timeout=0.1
        )
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        _, port = runner.addresses[0][:2]
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            await runner.cleanup()


@pytest.fixture
async def page(program: Callable[[str], ModuleType]) -> AsyncIterator[Any]:
    chromium = program("docs/chromium.py")
    if (command := chromium.chromium()) is None:
        pytest.skip("there is no Chromium")
    async with chromium.new_page(command) as page:
        yield page


async def test_the_page_shows_the_answer_and_its_finished_calls(example: Any, page: Any, tmp_path: Path) -> None:
    async with served(example, Sandbox(DEMO)) as url:
        await page.open(url)
        await page.until("document.readyState === 'complete'")
        await page.value("form.q.value = 'walk?'; form.requestSubmit()")
        await page.until("document.body.dataset.state === 'done'")
        assert await page.value("document.querySelector('#text').textContent") == DEMO.text
        assert await page.value("document.querySelectorAll('section.whole').length") == 2
        assert await page.value("document.querySelectorAll('section .open').length") == 0
        told = await page.value("[...document.querySelectorAll('dd')].map(field => field.textContent)")
        assert told[0::2] == ["Bergen", "91215", "Saturday"]
        await page.save(tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 10_000


async def test_in_the_middle_open_fields_are_marked_and_leaving_ends_the_request_upstream(
    example: Any, page: Any
) -> None:
    sandbox = Sandbox(DEMO, fault=MIDDLE)
    async with served(example, sandbox) as url:
        await page.open(f"{url}/?q=walk")
        await page.until("document.body?.innerText.includes('Fløyen')")
        assert await page.value("[...document.querySelectorAll('section')].map(call => call.className)") == [
            "whole",
            "",
        ]
        marked = "[...document.querySelectorAll('.open')].map(field => field.previousSibling.textContent)"
        assert await page.value(marked) == ["body"]
        assert not sandbox.requests[0].over.is_set()
        await page.call("Page.close")
        async with asyncio.timeout(5):
            await sandbox.requests_over()


async def test_a_cut_answer_is_told(example: Any, page: Any) -> None:
    async with served(example, Sandbox(DEMO, fault=Fault("cut", after=1_500))) as url:
        await page.open(f"{url}/?q=walk")
        await page.until("document.querySelector('.failure')?.innerText.startsWith('Not complete: the connection')")


async def test_the_relay_sends_the_deltas_as_events(example: Any) -> None:
    async with (
        served(example, Sandbox(DEMO)) as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/answer?q=walk") as answer,
    ):
        assert answer.content_type == "text/event-stream"
        events = SSEParser().feed(await answer.read())
    kinds = [name for name, _ in events]
    assert kinds.count("ToolCall") == 2
    assert kinds[-1] == "Done"
    assert "".join(json.loads(data)["text"] for name, data in events if name == "TextDelta") == DEMO.text


async def test_no_question_is_a_bad_request(example: Any) -> None:
    sandbox = Sandbox(DEMO)
    async with served(example, sandbox) as url, aiohttp.ClientSession() as session:
        for query in ("", "?q="):
            async with session.get(f"{url}/answer{query}") as answer:
                assert answer.status == 400
    assert sandbox.requests == []


async def test_a_client_that_reads_slowly_slows_the_provider_and_one_that_leaves_ends_the_request(
    example: Any,
) -> None:
    text = "0123456789" * 3_000_000
    sandbox = Sandbox(Script(text, piece=10_000))
    async with served(example, sandbox) as url, aiohttp.ClientSession() as session:
        async with session.get(f"{url}/answer?q=walk") as answer:
            await answer.content.readany()
            (request,) = sandbox.requests
            sent = -1
            async with asyncio.timeout(20):
                while sent != request.sent:
                    sent = request.sent
                    await asyncio.sleep(0.5)
            assert not request.over.is_set()
            assert request.sent < len(text)
        async with asyncio.timeout(5):
            await sandbox.requests_over()


def test_the_program_serves_so_that_a_browser_that_leaves_is_noticed(
    example: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []
    monkeypatch.setattr("sys.argv", ["web.py"])
    monkeypatch.setattr(example.web, "run_app", lambda app, **options: ran.append(options))
    example.main()
    assert ran == [{"host": "127.0.0.1", "port": 8000, "handler_cancellation": True}]
