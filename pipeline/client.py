"""Asking a provider: `ask` for its deltas, `stream_llm` and `collect_stream` for the text alone."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, nullcontext
from types import MappingProxyType
from typing import TypedDict, Unpack
from urllib.parse import quote

import aiohttp
from reactivex import Observable

from rillet.operators import Delta, TextDelta, WireProtocol
from rillet.operators.value import value

from .chain import DEFAULT_LIMITS, Limits, deltas
from .connect import RequestOptions
from .iterate import iterate
from .protocols import CONTENT_TYPES, find_protocol
from .providers import Prompt, find_provider
from .recorder import recorder
from .source import bytes_from
from .timeouts import DEFAULT_TIMEOUTS, Timeouts, checked


class Asking(TypedDict, total=False):
    """How to ask; every part has a default.

    Attributes:
        provider: The provider's name, "anthropic" by default.
        model: The model; by default the provider's in `PROVIDERS`.
        base_url: Another place that speaks the same; by default the provider's own. The key is sent there too, if there
            is one; `api_key=""` sends none.
        options: Further fields of the request body: temperature, tools, …
        limits: How much of each thing is taken.
        extras: Give also what only this provider sends, as `ProviderEvent`; False by default.
        timeouts: How long each kind of waiting may last; see `Timeouts` for the defaults.
        record: A file to record the raw bytes of the answer into, see `recorder`; by default none.
        timeout: aiohttp's own timeouts for this request; by default the session's, but for `total`.
    """

    provider: str
    model: str | None
    base_url: str | None
    options: Mapping[str, object]
    limits: Limits
    extras: bool
    timeouts: Timeouts
    record: str | os.PathLike[str] | None
    timeout: aiohttp.ClientTimeout


@value
class _Question:
    url: str
    headers: Mapping[str, str]
    body: Mapping[str, object]
    protocol: WireProtocol
    limits: Limits
    extras: bool
    timeouts: Timeouts
    record: str | os.PathLike[str] | None
    timeout: aiohttp.ClientTimeout | None

    def deltas(self, session: aiohttp.ClientSession) -> Observable[Delta]:
        # The key and the prompt are for this server alone: no redirect is followed.
        request: RequestOptions = {"json": self.body, "headers": self.headers, "allow_redirects": False}
        if self.timeout is not None:
            request["timeout"] = self.timeout
        content_type = CONTENT_TYPES[self.protocol.framing]
        source = bytes_from(session, "POST", self.url, content_type=content_type, timeouts=self.timeouts, **request)
        if self.record is not None:
            source = source.pipe(recorder(self.record, content_type=content_type))
        return deltas(source, self.protocol, limits=self.limits, extras=self.extras)


def ask(
    session: aiohttp.ClientSession, prompt: Prompt, api_key: str | None = None, **asking: Unpack[Asking]
) -> Observable[Delta]:
    """Ask a provider, and stream the verified deltas of its answer.

    Args:
        session: The session to use.
        prompt: What the user says, or the messages of the conversation.
        api_key: The provider's key; by default the value of its environment variable; "" for none.
        asking: See `Asking`.

    Returns:
        The deltas, cold: each subscription asks anew. See `deltas` and `bytes_from` for how it fails.

    Raises:
        ValueError: There is no such provider, or no key, or a timeout is below 0.
        TypeError: An argument is of the wrong kind, or unknown: fields of the request body go into `options`.
    """
    if isinstance(session, str) or isinstance(prompt, aiohttp.ClientSession):
        raise TypeError("the session comes first: ask(session, prompt)")
    return _question(prompt, api_key, **asking).deltas(session)


def stream_llm(
    prompt: Prompt,
    api_key: str | None = None,
    *,
    session: aiohttp.ClientSession | None = None,
    **asking: Unpack[Asking],
) -> AsyncGenerator[str, None]:
    """The text of an answer, token by token as it comes; joined with nothing between them, they are the answer.

    Args:
        prompt: What the user says, or the messages of the conversation.
        api_key: The provider's key; by default the value of its environment variable; "" for none.
        session: The session to use; by default one is made for this answer.
        asking: See `Asking`.

    Yields:
        Each piece of text of choice 0. Nothing is yielded after the answer's end.

    Raises:
        ValueError: There is no such provider, or no key, or a timeout is below 0.
        TypeError: An argument is of the wrong kind, or unknown: fields of the request body go into `options`.
        StreamError: The answer did not arrive whole; what arrived is in its `partial`.
    """
    return _texts(_question(prompt, api_key, **asking), session)


async def collect_stream(
    prompt: Prompt,
    api_key: str | None = None,
    *,
    session: aiohttp.ClientSession | None = None,
    **asking: Unpack[Asking],
) -> str:
    """The text of an answer, once it is whole. Arguments and errors are those of `stream_llm`."""
    return "".join([token async for token in stream_llm(prompt, api_key, session=session, **asking)])


def _question(
    prompt: Prompt,
    api_key: str | None,
    *,
    provider: str = "anthropic",
    model: str | None = None,
    base_url: str | None = None,
    options: Mapping[str, object] = MappingProxyType({}),
    limits: Limits = DEFAULT_LIMITS,
    extras: bool = False,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    record: str | os.PathLike[str] | None = None,
    timeout: aiohttp.ClientTimeout | None = None,
    **others: object,
) -> _Question:
    if others:
        name = next(iter(others))
        hint = f'further fields of the request body go into options={{"{name}": …}}'
        raise TypeError(f"there is no argument {name!r}: {hint}")
    # A single message is a mapping, whose keys would go out as messages.
    if not isinstance(prompt, str | Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the prompt is a str, or a list of messages, and not {type(prompt).__name__}")
    known = find_provider(provider)
    key = os.environ.get(known.key_variable, "") if api_key is None else api_key
    if known.key_variable and not key and base_url is None:
        raise ValueError(f"no API key for {known.name}: set {known.key_variable}, or pass api_key")
    model = model or known.model
    url = (base_url or known.base_url).rstrip("/") + known.path.format(model=quote(model))
    body = {**known.body(model, prompt), **options}
    protocol = find_protocol(known.protocol)
    return _Question(url, known.headers(key), body, protocol, limits, extras, checked(timeouts), record, timeout)


async def _texts(question: _Question, session: aiohttp.ClientSession | None) -> AsyncGenerator[str, None]:
    async with (
        nullcontext(session) if session else aiohttp.ClientSession() as asking,
        aclosing(iterate(question.deltas(asking))) as flow,
    ):
        async for delta in flow:
            if isinstance(delta, TextDelta) and delta.choice == 0:
                yield delta.text
