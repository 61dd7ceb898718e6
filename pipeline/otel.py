"""`otel_measured`: each stream as a span and in metrics, under OpenTelemetry's conventions for generative AI.

It needs the extra `otel`, and is not part of `rillet.pipeline` itself, which does without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.metadata import version
from types import MappingProxyType
from typing import TypeVar

from reactivex import Observable, abc

try:
    from opentelemetry import metrics, trace
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("there is no OpenTelemetry here: install rillet[otel]", name=error.name) from error

from .measure import StreamStats, measure

T = TypeVar("T")

SCHEMA = "https://opentelemetry.io/schemas/1.41.0"
SECONDS = tuple(0.01 * 2**n for n in range(14))
TOKENS = tuple(4**n for n in range(14))

_CONVENTIONAL_NAMES: Mapping[str, str] = MappingProxyType(
    {"gemini": "gcp.gemini", "mistral": "mistral_ai", "openai-responses": "openai", "xai": "x_ai"}
)


def otel_measured(
    *,
    provider: str,
    model: str | None = None,
    operation: str = "chat",
    server_address: str | None = None,
    server_port: int | None = None,
    tracer: trace.Tracer | None = None,
    meter: metrics.Meter | None = None,
) -> Callable[[Observable[T]], Observable[T]]:
    """Trace a stream and count it, as `measure` measures it; where it stands matters as there.

    .. marble::

        ---Text---Text---Text---Done|
        [       otel_measured(…)    ]
        ---Text---Text---Text---Done|    and a span "chat gpt-5-mini", and three histograms

    The span is a child of the one that is current at the subscription, and current itself while the source is
    subscribed to, so that the spans of its HTTP request become its children. It ends with the stream; on failure with
    the status "error" and `error.type`: the `kind` of the `StreamError`, or the class's name. The metrics are
    `gen_ai.client.operation.duration`, `gen_ai.client.operation.time_to_first_chunk` (the first item here) and, where
    the provider tells them, `gen_ai.client.token.usage`. Nothing holds a word of the prompt or the answer.

    Beside what the conventions name, the duration and the span have `rillet.outcome`, see `StreamStats`, and the span
    `rillet.deltas`, `.heartbeats`, `.bytes` and `.stalls`. So the rate of incomplete streams is, in PromQL::

        sum(rate(gen_ai_client_operation_duration_seconds_count{rillet_outcome=~"truncated|failed"}[5m]))
          / sum(rate(gen_ai_client_operation_duration_seconds_count{rillet_outcome!="cancelled"}[5m]))

    and `sum by (error_type)` in the first line tells why.

    Args:
        provider: Who answers, by the name that `ask` or the conventions have for it.
        model: The model asked for.
        operation: What is done: "chat", "text_completion", "generate_content", …
        server_address: The server's host name; None leaves it out.
        server_port: Its port.
        tracer: By default the global provider's.
        meter: By default the global provider's.

    Returns:
        An operator.

        - emits: what comes
        - holds back: nothing
        - completes, fails: with the source

    Source: OpenTelemetry semantic conventions 1.41.0, generative AI (in development there).
    """
    named = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": _CONVENTIONAL_NAMES.get(provider, provider),
        "gen_ai.request.model": model,
        "server.address": server_address,
        "server.port": server_port,
    }
    attributes = {name: given for name, given in named.items() if given is not None}
    span_name = operation if model is None else f"{operation} {model}"
    tracing = tracer or trace.get_tracer("rillet", version("rillet"), schema_url=SCHEMA)
    instruments = _Instruments(meter or _global_meter())

    def operator(source: Observable[T]) -> Observable[T]:
        def subscribe(observer: abc.ObserverBase[T], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            span = tracing.start_span(
                span_name, kind=trace.SpanKind.CLIENT, attributes={**attributes, "gen_ai.request.stream": True}
            )
            over = partial(_over, span, instruments, attributes)
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                return source.pipe(measure(over)).subscribe(observer, scheduler=scheduler)

        return Observable(subscribe)

    return operator


class _Instruments:
    """The histograms of one meter."""

    def __init__(self, meter: metrics.Meter) -> None:
        histogram = meter.create_histogram
        self.duration = histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="How long a stream took.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self.first_chunk = histogram(
            "gen_ai.client.operation.time_to_first_chunk",
            unit="s",
            description="How long a stream took to its first delta.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self.tokens = histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="How many tokens a stream took, by gen_ai.token.type.",
            explicit_bucket_boundaries_advisory=TOKENS,
        )


@cache
def _global_meter() -> metrics.Meter:
    """One for all: before a provider is set, each that is asked for is remembered for good."""
    return metrics.get_meter("rillet", version("rillet"), schema_url=SCHEMA)


def _over(span: trace.Span, instruments: _Instruments, attributes: Mapping[str, str | int], stats: StreamStats) -> None:
    ended: dict[str, str | int] = {"rillet.outcome": stats.outcome}
    if stats.error_kind is not None:
        ended["error.type"] = stats.error_kind
        span.set_status(trace.StatusCode.ERROR)
    tokens = {
        kind: count
        for kind, count in (("input", stats.input_tokens), ("output", stats.output_tokens))
        if count is not None
    }
    span.set_attributes({**ended, **{f"gen_ai.usage.{kind}_tokens": count for kind, count in tokens.items()}})
    span.set_attributes(
        {f"rillet.{name}": getattr(stats, name) for name in ("deltas", "heartbeats", "bytes", "stalls")}
    )
    if stats.finish_reasons:
        span.set_attribute("gen_ai.response.finish_reasons", stats.finish_reasons)
    if stats.first_delta is not None:
        span.set_attribute("gen_ai.response.time_to_first_chunk", stats.first_delta)
    span.end()
    here = trace.set_span_in_context(span)  # for exemplars: the end may come on any task or thread
    instruments.duration.record(stats.duration, {**attributes, **ended}, here)
    if stats.first_delta is not None:
        instruments.first_chunk.record(stats.first_delta, attributes, here)
    for kind, count in tokens.items():
        instruments.tokens.record(count, {**attributes, "gen_ai.token.type": kind}, here)
