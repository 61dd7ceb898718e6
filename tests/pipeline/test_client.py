"""`ask`, `stream_llm` and `collect_stream` against the sandbox."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rillet.operators import Done, Finish, ToolCall, Usage
from rillet.operators.errors import (
    HttpStatusError,
    LimitExceeded,
    MalformedToolArguments,
    ProviderError,
    StreamError,
    TruncatedStream,
)
from rillet.pipeline import PROVIDERS, Limits, ask, collect_stream, iterate, stream_llm
from rillet.pipeline.sandbox import Fault, Sandbox, Script, ScriptedCall, Wire

TEXT = "Café ☕ – naïve façade, 漢字, 🚀."
SCRIPT = Script(
    TEXT,
    reasoning="let me see",
    calls=(ScriptedCall("look", {"dish": "crème brûlée"}), ScriptedCall("count", {"n": 10**30})),
    usage=(3, 9),
)
WIRES = [Wire(), Wire(sizes=(1,)), Wire(sizes=(2, 3, 7)), Wire(seed=11, comments=2, crlf=True)]


@pytest.mark.parametrize("wire", WIRES)
async def test_the_tokens_joined_with_nothing_are_the_text(wire: Wire) -> None:
    async with Sandbox(SCRIPT, wire) as base_url:
        tokens = [token async for token in stream_llm("hi", "key", provider="openai", base_url=base_url)]
        assert "".join(tokens) == TEXT
        assert len(tokens) == -(-len(TEXT) // SCRIPT.piece)
        assert await collect_stream("hi", "key", provider="openai", base_url=base_url) == TEXT


@pytest.mark.parametrize("wire", WIRES)
async def test_ask_gives_verified_deltas(session: aiohttp.ClientSession, wire: Wire) -> None:
    async with Sandbox(SCRIPT, wire) as base_url:
        deltas = [delta async for delta in iterate(ask(session, "hi", provider="openai", base_url=base_url))]
    calls = [(delta.name, delta.args) for delta in deltas if isinstance(delta, ToolCall)]
    assert calls == [("look", {"dish": "crème brûlée"}), ("count", {"n": 10**30})]
    assert Finish("tool_calls", "tool_calls") in deltas
    assert [(delta.input_tokens, delta.output_tokens) for delta in deltas if isinstance(delta, Usage)] == [(3, 9)]
    assert deltas[-1] == Done()


@pytest.mark.parametrize("name", PROVIDERS)
async def test_each_provider_is_asked_as_it_documents(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = PROVIDERS[name]
    if provider.key_variable:
        monkeypatch.setenv(provider.key_variable, "from the environment")
    asked: list[web.Request] = []
    bodies: list[dict[str, Any]] = []

    async def note(request: web.Request) -> web.Response:
        asked.append(request)
        bodies.append(await request.json())
        return web.Response(status=418)

    app = web.Application()
    app.router.add_post("/{path:.*}", note)
    async with TestServer(app) as server:
        for arguments in ({}, {"model": "a/b", "options": {"temperature": 0}}):
            with pytest.raises(HttpStatusError):
                await collect_stream("hi", provider=name, base_url=f"{server.make_url('/base')}/", **arguments)
    model = f"{provider.model}:" if name == "gemini" else ""
    assert str(asked[0].rel_url) == "/base" + WANTED[name][0].replace("MODEL:", model)
    for header, value in WANTED[name][1].items():
        assert asked[0].headers[header] == value
    assert asked[0].headers["Accept"] == ("application/x-ndjson" if name == "ollama" else "text/event-stream")
    assert bodies[0] == {key: provider.model if key == "model" else value for key, value in WANTED[name][2].items()}
    assert bodies[1]["temperature"] == 0
    assert bodies[1].get("model", "a/b") == "a/b"


MESSAGES = [{"role": "user", "content": "hi"}]
CHAT: tuple[str, dict[str, str], dict[str, Any]] = (
    "/chat/completions",
    {"Authorization": "Bearer from the environment"},
    {"model": "", "messages": MESSAGES, "stream": True},
)
WANTED: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    **dict.fromkeys(("mistral", "groq", "deepseek", "xai", "openrouter", "together"), CHAT),
    "openai": (*CHAT[:2], {**CHAT[2], "stream_options": {"include_usage": True}}),
    "openai-responses": ("/responses", CHAT[1], {"model": "", "input": MESSAGES, "stream": True}),
    "anthropic": (
        "/messages",
        {"x-api-key": "from the environment", "anthropic-version": "2023-06-01"},
        {**CHAT[2], "max_tokens": 4096},
    ),
    "gemini": (
        "/models/MODEL:streamGenerateContent?alt=sse",
        {"x-goog-api-key": "from the environment"},
        {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    ),
    "cohere": ("/chat", CHAT[1], CHAT[2]),
    "ollama": ("/api/chat", {}, CHAT[2]),
}


async def test_a_conversation_is_passed_on_as_it_is() -> None:
    sandbox = Sandbox()
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    async with sandbox as base_url:
        await collect_stream(messages, "mine", provider="openai", base_url=base_url, model="m")
    (request,) = sandbox.requests
    assert (request.body["model"], request.body["messages"]) == ("m", messages)
    assert request.headers["Authorization"] == "Bearer mine"


async def test_without_a_key_none_is_sent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    sandbox = Sandbox()
    async with sandbox as base_url:
        await collect_stream("hi", provider="openai", base_url=base_url)
    assert "Authorization" not in sandbox.requests[0].headers


async def test_a_wrong_call_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ValueError, match=r"unknown provider 'acme'; known: anthropic, openai, ") as unknown:
        stream_llm("hi", "key", provider="acme")
    with pytest.raises(ValueError, match="set ANTHROPIC_API_KEY") as keyless:
        stream_llm("hi")
    assert not isinstance(unknown.value, StreamError)
    assert not isinstance(keyless.value, StreamError)


@pytest.mark.parametrize("call", [partial(ask, cast(aiohttp.ClientSession, None)), stream_llm, collect_stream])
async def test_a_field_of_the_body_among_the_arguments_is_told_where_it_goes(call: Callable[..., Any]) -> None:
    says = re.escape("""no argument 'tools': further fields of the request body go into options={"tools": …}""")
    with pytest.raises(TypeError, match=says):
        await call("hi", "key", tools=[])


@pytest.mark.parametrize("call", [partial(ask, cast(aiohttp.ClientSession, None)), stream_llm, collect_stream])
@pytest.mark.parametrize("prompt", [{"role": "user", "content": "hi"}, None])
async def test_one_message_alone_is_no_prompt(call: Callable[..., Any], prompt: object) -> None:
    with pytest.raises(TypeError, match=r"the prompt is a str, or a list of messages, and not (dict|NoneType)"):
        await call(prompt, "key")


@pytest.mark.parametrize("call", [partial(ask, cast(aiohttp.ClientSession, None)), stream_llm, collect_stream])
async def test_a_number_for_timeouts_is_told_what_is_wanted(call: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"timeouts= wants Timeouts\(…\), as Timeouts\(liveness=30\), and not 5"):
        await call("hi", "key", timeouts=5)


async def test_the_session_comes_before_the_prompt(session: aiohttp.ClientSession) -> None:
    ask_as_one_likes = cast(Callable[..., object], ask)
    for arguments in (("hi", session), ("hi", "key"), (session, session)):
        with pytest.raises(TypeError, match=re.escape("the session comes first: ask(session, prompt)")):
            ask_as_one_likes(*arguments)


@pytest.mark.parametrize(
    ("fault", "error", "text"),
    [
        (Fault("cut", after=1_500), TruncatedStream, TEXT[:4]),
        (Fault("end", after=1_500), TruncatedStream, TEXT[:4]),
        (Fault("error", after=1_500), ProviderError, TEXT[:4]),
    ],
)
async def test_a_bad_end_raises_with_what_had_arrived(fault: Fault, error: type[StreamError], text: str) -> None:
    tokens: list[str] = []
    async with Sandbox(SCRIPT, fault=fault) as base_url:
        with pytest.raises(error) as raised:
            async for token in stream_llm("hi", "key", provider="openai", base_url=base_url):
                tokens.append(token)  # noqa: PERF401 - the tokens before the error count
    (message,) = raised.value.partial
    assert message.text == "".join(tokens)
    assert message.text.startswith(text)
    assert message.reasoning == "let me see"
    assert not raised.value.retry_safe
    assert raised.value.bytes_seen is not None


@pytest.mark.parametrize("finish", ["length", "tool_calls"])
async def test_arguments_that_do_not_parse_are_never_a_call(session: aiohttp.ClientSession, finish: str) -> None:
    calls = (ScriptedCall("whole", {"a": 1}), ScriptedCall("cut", '{"a": '))
    async with Sandbox(Script("hi", calls=calls, finish=finish, usage=(1, 2))) as base_url:
        with pytest.raises(MalformedToolArguments) as raised:
            [delta async for delta in iterate(ask(session, "hi", provider="openai", base_url=base_url))]
    (message,) = raised.value.partial
    assert (raised.value.index, raised.value.name, raised.value.args_text) == (1, "cut", '{"a": ')
    assert [call.name for call in message.tool_calls] == ["whole"]
    assert message.finish == Finish(finish, finish)  # type: ignore[arg-type]
    assert message.usage is not None


async def test_limits_are_passed_on() -> None:
    async with Sandbox(SCRIPT) as base_url:
        with pytest.raises(LimitExceeded) as raised:
            await collect_stream("hi", "key", provider="openai", base_url=base_url, limits=Limits(max_bytes=100))
    assert (raised.value.which, raised.value.limit) == ("max_bytes", 100)


async def test_only_choice_0_is_text() -> None:
    deltas = [{"index": n, "delta": {"content": text}} for n, text in ((1, "other"), (0, "mine"), (1, "s"))]

    async def two_choices(request: web.Request) -> web.Response:
        events = [json.dumps({"choices": [delta]}) for delta in deltas]
        body = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])
        return web.Response(text=body, content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/{path:.*}", two_choices)
    async with TestServer(app) as server:
        base_url = str(server.make_url("/v1"))
        assert await collect_stream("hi", "key", provider="openai", base_url=base_url) == "mine"


async def test_the_key_and_the_prompt_follow_no_redirect() -> None:
    elsewhere: list[web.Request] = []

    async def redirect(request: web.Request) -> web.Response:
        elsewhere.extend([request] if request.path == "/elsewhere" else [])
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    app = web.Application()
    app.router.add_post("/{path:.*}", redirect)
    async with TestServer(app) as server:
        with pytest.raises(HttpStatusError) as raised:
            await collect_stream("hi", "key", base_url=str(server.make_url("/v1")))
    assert (raised.value.status, elsewhere) == (307, [])
