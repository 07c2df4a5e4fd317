"""What a verdict is made of."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from penstock.messages.states import ExecutionState
from penstock_services.dispatcher.views.common import Kebab, vertex_id

if TYPE_CHECKING:
    from penstock.messages.cluster import SubtaskDetails, VertexDetails

#: The watermark of an input that has ended, in ms. (µs in a 64-bit number.)
ENDED_WATERMARK_MS = (2**63 - 1) // 1000
_SHOWN_CHARACTERS = 300


class Severity(str, Enum):
    """How much a finding matters. ``ERROR``: the job does not do its work. ``WARNING``: it does, but worse than
    it could, or will not for long. ``INFO``: worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


#: The order in which findings are shown.
ORDER = (Severity.ERROR, Severity.WARNING, Severity.INFO)


class Subject(Kebab, frozen=True, kw_only=True):
    """What a finding is about. ``subtask``: counted from 0. ``channel``: a split of a source or an input channel.
    None: the finding is about no single one."""

    vertex: str | None = None
    vertex_name: str | None = None
    subtask: int | None = None
    operator: str | None = None
    taskmanager: str | None = None
    channel: str | None = None
    checkpoint: int | None = None


class Finding(Kebab, frozen=True, kw_only=True):
    """One thing that is wrong, or worth knowing.

    ``code``: which kind, such as ``bottleneck``; stable, for programs. ``title``: one sentence. ``since``: ms
    since 1970; None: not known. ``causes``: from what one sees to what is behind it. ``next_step``: what to do.
    ``page``: the part of the dashboard's job page that shows more.
    """

    code: str
    severity: Severity
    title: str
    since: int | None = None
    subject: Subject = Subject()
    causes: list[str] = []
    next_step: str
    page: str = "graph"


class Verdict(Kebab, frozen=True, kw_only=True):
    """``GET /jobs/{id}/why``. ``severity``: the worst of a finding's; None: there is none. ``findings``: the worst
    first."""

    jid: str
    name: str
    state: str
    severity: Severity | None
    summary: str
    findings: list[Finding]


def about(
    vertex: VertexDetails, subtask: SubtaskDetails | None = None, *, channel: str | None = None
) -> Subject:
    """The subject for a vertex, or for one of its subtasks."""
    return Subject(
        vertex=vertex_id(vertex.id),
        vertex_name=vertex.name,
        subtask=None if subtask is None else subtask.subtask_index,
        taskmanager=None if subtask is None else subtask.taskmanager_id,
        channel=channel,
    )


def running(vertex: VertexDetails) -> list[SubtaskDetails]:
    """The vertex's subtasks that run and have reported metrics."""
    return [s for s in vertex.subtasks if s.state is ExecutionState.RUNNING and s.metrics]


def percent(share: float) -> str:
    """``0.934`` → ``93 %``."""
    return f"{100 * share:.0f} %"


def span(ms: float) -> str:
    """A duration for people: ``340 ms``, ``12 s``, ``5 min``, ``2.5 h``."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    for unit, size, limit in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < size * limit:
            value = seconds / size
            return f"{value:.1f} {unit}" if value < 10 and value != int(value) else f"{value:.0f} {unit}"
    return f"{seconds / 86_400:.1f} d"


def count(number: float) -> str:
    """A number for people: ``1,234``."""
    return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


def short(text: str) -> str:
    """The first line of a text, cut to a length that fits a list."""
    line = next((part.strip() for part in text.splitlines() if part.strip()), "")
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[: _SHOWN_CHARACTERS - 1]}…"


def quoted(name: str) -> str:
    """The name of a vertex, cut if it is long."""
    return f"“{name if len(name) <= 80 else name[:79] + '…'}”"
