"""The sandbox tells the truth: the official clients read it as they should, and its faults are what they say."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import aiohttp
import anthropic
import httpx
import openai
import pytest
from google import genai

from rillet.operators import TextDelta, ToolCallDelta
from rillet.operators.errors import (
    HttpStatusError,
    MalformedToolArguments,
    ProviderError,
    StreamError,
    TruncatedStream,
)
from rillet.pipeline import StreamAssembler, ask, bytes_from, deltas, iterate, run_in_background
from rillet.pipeline.sandbox import Fault, Sandbox, Script, ScriptedCall, Wire
from rillet.pipeline.scripting import gemini_events, ollama_lines

SCRIPT = Script(
    "Café ☕ and more.",
    reasoning="hm, let me see…",
    calls=(
        ScriptedCall("look", {"dish": "crème brûlée"}),
        ScriptedCall("count", {"n": 3, "of": ["a", "b"]}, id="mine"),
        ScriptedCall("now", {}),
    ),
    usage=(5, 7),
)
CALLS = [
    ("call_0", "look", {"dish": "crème brûlée"}),
    ("mine", "count", {"n": 3, "of": ["a", "b"]}),
    ("call_2", "now", {}),
]


class Dialect(NamedTuple):
    """Where a dialect is served, and its words for an answer that is whole, one with calls, and one cut short."""

    path: str
    whole: str | None
    with_calls: str | None
    cut_short: str | None


DIALECTS = {
    "plain": Dialect("/v1/plain", None, None, None),
    "openai-chat": Dialect("/v1/chat/completions", "stop", "tool_calls", "length"),
    "openai-responses": Dialect("/v1/responses", "completed", "completed", "incomplete"),
    "anthropic": Dialect("/v1/messages", "end_turn", "tool_use", "max_tokens"),
    "gemini": Dialect("/v1beta/models/some-model:streamGenerateContent", "STOP", "STOP", "MAX_TOKENS"),
    "ollama": Dialect("/api/chat", "stop", "stop", "length"),
}
WHOLE_CALLS = ("gemini", "ollama")
WIRES = ["whole", "seeded", "bytes"]
EVERY_DIALECT = pytest.mark.parametrize("protocol", DIALECTS)


class Answer(NamedTuple):
    text: str
    reasoning: str
    calls: list[tuple[str, str, object]]
    usage: tuple[int | None, int | None] | None
    finish: str | None


async def as_chat(sandbox: Sandbox) -> Answer:
    text, reasoning, finish, usage = "", "", None, None
    ids: dict[int, str] = {}
    names: dict[int, str] = {}
    arguments: dict[int, str] = defaultdict(str)
    async with openai.AsyncOpenAI(base_url=sandbox.base_url, api_key="key", max_retries=0) as client:
        async for chunk in await client.chat.completions.create(model="m", messages=[], stream=True):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reasoning += getattr(choice.delta, "reasoning_content", "")
                finish = choice.finish_reason or finish
                for call in choice.delta.tool_calls or ():
                    ids.setdefault(call.index, call.id)
                    names.setdefault(call.index, call.function.name)
                    arguments[call.index] += call.function.arguments
    assert usage is not None
    assert usage.total_tokens == 12
    calls = [(ids[index], names[index], json.loads(arguments[index])) for index in sorted(ids)]
    return Answer(text, reasoning, calls, (usage.prompt_tokens, usage.completion_tokens), finish)


async def as_responses(sandbox: Sandbox) -> Answer:
    parts: dict[str, str] = defaultdict(str)
    arguments: dict[int, str] = defaultdict(str)
    events = []
    async with openai.AsyncOpenAI(base_url=sandbox.base_url, api_key="key", max_retries=0) as client:
        async for event in await client.responses.create(model="m", input="hi", stream=True):
            events.append(event)
            if event.type == "response.function_call_arguments.delta":
                arguments[event.output_index] += event.delta
            elif event.type.endswith(".delta"):
                parts[event.type] += event.delta
    assert [event.sequence_number for event in events] == list(range(len(events)))
    items = {event.output_index: event.item for event in events if event.type == "response.output_item.done"}
    response = events[-1].response
    assert response.output == [items[index] for index in range(len(items))]
    calls = [item for item in response.output if item.type == "function_call"]
    assert [call.arguments for call in calls] == [arguments[index] for index in sorted(arguments)]
    return Answer(
        parts["response.output_text.delta"],
        parts["response.reasoning_summary_text.delta"],
        [(call.call_id, call.name, json.loads(call.arguments)) for call in calls],
        (response.usage.input_tokens, response.usage.output_tokens),
        response.status,
    )


async def as_anthropic(sandbox: Sandbox) -> Answer:
    async with (
        anthropic.AsyncAnthropic(base_url=sandbox.root_url, api_key="key", max_retries=0) as client,
        client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]) as stream,
    ):
        message = await stream.get_final_message()
    return Answer(
        "".join(block.text for block in message.content if block.type == "text"),
        "".join(block.thinking for block in message.content if block.type == "thinking"),
        [(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"],
        (message.usage.input_tokens, message.usage.output_tokens),
        message.stop_reason,
    )


async def as_gemini(sandbox: Sandbox) -> Answer:
    text, reasoning, calls, usage, finish = "", "", [], None, None
    options = genai.types.HttpOptions(base_url=sandbox.root_url)
    async with genai.Client(api_key="key", http_options=options).aio as client:
        async for chunk in await client.models.generate_content_stream(model="m", contents="hi"):
            usage = chunk.usage_metadata
            (candidate,) = chunk.candidates
            finish = candidate.finish_reason
            for part in candidate.content.parts:
                if part.function_call:
                    calls.append((part.function_call.id, part.function_call.name, part.function_call.args))
                elif part.thought:
                    reasoning += part.text
                else:
                    text += part.text
    assert usage is not None
    assert finish is not None
    return Answer(text, reasoning, calls, (usage.prompt_token_count, usage.candidates_token_count), finish.value)


async def as_ollama(sandbox: Sandbox) -> Answer:
    async with (
        aiohttp.ClientSession() as session,
        session.post(sandbox.root_url + "/api/chat", json={}) as response,
    ):
        assert response.content_type == "application/x-ndjson"
        lines = [json.loads(line) async for line in response.content]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    messages = [line["message"] for line in lines]
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    assert [call["function"]["index"] for call in calls] == [0, 1, 2]
    return Answer(
        "".join(message["content"] for message in messages),
        "".join(message.get("thinking", "") for message in messages),
        [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls],
        (lines[-1]["prompt_eval_count"], lines[-1]["eval_count"]),
        lines[-1]["done_reason"],
    )


CLIENTS: dict[str, Callable[[Sandbox], Awaitable[Answer]]] = {
    "openai-chat": as_chat,
    "openai-responses": as_responses,
    "anthropic": as_anthropic,
    "gemini": as_gemini,
    "ollama": as_ollama,
}
EVERY_CLIENT = pytest.mark.parametrize("protocol", CLIENTS)
AS_GOOGLES_CLIENT_DOES = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")


@AS_GOOGLES_CLIENT_DOES
@pytest.mark.parametrize("interleave", [False, True])
@pytest.mark.parametrize("wire", [Wire(), Wire(seed=3, comments=1, crlf=True), Wire(sizes=(1, 5))], ids=WIRES)
@EVERY_CLIENT
async def test_the_official_client_reads_its_answers(protocol: str, wire: Wire, interleave: bool) -> None:
    if protocol == "gemini":
        wire = replace(wire, comments=0)  # Google's own client takes none
    sandbox = Sandbox(replace(SCRIPT, interleave=interleave), wire)
    async with sandbox:
        answer = await CLIENTS[protocol](sandbox)
    assert answer == Answer(SCRIPT.text, SCRIPT.reasoning, CALLS, (5, 7), DIALECTS[protocol].with_calls)


@AS_GOOGLES_CLIENT_DOES
@pytest.mark.parametrize(
    ("protocol", "limited", "failed"),
    [
        ("openai-chat", openai.RateLimitError, openai.APIError),
        ("openai-responses", openai.RateLimitError, openai.APIError),
        ("anthropic", anthropic.RateLimitError, anthropic.APIStatusError),
        ("gemini", genai.errors.ClientError, genai.errors.APIError),
    ],
)
async def test_the_official_client_sees_its_errors(
    protocol: str, limited: type[Exception], failed: type[Exception]
) -> None:
    for fault, error in ((Fault("status", status=429), limited), (Fault("error", after=700), failed)):
        sandbox = Sandbox(SCRIPT, fault=fault)
        async with sandbox:
            with pytest.raises(error, match="told to fail"):
                await CLIENTS[protocol](sandbox)


async def received(session: aiohttp.ClientSession, protocol: str, sandbox: Sandbox) -> tuple[list[Any], Any]:
    """What rillet reads of a dialect: the deltas, and the message they make."""
    assembler, read = StreamAssembler(protocol), []
    async with sandbox, session.post(sandbox.root_url + DIALECTS[protocol].path, json={}) as response:
        async for chunk in response.content.iter_any():
            read += assembler.feed(chunk)
    assembler.result()
    return read, assembler.message


@pytest.mark.parametrize("wire", [Wire(), Wire(seed=1, comments=2, crlf=True), Wire(sizes=(1,))], ids=WIRES)
@EVERY_DIALECT
async def test_every_dialect_says_what_the_script_says(
    session: aiohttp.ClientSession, protocol: str, wire: Wire
) -> None:
    _, message = await received(session, protocol, Sandbox(SCRIPT, wire))
    assert message.text == SCRIPT.text
    assert [(call.id, call.name, call.args) for call in message.tool_calls] == CALLS
    if protocol == "plain":
        assert (message.reasoning, message.usage, message.finish) == ("", None, None)
    else:
        assert message.reasoning == SCRIPT.reasoning
        assert (message.usage.input_tokens, message.usage.output_tokens) == SCRIPT.usage
        assert (message.finish.reason, message.finish.raw) == ("tool_calls", DIALECTS[protocol].with_calls)


@EVERY_DIALECT
async def test_only_what_the_script_says_is_said(session: aiohttp.ClientSession, protocol: str) -> None:
    _, message = await received(session, protocol, Sandbox(Script("so")))
    assert (message.text, message.reasoning, message.tool_calls, message.usage) == ("so", "", (), None)
    assert (message.finish and message.finish.raw) == DIALECTS[protocol].whole
    _, message = await received(session, protocol, Sandbox(Script("", finish=DIALECTS[protocol].cut_short)))
    assert (message.text, message.finish and message.finish.reason) == ("", None if protocol == "plain" else "length")


@pytest.mark.parametrize("interleave", [False, True])
@EVERY_DIALECT
async def test_calls_interleave_where_the_dialect_lets_them(
    session: aiohttp.ClientSession, protocol: str, interleave: bool
) -> None:
    read, _ = await received(session, protocol, Sandbox(replace(SCRIPT, interleave=interleave)))
    indexes = [delta.index for delta in read if isinstance(delta, ToolCallDelta)]
    assert (indexes != sorted(indexes)) is (interleave and protocol not in WHOLE_CALLS)


def with_arguments(args: str) -> Script:
    return Script(calls=(ScriptedCall("a", args),))


@EVERY_DIALECT
async def test_arguments_in_a_string_are_sent_as_they_are(session: aiohttp.ClientSession, protocol: str) -> None:
    _, message = await received(session, protocol, Sandbox(with_arguments('{"n": 1}')))
    assert message.tool_calls[0].args == {"n": 1}
    if protocol not in WHOLE_CALLS:
        with pytest.raises(MalformedToolArguments):
            await received(session, protocol, Sandbox(with_arguments('{"n": ')))


@pytest.mark.parametrize("args", ['{"n": ', "[1]"])
@pytest.mark.parametrize(("protocol", "render"), [("gemini", gemini_events), ("ollama", ollama_lines)])
async def test_whole_calls_cannot_say_what_is_no_object(  # type: ignore[no-untyped-def]
    session: aiohttp.ClientSession, protocol, render, args
) -> None:
    with pytest.raises(ValueError, match="can't say the arguments of 'a'"):
        render(with_arguments(args))
    error = await failure(session, protocol, Sandbox(with_arguments(args)))
    assert isinstance(error, HttpStatusError)
    assert error.status == 500


async def failure(session: aiohttp.ClientSession, protocol: str, sandbox: Sandbox) -> StreamError:
    """What rillet makes of an answer that ends badly."""
    async with sandbox:
        source = bytes_from(session, "POST", sandbox.root_url + DIALECTS[protocol].path, json={}, content_type=None)
        with pytest.raises(StreamError) as caught:
            [delta async for delta in iterate(deltas(source, protocol))]
    return caught.value


@pytest.mark.parametrize("after", [0, 333, 900])
@pytest.mark.parametrize("kind", ["cut", "end"])
@EVERY_DIALECT
async def test_an_answer_that_ends_early_is_truncated(session: aiohttp.ClientSession, protocol, kind, after) -> None:  # type: ignore[no-untyped-def]
    error = await failure(session, protocol, Sandbox(SCRIPT, fault=Fault(kind, after)))
    assert isinstance(error, TruncatedStream)
    assert error.bytes_seen == after


@pytest.mark.parametrize(
    ("protocol", "type", "code", "status"),
    [
        ("plain", "server_error", "scripted", None),
        ("openai-chat", "server_error", "scripted", None),
        ("openai-responses", "server_error", "scripted", None),
        ("anthropic", "overloaded_error", None, None),
        ("gemini", "INTERNAL", 529, 529),
        ("ollama", None, None, None),
    ],
)
async def test_an_error_comes_in_the_dialects_own_shape(
    session: aiohttp.ClientSession, protocol, type, code, status
) -> None:  # type: ignore[no-untyped-def]
    error = await failure(session, protocol, Sandbox(SCRIPT, fault=Fault("error", after=700, status=529)))
    assert isinstance(error, ProviderError)
    assert (error.type, error.code, error.status, error.message) == (
        type,
        code,
        status,
        "The sandbox was told to fail.",
    )
    refused = await failure(session, protocol, Sandbox(SCRIPT, fault=Fault("status", status=529)))
    assert isinstance(refused, HttpStatusError)
    assert error.message in refused.body


async def body_of(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.post(url, json={}) as response:
        return await response.read()


@EVERY_DIALECT
async def test_lines_end_as_the_dialect_and_the_wire_want_it(session: aiohttp.ClientSession, protocol: str) -> None:
    for crlf in (False, True):
        sandbox = Sandbox(SCRIPT, Wire(crlf=crlf))
        async with sandbox:
            body = await body_of(session, sandbox.root_url + DIALECTS[protocol].path)
        assert body.count(b"\r\n") == (body.count(b"\n") if crlf or protocol == "gemini" else 0)


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


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((Script(), Fault("cut")), TypeError),
        (("hello",), TypeError),
        ((Script(calls=(("f", {}),)),), TypeError),  # type: ignore[arg-type]
        ((Script(piece=0),), ValueError),
        ((Script(), Wire(sizes=(0,))), ValueError),
        ((Script(), Wire(), Fault("nope")), ValueError),  # type: ignore[arg-type]
    ],
)
def test_a_sandbox_that_could_not_do_as_told_is_not_made(arguments, error) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error):
        Sandbox(*arguments)


async def test_the_official_client_resumes_a_background_response() -> None:
    async with Sandbox(Script("one two three", piece=1), fault=Fault("cut", after=3000)) as base_url:
        client = openai.AsyncOpenAI(base_url=base_url, api_key="key", max_retries=0)
        async with client:
            asked = await client.responses.create(model="m", input="hi", stream=True, background=True)
            events: list[Any] = []
            for _ in range(20):
                with suppress(openai.APIConnectionError, httpx.TransportError):
                    async for event in asked:
                        events.append(event)  # noqa: PERF401 - what came before the cut counts
                    break
                last = events[-1].sequence_number
                asked = await client.responses.retrieve(events[0].response.id, stream=True, starting_after=last)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "one two three"
    assert (events[0].response.background, events[-1].type) == (True, "response.completed")


async def test_a_response_that_was_not_in_the_background_can_not_be_resumed() -> None:
    async with Sandbox() as base_url, openai.AsyncOpenAI(base_url=base_url, api_key="key", max_retries=0) as client:
        events = [event async for event in await client.responses.create(model="m", input="hi", stream=True)]
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve("resp_sandbox", stream=True, starting_after=3)
    assert events[0].type == "response.created"
    assert events[0].response.background is False


def test_without_an_event_loop_it_serves_from_a_thread_and_takes_that_along() -> None:
    before = set(threading.enumerate())
    sandbox = Sandbox(Script("Hello there."))
    with sandbox as base_url:
        deltas = list(run_in_background(lambda session: ask(session, "hi", base_url=base_url)))
        with (
            pytest.raises(OSError, match="address already in use"),
            Sandbox(port=int(sandbox.root_url.rpartition(":")[2])),
        ):
            pytest.fail("two servers on one port")
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Hello there."
    assert set(threading.enumerate()) <= before
