"""The providers by name: where each is, what it speaks, and how it wants to be asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from rillet.operators.value import value

Prompt: TypeAlias = str | Sequence[Mapping[str, object]]
"""What the user says, or the whole conversation as the provider wants its messages."""

ANTHROPIC_VERSION = "2023-06-01"
ANTHROPIC_MAX_TOKENS = 4_096  # this API demands a limit; `options` sets another


@value
class Provider:
    """Where a provider is, what it speaks, and how it wants to be asked.

    Attributes:
        name: What `provider=` calls it.
        base_url: Where its API is.
        path: Where its answers stream, below the base URL; "{model}" stands for the model.
        protocol: The dialect it speaks.
        key_variable: The environment variable that holds its key, "" where it needs none.
        model: The model asked for where none is named.
        body: Makes the request's body from the model and the prompt.
        headers: Makes the request's headers from the key, which is "" where there is none.
    """

    name: str
    base_url: str
    path: str
    protocol: str
    key_variable: str
    model: str
    body: Callable[[str, Prompt], Mapping[str, object]]
    headers: Callable[[str], Mapping[str, str]]


def find_provider(name: str) -> Provider:
    """The provider of that name.

    Raises:
        ValueError: There is none; the message lists those there are.
    """
    try:
        return PROVIDERS[name]
    except KeyError:
        raise ValueError(f"unknown provider {name!r}; known: {', '.join(PROVIDERS)}") from None


def _messages(prompt: Prompt) -> list[Mapping[str, object]]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)


def _chat(model: str, prompt: Prompt) -> Mapping[str, object]:
    return {"model": model, "messages": _messages(prompt), "stream": True}


def _chat_with_usage(model: str, prompt: Prompt) -> Mapping[str, object]:
    return {**_chat(model, prompt), "stream_options": {"include_usage": True}}


def _responses(model: str, prompt: Prompt) -> Mapping[str, object]:
    return {"model": model, "input": _messages(prompt), "stream": True}


def _anthropic(model: str, prompt: Prompt) -> Mapping[str, object]:
    return {**_chat(model, prompt), "max_tokens": ANTHROPIC_MAX_TOKENS}


def _gemini(model: str, prompt: Prompt) -> Mapping[str, object]:
    if isinstance(prompt, str):
        return {"contents": [{"role": "user", "parts": [{"text": prompt}]}]}
    return {"contents": list(prompt)}


def _bearer(key: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _anthropic_headers(key: str) -> Mapping[str, str]:
    return {"anthropic-version": ANTHROPIC_VERSION, **({"x-api-key": key} if key else {})}


def _google_headers(key: str) -> Mapping[str, str]:
    return {"x-goog-api-key": key} if key else {}


def _openai_like(
    name: str, base_url: str, model: str, body: Callable[[str, Prompt], Mapping[str, object]] = _chat
) -> Provider:
    key_variable = f"{name.upper()}_API_KEY"
    return Provider(name, base_url, "/chat/completions", "openai-chat", key_variable, model, body, _bearer)


PROVIDERS: Mapping[str, Provider] = MappingProxyType(
    {
        provider.name: provider
        for provider in (
            Provider(
                "anthropic",
                "https://api.anthropic.com/v1",
                "/messages",
                "anthropic",
                "ANTHROPIC_API_KEY",
                "claude-sonnet-4-6",
                _anthropic,
                _anthropic_headers,
            ),
            _openai_like("openai", "https://api.openai.com/v1", "gpt-5-mini", _chat_with_usage),
            Provider(
                "openai-responses",
                "https://api.openai.com/v1",
                "/responses",
                "openai-responses",
                "OPENAI_API_KEY",
                "gpt-5-mini",
                _responses,
                _bearer,
            ),
            Provider(
                "gemini",
                "https://generativelanguage.googleapis.com/v1beta",
                "/models/{model}:streamGenerateContent?alt=sse",
                "gemini",
                "GEMINI_API_KEY",
                "gemini-2.5-flash",
                _gemini,
                _google_headers,
            ),
            Provider(
                "cohere",
                "https://api.cohere.com/v2",
                "/chat",
                "cohere",
                "CO_API_KEY",
                "command-a-03-2025",
                _chat,
                _bearer,
            ),
            _openai_like("mistral", "https://api.mistral.ai/v1", "mistral-small-latest"),
            _openai_like("groq", "https://api.groq.com/openai/v1", "llama-3.3-70b-versatile"),
            _openai_like("deepseek", "https://api.deepseek.com", "deepseek-chat"),
            _openai_like("xai", "https://api.x.ai/v1", "grok-4-fast"),
            _openai_like("openrouter", "https://openrouter.ai/api/v1", "openai/gpt-5-mini"),
            _openai_like("together", "https://api.together.ai/v1", "meta-llama/Llama-3.3-70B-Instruct-Turbo"),
            Provider("ollama", "http://127.0.0.1:11434", "/api/chat", "ollama", "", "llama3.2", _chat, _bearer),
        )
    }
)
"""Every provider by its name. Another server that speaks the dialect of one of them: that one, with `base_url`."""
