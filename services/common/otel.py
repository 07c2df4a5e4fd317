"""Sends spans to a collector of OpenTelemetry by OTLP over HTTP (the extra ``otel``).

``OTEL_EXPORTER_OTLP_HEADERS`` and the other variables of OpenTelemetry's exporter hold, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock_services.common.spans import Span

#: Scope of the spans, as OpenTelemetry calls who made them.
SCOPE = "penstock"
#: A service's stop waits so long for the last spans.
_FLUSH_MS = 3_000
_NS_PER_MS = 1_000_000


class OtelTracer:
    """See ``Tracer``.

    Args:
        endpoint: URL of the collector's traces, such as ``http://localhost:4318/v1/traces``.
        service_name: ``service.name`` of the spans.
        service_id: ``service.instance.id``.
    """

    def __init__(self, endpoint: str, service_name: str, service_id: str) -> None:
        resource = Resource.create({"service.name": service_name, "service.instance.id": service_id})
        self._ids = _Ids()
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=self._ids)
        # It sends from a thread of its own, keeps 2,048 spans, and drops more: a collector that is away holds nothing up.
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        self._tracer = self._provider.get_tracer(SCOPE)

    def export(self, span: Span) -> None:
        """See ``Tracer.export``."""
        of_job = _of_job(span.job_id)
        above = (
            trace.INVALID_SPAN if of_job is None or span.root or span.own_trace else NonRecordingSpan(of_job)
        )
        self._ids.next = of_job if span.root else None
        made = self._tracer.start_span(
            span.name,
            context=trace.set_span_in_context(above),
            links=[Link(of_job)] if of_job is not None and span.own_trace else [],
            attributes=_told(span.attributes),
            start_time=span.start_ms * _NS_PER_MS,
        )
        if span.error is not None:
            made.set_status(Status(StatusCode.ERROR, span.error))
        made.end(max(span.start_ms, span.end_ms) * _NS_PER_MS)

    async def close(self) -> None:
        """See ``Tracer.close``."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(
                asyncio.to_thread(self._provider.force_flush, _FLUSH_MS), _FLUSH_MS / 1000 + 1
            )
        self._provider.shutdown()


class _Ids(RandomIdGenerator):
    """Random ids, except for a span whose ids are given as ``next``."""

    next: SpanContext | None = None

    def generate_span_id(self) -> int:
        return super().generate_span_id() if self.next is None else self.next.span_id

    def generate_trace_id(self) -> int:
        return super().generate_trace_id() if self.next is None else self.next.trace_id


def _told(attributes: Mapping[str, object]) -> dict[str, str | bool | int | float]:
    return {
        key: value if isinstance(value, (str, bool, int, float)) else str(value)
        for key, value in attributes.items()
        if value is not None
    }


def _of_job(job_id: str) -> SpanContext | None:
    """The trace of a job: its id is the job's, and all services agree on the id of its first span. None for a job whose
    id is no 32 hexadecimal digits."""
    try:
        trace_id = int(job_id, 16)
    except ValueError:
        return None
    if not 0 < trace_id < 1 << 128:
        return None
    span_id = random.Random(trace_id).getrandbits(64) or 1
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
