"""Spans: what a service did, and when.

Spans of one job that belong together are one trace, whose id is the job's id; so services need not tell each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Span:
    """Something that a service did.

    Args:
        name: What it was, such as ``Checkpoint``.
        start_ms: Its begin, milliseconds since 1970.
        end_ms: Its end.
        job_id: The job that it belongs to.
        attributes: Fields, by Flink's names where Flink has them.
        error: What failed; None if it succeeded.
        root: True: the span is the first of the job's trace, to which the others belong.
        own_trace: True: the span is a trace of its own, with a link to the job's, which may last for months.
    """

    name: str
    start_ms: int
    end_ms: int
    job_id: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    root: bool = False
    own_trace: bool = False
