"""Leaving a command that waits for a job, at whatever moment: the job does not stay behind. A second signal
leaves at once."""

from __future__ import annotations

import sys
import time
import uuid
from typing import TYPE_CHECKING, Any

from penstock.api.attached import withdraw
from penstock.api.client import TERMINAL
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.api.client import ClusterClient

#: A job that was cancelled here is awaited for so long.
CANCEL_S = 10.0


def attended(client: ClusterClient, spec: dict[str, Any], wait: Callable[[str], None]) -> None:
    """Submit a job and wait for it, in ``wait(job id)``. It is cancelled when that is left before its end:
    by a signal, a pipe that nobody reads, or an error; by a signal during the submission, too."""
    job_id, name = spec.get("job_id") or uuid.uuid4().hex, spec["name"]
    submitted = False
    try:
        client.submit({**spec, "job_id": job_id})
        submitted = True
        wait(job_id)
    except (KeyboardInterrupt, SystemExit):
        _cancel_and_tell(client, job_id, name)
        raise
    except BrokenPipeError:  # as after `| head`: nothing to tell
        withdraw(client, job_id)
        awaited_end(client, job_id)
        raise
    except PenstockError:
        if submitted:
            client.cancel(job_id)
        raise


def cancel_all(client: ClusterClient, jobs: list[tuple[str, str]]) -> None:
    """(job id, name): one that cannot be cancelled keeps none of the others."""
    for job_id, name in jobs:
        _cancel_and_tell(client, job_id, name)


def _cancel_and_tell(client: ClusterClient, job_id: str, name: str) -> None:
    """What goes wrong is said, but does not hide why the command is left."""
    try:
        cancel_job(client, job_id, name)
    except PenstockError as err:
        print(f"job {job_id} ({name}) could not be cancelled:\n{err}", file=sys.stderr, flush=True)


def cancel_job(client: ClusterClient, job_id: str, name: str) -> None:
    """Cancel it, because whoever waits for it does not want it any more, and say so; its end is awaited
    for a moment. Ctrl-C again: not even that. Nothing of one that is over, or that the cluster does not know."""
    if withdraw(client, job_id) in (None, *TERMINAL):
        return
    print(f"cancelling job {job_id} ({name}) …", file=sys.stderr, flush=True)
    state = awaited_end(client, job_id)
    told = state.lower() if state in TERMINAL else "is being cancelled"
    print(f"[job {job_id} ({name}): {told}]", file=sys.stderr, flush=True)


def awaited_end(client: ClusterClient, job_id: str) -> str:
    """The state of a cancelled job after CANCEL_S, or at its end."""
    deadline = time.monotonic() + CANCEL_S
    while (state := client.job(job_id)["state"]) not in TERMINAL and time.monotonic() < deadline:
        time.sleep(0.05)
    return str(state)
