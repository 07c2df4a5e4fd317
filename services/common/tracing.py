"""Where a service's spans go: to a collector of OpenTelemetry if ``traces.reporters`` asks for it, else nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock import config as conf
from penstock.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock_services.common.spans import Span

_EXTRA = "pip install 'penstock[otel]'"


class Tracer(Protocol):
    """Takes spans. It never raises and never waits."""

    def export(self, span: Span) -> None:
        """Hands a span over. It is sent later, with others."""

    async def close(self) -> None:
        """Sends what was handed over, or gives up after some seconds."""


class NoTracer:
    """Drops all spans."""

    def export(self, span: Span) -> None:
        """Drops the span."""

    async def close(self) -> None:
        """There is nothing to send."""


def open_tracer(config: Mapping[str, str], role: str, service_id: str) -> Tracer:
    """The tracer that the configuration asks for. Raises SpecError if its reporter is unknown or its packages are
    missing."""
    reporters = conf.TRACE_REPORTERS.read(config)
    if not reporters:
        return NoTracer()
    if reporters != "otel":
        raise SpecError(
            f"unknown reporter of traces ({conf.TRACE_REPORTERS.key})",
            expected="otel, or nothing",
            got=repr(reporters),
        )
    try:
        from penstock_services.common.otel import OtelTracer
    except ModuleNotFoundError as err:
        raise SpecError(
            "traces need OpenTelemetry's packages",
            expected=_EXTRA,
            got=f"no module {err.name}",
            where=conf.TRACE_REPORTERS.key,
            remedy=_EXTRA,
        ) from err
    endpoint = conf.TRACE_ENDPOINT.read(config)
    return OtelTracer(endpoint, f"{conf.TRACE_SERVICE_NAME.read(config)}-{role}", service_id)
