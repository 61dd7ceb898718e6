"""`ask`, `stream_llm` and `collect_stream` against the sandbox."""

from __future__ import annotations

import aiohttp
import pytest

from rillet.operators import Done, Finish, TextDelta, ToolCall, Usage
from rillet.operators.errors import LimitExceeded, MalformedToolArguments, ProviderError, StreamError, TruncatedStream
from rillet.pipeline import Limits, ask, collect_stream, iterate, stream_llm
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
        tokens = [token async for token in stream_llm("hi", "key", base_url=base_url)]
        assert "".join(tokens) == TEXT
        assert len(tokens) == -(-len(TEXT) // SCRIPT.piece)
        assert await collect_stream("hi", "key", base_url=base_url) == TEXT


@pytest.mark.parametrize("wire", WIRES)
async def test_ask_gives_verified_deltas(session: aiohttp.ClientSession, wire: Wire) -> None:
    async with Sandbox(SCRIPT, wire) as base_url:
        deltas = [delta async for delta in iterate(ask(session, "hi", base_url=base_url))]
    calls = [(delta.name, delta.args) for delta in deltas if isinstance(delta, ToolCall)]
    assert calls == [("look", {"dish": "crème brûlée"}), ("count", {"n": 10**30})]
    assert Finish("tool_calls", "tool_calls") in deltas
    assert [(delta.input_tokens, delta.output_tokens) for delta in deltas if isinstance(delta, Usage)] == [(3, 9)]
    assert deltas[-1] == Done()


async def test_the_request_is_what_the_provider_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from the environment")
    sandbox = Sandbox()
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    async with sandbox as base_url:
        await collect_stream("hi", base_url=base_url + "/")
        await collect_stream(messages, "mine", base_url=base_url, model="m", options={"temperature": 0})
    first, second = sandbox.requests
    assert first.path == "/v1/chat/completions"
    assert first.headers["Authorization"] == "Bearer from the environment"
    assert first.body["messages"] == [{"role": "user", "content": "hi"}]
    assert (first.body["stream"], first.body["stream_options"]) == (True, {"include_usage": True})
    assert second.headers["Authorization"] == "Bearer mine"
    assert (second.body["model"], second.body["messages"], second.body["temperature"]) == ("m", messages, 0)


async def test_without_a_key_none_is_sent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    sandbox = Sandbox()
    async with sandbox as base_url:
        await collect_stream("hi", base_url=base_url)
    assert "Authorization" not in sandbox.requests[0].headers


async def test_a_wrong_call_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ValueError, match=r"unknown provider 'acme'; known: openai") as unknown:
        stream_llm("hi", "key", provider="acme")
    with pytest.raises(ValueError, match="set OPENAI_API_KEY") as keyless:
        stream_llm("hi")
    assert not isinstance(unknown.value, StreamError)
    assert not isinstance(keyless.value, StreamError)


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
            async for token in stream_llm("hi", "key", base_url=base_url):
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
            [delta async for delta in iterate(ask(session, "hi", base_url=base_url))]
    (message,) = raised.value.partial
    assert (raised.value.index, raised.value.name, raised.value.args_text) == (1, "cut", '{"a": ')
    assert [call.name for call in message.tool_calls] == ["whole"]
    assert message.finish == Finish(finish, finish)  # type: ignore[arg-type]
    assert message.usage is not None


async def test_limits_are_passed_on() -> None:
    async with Sandbox(SCRIPT) as base_url:
        with pytest.raises(LimitExceeded) as raised:
            await collect_stream("hi", "key", base_url=base_url, limits=Limits(max_bytes=100))
    assert (raised.value.which, raised.value.limit) == ("max_bytes", 100)


async def test_only_choice_0_is_text() -> None:
    async with Sandbox(SCRIPT) as base_url:
        tokens = [token async for token in stream_llm("hi", "key", base_url=base_url)]
    assert all(isinstance(token, str) and token for token in tokens)
    assert TextDelta(tokens[0]) == TextDelta(TEXT[:4])
