"""What is logged under `rillet`: debug alone, where and how much, and never a word of anybody's."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

import aiohttp
import pytest

from rillet.operators import ByteWindow
from rillet.operators.errors import StreamError
from rillet.pipeline import Timeouts, bytes_from, deltas, iterate
from rillet.pipeline.sandbox import Fault, Sandbox, Script, ScriptedCall

Eventually = Callable[[Callable[[], object]], Awaitable[None]]
SCRIPT = Script("SECRET " * 30, calls=(ScriptedCall("SECRET", {"SECRET": "SECRET"}),))
QUIET = Script("SECRET " * 4_000)


@pytest.fixture(autouse=True)
def debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "rillet")


async def consume(
    session: aiohttp.ClientSession,
    base_url: str,
    upto: int | None = None,
    **options: Any,
) -> None:
    """Ask with every kind of secret, and take all of the answer, or so many items, whatever it fails with."""
    url = base_url.replace("://", "://USER:PASSWORD@") + "/chat/completions?key=KEY"
    headers = {"X-Api-Key": "KEY"}
    source = bytes_from(session, "POST", url, json={"prompt": "PROMPT"}, headers=headers, **options)
    with suppress(StreamError):
        async with aclosing(iterate(deltas(source, "openai-chat"))) as flow:
            seen = 0
            async for _ in flow:
                seen += 1
                if seen == upto:
                    return


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged under `rillet`, numbers left out."""
    records = [record for record in caplog.records if record.name.startswith("rillet")]
    assert {record.levelno for record in records} <= {logging.DEBUG}
    said = [re.sub(r"\d+ bytes", "N bytes", record.getMessage()) for record in records]
    return [re.sub(r"127\.0\.0\.1:\d+", "HOST", line) for line in said]


ANSWERED = "POST HOST/v1/chat/completions: 200, text/event-stream, no Encoding"


@pytest.mark.parametrize(
    ("fault", "over"),
    [
        (None, "disposed"),  # the chain leaves at Done
        (Fault("end", 900), "completed"),
        (Fault("cut", 900), "TruncatedStream"),
        (Fault("error", 900), "disposed"),
        (Fault("stall", 900), "IdleTimeout"),
    ],
)
async def test_an_answer_is_two_lines(
    session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture, fault: Fault | None, over: str
) -> None:
    async with Sandbox(SCRIPT, fault=fault) as base_url:
        await consume(session, base_url, timeouts=Timeouts(liveness=0.05))
    assert lines(caplog) == [ANSWERED, f"N bytes read, 0 stalls, then {over}"]


async def test_a_status_is_told_and_so_is_a_request_without_answer(
    session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    async with Sandbox(fault=Fault("status", status=429)) as base_url:
        await consume(session, base_url)
    await consume(session, "http://127.0.0.1:1/v1")
    status, over, no_answer = lines(caplog)
    assert ": 429, application/json" in status
    assert (over, no_answer) == (
        "N bytes read, 0 stalls, then HttpStatusError",
        "N bytes read, 0 stalls, then TransportError",
    )


async def test_a_stall_is_a_line(
    session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    window = ByteWindow(4_096)
    async with Sandbox(QUIET) as base_url:
        source = bytes_from(session, "POST", base_url + "/chat/completions")
        async for _ in iterate(source, window=window):
            await eventually(lambda: window.stalls)
    assert lines(caplog)[1] == "waiting for the consumer, after N bytes"
    assert re.fullmatch(r"N bytes read, [1-9]\d* stalls, then completed", lines(caplog)[-1])


async def test_leaving_early_is_told(session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture) -> None:
    async with Sandbox(SCRIPT, fault=Fault("stall", 900)) as base_url:
        await consume(session, base_url, upto=1)
    assert lines(caplog) == [ANSWERED, "N bytes read, 0 stalls, then disposed"]


async def test_no_secret_and_no_word_is_logged(
    session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    for fault in (None, *map(Fault, ("cut", "error", "status", "html", "reset"))):
        async with Sandbox(SCRIPT, fault=fault) as base_url:
            await consume(session, base_url)
    told = " ".join(lines(caplog))
    assert told
    assert not any(word in told for word in ("SECRET", "PROMPT", "KEY", "USER", "PASSWORD"))
