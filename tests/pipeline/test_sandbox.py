"""The sandbox tells the truth: the official client reads it as it should, and its faults are what they say."""

from __future__ import annotations

import asyncio

import aiohttp
import openai
import pytest

from rillet.operators import ToolCall
from rillet.pipeline import StreamAssembler
from rillet.pipeline.sandbox import Fault, Sandbox, Script, ScriptedCall, Wire

SCRIPT = Script(
    "Café ☕ and more.",
    reasoning="hm",
    calls=(ScriptedCall("look", {"dish": "crème brûlée"}), ScriptedCall("count", {"n": 3}, id="mine")),
    usage=(5, 7),
)


@pytest.mark.parametrize("interleave", [False, True])
@pytest.mark.parametrize("wire", [Wire(), Wire(seed=3, comments=1, crlf=True), Wire(sizes=(1, 5))])
async def test_the_official_client_reads_its_answers(wire: Wire, interleave: bool) -> None:
    script = Script(SCRIPT.text, SCRIPT.reasoning, SCRIPT.calls, SCRIPT.usage, interleave=interleave)
    async with Sandbox(script, wire) as base_url, openai.AsyncOpenAI(base_url=base_url, api_key="key") as client:
        text, names, ids, arguments, reasons, usage = "", {}, {}, {0: "", 1: ""}, [], None
        async for chunk in await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        ):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reasons.append(choice.finish_reason)
                for call in choice.delta.tool_calls or ():
                    assert call.function is not None
                    names.setdefault(call.index, call.function.name)
                    ids.setdefault(call.index, call.id)
                    arguments[call.index] += call.function.arguments or ""
    assert text == "Café ☕ and more."
    assert (names, ids) == ({0: "look", 1: "count"}, {0: "call_0", 1: "mine"})
    assert arguments == {0: '{"dish":"crème brûlée"}', 1: '{"n":3}'}
    assert [reason for reason in reasons if reason] == ["tool_calls"]
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (5, 7, 12)


async def test_the_official_client_sees_its_errors() -> None:
    async with (
        Sandbox(fault=Fault("status", status=429)) as base_url,
        openai.AsyncOpenAI(base_url=base_url, api_key="key", max_retries=0) as client,
    ):
        with pytest.raises(openai.RateLimitError):
            await client.chat.completions.create(model="m", messages=[], stream=True)
    async with (
        Sandbox(fault=Fault("error", after=500)) as base_url,
        openai.AsyncOpenAI(base_url=base_url, api_key="key") as client,
    ):
        stream = await client.chat.completions.create(model="m", messages=[], stream=True)
        with pytest.raises(openai.APIError, match="told to fail"):
            [chunk async for chunk in stream]


async def body_of(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.post(url, json={}) as response:
        return await response.read()


async def test_plain_is_spoken_too(session: aiohttp.ClientSession) -> None:
    async with Sandbox(SCRIPT, Wire(seed=1)) as base_url:
        assembler = StreamAssembler("plain")
        assembler.feed(await body_of(session, base_url + "/plain"))
    assert assembler.result() == (
        "Café ☕ and more.",
        [
            ToolCall(0, "call_0", "look", {"dish": "crème brûlée"}, '{"dish":"crème brûlée"}'),
            ToolCall(1, "mine", "count", {"n": 3}, '{"n":3}'),
        ],
    )


async def test_however_the_wire_cuts_the_bytes_are_the_same(session: aiohttp.ClientSession) -> None:
    bodies = set()
    for wire in (Wire(), Wire(sizes=(1,)), Wire(sizes=(3, 50)), Wire(seed=1), Wire(seed=2), Wire(rate=1_000_000)):
        async with Sandbox(SCRIPT, wire) as base_url:
            bodies.add(await body_of(session, base_url + "/chat/completions"))
    assert len(bodies) == 1


@pytest.mark.parametrize("after", [0, 1, 333, 10**9])
async def test_end_ends_after_exactly_so_many_bytes(session: aiohttp.ClientSession, after: int) -> None:
    async with Sandbox(SCRIPT) as whole_url, Sandbox(SCRIPT, Wire(seed=1), Fault("end", after)) as base_url:
        whole = await body_of(session, whole_url + "/chat/completions")
        assert await body_of(session, base_url + "/chat/completions") == whole[:after]


@pytest.mark.parametrize(("kind", "error"), [("cut", aiohttp.ClientPayloadError), ("reset", aiohttp.ClientError)])
async def test_cut_and_reset_break_the_body(session: aiohttp.ClientSession, kind, error) -> None:  # type: ignore[no-untyped-def]
    async with Sandbox(SCRIPT, fault=Fault(kind, after=300)) as base_url:
        with pytest.raises(error):
            await body_of(session, base_url + "/chat/completions")


async def test_a_page_instead_of_a_stream(session: aiohttp.ClientSession) -> None:
    async with (
        Sandbox(fault=Fault("html")) as base_url,
        session.post(base_url + "/chat/completions", json={}) as response,
    ):
        assert (response.status, response.content_type) == (200, "text/html")
        assert "Sign in" in await response.text()


async def test_a_stall_stays_open_until_the_client_leaves(session: aiohttp.ClientSession) -> None:
    sandbox = Sandbox(SCRIPT, fault=Fault("stall", after=300))
    async with sandbox as base_url:
        response = await session.post(base_url + "/chat/completions", json={"a": 1})
        body = await response.content.readexactly(300)
        assert not sandbox.requests[0].over.is_set()
        response.close()
        await sandbox.requests_over()
    assert sandbox.requests[0].body == {"a": 1}
    assert sandbox.requests[0].sent == len(body)


async def test_closing_it_ends_a_stalled_answer(session: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(5), Sandbox(SCRIPT, fault=Fault("stall")) as base_url:
        response = await session.post(base_url + "/chat/completions", json={})
    response.close()
