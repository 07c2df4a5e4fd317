"""The requests that the dispatcher answers on the bus, so that any NATS client can use the cluster::

    <cluster>.jobs.submit   a plain JSON or YAML spec (or SubmitJob) → SubmitReply
    <cluster>.jobs.list     → {"jobs": […]}
    <cluster>.jobs.status   a job id, as text or {"job_id": …} → {"job_id", "status", …}
    <cluster>.jobs.cancel   the same → {"job_id", "status"}

An error is answered as ``{"type": "failed", "error": …}``.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.bus import encode
from penstock.bus.envelope import failed
from penstock.errors import SpecError
from penstock_services.dispatcher.spec import parse_spec, spec_of
from penstock_services.dispatcher.views.jobs import jobs_overview

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.bus import Subjects
    from penstock.messages.cluster import JobSpec
    from penstock.ports import Clock, Transport
    from penstock_services.dispatcher.directory import JobDirectory
    from penstock_services.dispatcher.submission import Submitter

QUEUE = "dispatchers"


class BusApi:
    """Answers the requests on the bus. Of all dispatchers only one receives each request."""

    def __init__(
        self,
        transport: Transport,
        subjects: Subjects,
        submitter: Submitter,
        directory: JobDirectory,
        clock: Clock,
        logger: Any,
    ) -> None:
        self._transport = transport
        self._subjects = subjects
        self._submitter = submitter
        self._directory = directory
        self._clock = clock
        self._logger = logger

    async def start(self) -> None:
        """Subscribes to the requests."""
        for verb, handler in (
            ("submit", self._submit),
            ("list", self._list),
            ("status", self._status),
            ("cancel", self._cancel),
        ):
            await self._transport.serve(self._subjects.jobs(verb), self._answering(handler), queue=QUEUE)

    def _answering(
        self, handler: Callable[[bytes], Awaitable[Any]]
    ) -> Callable[[str, bytes], Awaitable[bytes]]:
        async def answer(subject: str, data: bytes) -> bytes:
            try:
                return encode(await handler(data))
            except Exception as err:
                self._logger.warning("request_refused", subject=subject, error=str(err))
                return encode(failed(err))

        return answer

    async def _submit(self, data: bytes) -> Any:
        return await self._submitter.submit(*await asyncio.to_thread(_submission, data))

    async def _list(self, _: bytes) -> Any:
        return jobs_overview(await self._directory.overviews(), self._clock.now_ms())

    async def _status(self, data: bytes) -> Any:
        details = await self._directory.details(_job_id(data))
        return {
            "job_id": details.job_id,
            "name": details.name,
            "status": details.status.value,
            "attempt": details.attempt,
            "restored_checkpoint_id": details.restored_checkpoint_id,
            "waiting_for": details.waiting_for,
            "stalled": details.stalled,
            "error": details.exceptions[0]["error"] if details.exceptions else None,
        }

    async def _cancel(self, data: bytes) -> Any:
        job_id = _job_id(data)
        await self._directory.cancel(job_id)
        details = await self._directory.details(job_id)
        return {"job_id": job_id, "status": details.status.value}


def _submission(data: bytes) -> tuple[JobSpec, str | None]:
    """(the spec, the id of the command or None)."""
    tagged = _tagged(data)
    if tagged is None:
        return parse_spec(data), None
    return spec_of(tagged.get("spec")), str(tagged.get("command_id") or "") or None


def _tagged(data: bytes) -> dict[str, Any] | None:
    """The message if it is a SubmitJob; None if it is a bare spec."""
    if not data.lstrip().startswith(b"{"):
        return None
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return None  # ``parse_spec`` reports the error
    return tree if isinstance(tree, dict) and tree.get("type") == "submit-job" else None


def _job_id(data: bytes) -> str:
    text = data.decode(errors="replace").strip()
    if text.startswith("{"):
        try:
            text = str(msgspec.json.decode(text).get("job_id", ""))
        except (msgspec.DecodeError, RecursionError) as err:
            raise SpecError("not JSON", expected='{"job_id": "…"}', got=str(err)) from err
    if not text:
        raise SpecError("no job id", expected='a job id as text, or {"job_id": "…"}')
    return text
