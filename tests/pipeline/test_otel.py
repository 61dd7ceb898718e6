"""`otel_measured`: spans and metrics under the conventions, from the SDK's own exporters, and no word in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing, suppress
from typing import Any, NamedTuple

import aiohttp
import pytest
import reactivex
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from reactivex import Observable
from reactivex import operators as ops

from rillet.operators.errors import StreamError
from rillet.pipeline import Timeouts, ask, bytes_from, iterate
from rillet.pipeline.otel import otel_measured
from rillet.pipeline.sandbox import Fault, Sandbox, Script, ScriptedCall

SCRIPT = Script("SECRET", reasoning="SECRET", calls=(ScriptedCall("SECRET", {"SECRET": "SECRET"}),), usage=(5, 7))
NAMED = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5-mini"}


class Telemetry(NamedTuple):
    """An SDK of its own, and what it exports."""

    tracer: trace.Tracer
    options: dict[str, Any]
    spans: InMemorySpanExporter
    metrics: InMemoryMetricReader

    def points(self) -> dict[str, list[Any]]:
        """The points of each metric."""
        data = self.metrics.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        return {metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics}


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracing, metering = TracerProvider(shutdown_on_exit=False), MeterProvider([reader], shutdown_on_exit=False)
    tracing.add_span_processor(SimpleSpanProcessor(spans))
    tracer = tracing.get_tracer("test")
    yield Telemetry(tracer, {"tracer": tracer, "meter": metering.get_meter("test")}, spans, reader)
    metering.shutdown()
    tracing.shutdown()


async def consume(observable: Observable[Any], upto: int | None = None) -> None:
    """Take all of it, or so many items, whatever it fails with."""
    with suppress(StreamError):
        async with aclosing(iterate(observable if upto is None else observable.pipe(ops.take(upto)))) as flow:
            async for _ in flow:
                pass


def asked(session: aiohttp.ClientSession, base_url: str) -> Observable[Any]:
    options = {"base_url": base_url, "timeouts": Timeouts(liveness=0.05)}
    return ask(session, "PROMPT", "KEY", provider="openai", **options)  # type: ignore[arg-type]


async def test_a_whole_answer_is_a_span_and_three_metrics(session: aiohttp.ClientSession, telemetry: Telemetry) -> None:
    sandbox = Sandbox(SCRIPT)
    async with sandbox as base_url:
        traced = otel_measured(
            provider="openai",
            model="gpt-5-mini",
            server_address="127.0.0.1",
            server_port=8080,
            **telemetry.options,
        )
        await consume(asked(session, base_url).pipe(traced))
    (span,) = telemetry.spans.get_finished_spans()
    assert (span.name, span.kind, span.status.status_code) == ("chat gpt-5-mini", SpanKind.CLIENT, StatusCode.UNSET)
    attributes = dict(span.attributes or {})
    where = {"server.address": "127.0.0.1", "server.port": 8080}
    first = attributes.pop("gen_ai.response.time_to_first_chunk")
    heartbeats = attributes.pop("rillet.heartbeats")
    deltas = attributes.pop("rillet.deltas")
    assert attributes == {
        **NAMED,
        **where,
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 7,
        "rillet.outcome": "complete",
        "rillet.bytes": sandbox.requests[0].sent,
        "rillet.stalls": 0,
    }
    assert isinstance(first, float)
    assert span.start_time is not None
    assert span.end_time is not None
    assert 0 < first < (span.end_time - span.start_time) / 1e9
    assert deltas > heartbeats >= 0  # type: ignore[operator]

    points = telemetry.points()
    (duration,) = points["gen_ai.client.operation.duration"]
    assert dict(duration.attributes) == {**NAMED, **where, "rillet.outcome": "complete"}
    assert duration.count == 1
    assert duration.explicit_bounds == (
        *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64),
        *(1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
    )
    (chunk,) = points["gen_ai.client.operation.time_to_first_chunk"]
    assert (dict(chunk.attributes), chunk.sum) == ({**NAMED, **where}, first)
    tokens = {point.attributes["gen_ai.token.type"]: point for point in points["gen_ai.client.token.usage"]}
    assert {kind: point.sum for kind, point in tokens.items()} == {"input": 5, "output": 7}
    assert tokens["input"].explicit_bounds[:4] == (1, 4, 16, 64)


@pytest.mark.parametrize(
    ("fault", "outcome", "error_type"),
    [
        ("cut", "truncated", "truncated_stream"),
        ("end", "truncated", "truncated_stream"),
        ("error", "failed", "provider_error"),
        ("stall", "failed", "idle_timeout"),
        ("status", "failed", "http_status_error"),
    ],
)
async def test_a_failure_is_told_by_its_kind_and_nothing_it_says(
    session: aiohttp.ClientSession, telemetry: Telemetry, fault: Any, outcome: str, error_type: str
) -> None:
    async with Sandbox(SCRIPT, fault=Fault(fault, after=900)) as base_url:
        await consume(asked(session, base_url).pipe(otel_measured(provider="openai", **telemetry.options)))
    (span,) = telemetry.spans.get_finished_spans()
    (duration,) = telemetry.points()["gen_ai.client.operation.duration"]
    for attributes in (span.attributes, duration.attributes):
        assert attributes is not None
        assert (attributes["rillet.outcome"], attributes["error.type"]) == (outcome, error_type)
    assert (span.status.status_code, span.status.description, span.events) == (StatusCode.ERROR, None, ())


async def test_the_rate_of_incomplete_streams_can_be_read_off(
    session: aiohttp.ClientSession, telemetry: Telemetry
) -> None:
    traced = otel_measured(provider="openai", **telemetry.options)
    for fault in (None, None, Fault("cut", after=900), Fault("error", after=900)):
        async with Sandbox(SCRIPT, fault=fault) as base_url:
            await consume(asked(session, base_url).pipe(traced))
    async with Sandbox(SCRIPT) as base_url:
        await consume(asked(session, base_url).pipe(traced), upto=1)
    points = telemetry.points()["gen_ai.client.operation.duration"]
    counts = {point.attributes["rillet.outcome"]: point.count for point in points}
    assert counts == {"complete": 2, "truncated": 1, "failed": 1, "cancelled": 1}
    cancelled = telemetry.spans.get_finished_spans()[-1]
    assert cancelled.status.status_code == StatusCode.UNSET
    assert "error.type" not in (cancelled.attributes or {})


async def test_the_span_is_a_child_of_the_one_at_the_subscription_and_the_parent_of_the_request(
    session: aiohttp.ClientSession, telemetry: Telemetry
) -> None:
    inside: list[trace.Span] = []

    async def on_request_start(*_: object) -> None:
        inside.append(trace.get_current_span())

    config = aiohttp.TraceConfig()
    config.on_request_start.append(on_request_start)
    async with Sandbox(SCRIPT) as base_url, aiohttp.ClientSession(trace_configs=[config]) as traced_session:
        observable = asked(traced_session, base_url).pipe(otel_measured(provider="openai", **telemetry.options))
        with telemetry.tracer.start_as_current_span("outer") as outer:
            await consume(observable)
            assert trace.get_current_span() is outer
    span, outer_span = telemetry.spans.get_finished_spans()
    assert span.parent is not None
    assert span.parent.span_id == outer.get_span_context().span_id
    assert outer_span.name == "outer"
    assert [within.get_span_context().span_id for within in inside] == [span.context.span_id]


@pytest.mark.parametrize(
    ("provider", "name"), [("gemini", "gcp.gemini"), ("mistral", "mistral_ai"), ("openai-responses", "openai")]
)
async def test_providers_have_the_names_of_the_conventions(telemetry: Telemetry, provider: str, name: str) -> None:
    reactivex.empty().pipe(otel_measured(provider=provider, operation="chat", **telemetry.options)).subscribe()
    (span,) = telemetry.spans.get_finished_spans()
    assert (span.name, (span.attributes or {})["gen_ai.provider.name"]) == ("chat", name)


async def test_no_word_of_prompt_answer_or_key_is_exported(
    session: aiohttp.ClientSession, telemetry: Telemetry
) -> None:
    for fault in (None, Fault("cut", after=900), Fault("error", after=900), Fault("status")):
        async with Sandbox(SCRIPT, fault=fault) as base_url:
            await consume(asked(session, base_url).pipe(otel_measured(provider="openai", **telemetry.options)))

    def fail(_: object) -> None:
        raise KeyError("SECRET")

    async with Sandbox(SCRIPT) as base_url:
        source = bytes_from(session, "POST", base_url + "/chat/completions", json={"prompt": "PROMPT"})
        failing = source.pipe(otel_measured(provider="openai", **telemetry.options), ops.do_action(fail))
        with suppress(KeyError):
            await consume(failing)
    exported = [span.to_json() for span in telemetry.spans.get_finished_spans()]
    data = telemetry.metrics.get_metrics_data()
    assert data is not None
    assert len(exported) == 5
    for text in (*exported, data.to_json()):
        assert not any(word in text for word in ("SECRET", "PROMPT", "KEY"))


def test_without_an_sdk_nothing_happens() -> None:
    seen: list[int] = []
    reactivex.just(1).pipe(otel_measured(provider="openai")).subscribe(seen.append)
    assert seen == [1]
