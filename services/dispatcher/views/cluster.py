"""The cluster: its overview, the dashboard's configuration, and the dispatcher's own process."""

from __future__ import annotations

import platform
import sys
from collections import Counter
from typing import TYPE_CHECKING

from penstock.messages.states import JobStatus
from penstock_services.dispatcher.views.common import Kebab, Shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.messages.cluster import ClusterOverview, JobOverview
    from penstock.messages.task_manager import LogFile

REFRESH_MS = 1_000
_ENDED = (JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED)


class Overview(Kebab, frozen=True, kw_only=True):
    """``GET /overview``. No task manager is ever blocked."""

    taskmanagers: int
    taskmanagers_blocked: int = 0
    slots_total: int
    slots_available: int
    slots_free_and_blocked: int = 0
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    flink_version: str
    flink_commit: str = ""
    # Of ours: whether a resource manager leads.
    resourcemanager: bool


class Features(Kebab, frozen=True, kw_only=True):
    """What a dashboard may offer."""

    web_submit: bool = False
    web_cancel: bool = True
    web_rescale: bool = False
    web_history: bool = False


class DashboardConfig(Kebab, frozen=True, kw_only=True):
    """``GET /config``"""

    refresh_interval: int = REFRESH_MS
    timezone_name: str = "UTC"
    timezone_offset: int = 0
    flink_version: str
    flink_revision: str = ""
    features: Features = Features()
    # Of ours.
    cluster: str


class Interpreter(Shape, frozen=True, kw_only=True):
    """The Python that runs, the machine's architecture, and the options of the interpreter, in the place of
    Flink's Java."""

    version: str
    arch: str
    options: list[str]


class Environment(Shape, frozen=True, kw_only=True):
    """``GET /jobmanager/environment``. ``classpath``: the folders from which Python imports."""

    jvm: Interpreter
    classpath: list[str]


class LogEntry(Shape, frozen=True, kw_only=True):
    """One log file. ``size`` is in bytes, ``mtime`` in ms."""

    name: str
    size: int
    mtime: int


class Logs(Shape, frozen=True, kw_only=True):
    """``GET …/logs``: the file that changed last is at the end."""

    logs: list[LogEntry]


class LogUrl(Shape, frozen=True, kw_only=True):
    """The address of a log."""

    url: str


class ThreadInfo(Shape, frozen=True, kw_only=True, rename="camel"):
    """One thread with its stack as text."""

    thread_name: str
    stringified_thread_info: str


class ThreadDump(Shape, frozen=True, kw_only=True, rename="camel"):
    """``GET …/thread-dump``"""

    thread_infos: list[ThreadInfo]


def overview(jobs: Iterable[JobOverview], cluster: ClusterOverview | None, version: str) -> Overview:
    """The overview. ``cluster``: None while no resource manager leads. ``version``: that of Penstock."""
    counts = Counter(job.status for job in jobs)
    return Overview(
        taskmanagers=cluster.count if cluster else 0,
        slots_total=cluster.slots_total if cluster else 0,
        slots_available=cluster.slots_free if cluster else 0,
        jobs_running=sum(n for status, n in counts.items() if status not in _ENDED),
        jobs_finished=counts[JobStatus.FINISHED],
        jobs_cancelled=counts[JobStatus.CANCELED],
        jobs_failed=counts[JobStatus.FAILED],
        flink_version=f"penstock-{version}",
        resourcemanager=cluster is not None,
    )


def environment() -> Environment:
    """The environment of this process."""
    version = f"{platform.python_implementation()} {platform.python_version()}"
    options = [f"-X{name}={value}" for name, value in sorted(sys._xoptions.items())]
    return Environment(
        jvm=Interpreter(version=version, arch=platform.machine(), options=options),
        classpath=[path for path in sys.path if path],
    )


def logs(files: Sequence[LogFile]) -> Logs:
    """The list of log files."""
    return Logs(logs=[LogEntry(name=f.name, size=f.size, mtime=f.mtime_ms) for f in files])


def thread_dump(stacks: Mapping[str, str]) -> ThreadDump:
    """``stacks``: name of the thread → its frames as text."""
    return ThreadDump(
        thread_infos=[
            ThreadInfo(thread_name=name, stringified_thread_info=text) for name, text in stacks.items()
        ]
    )
