"""Cancels the jobs that a command waits for when the command ends early. A second signal ends it at once."""

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

#: Seconds for which the command waits for the end of a job that it cancelled.
CANCEL_S = 10.0


def attended(client: ClusterClient, spec: dict[str, Any], wait: Callable[[str], None]) -> None:
    """Submit a job and call ``wait(job id)``. The job is cancelled if ``wait`` ends before the job does.

    ``wait`` may end early by a signal, a closed pipe or an error. A signal during the submission cancels the
    job too.
    """
    job_id, name = spec.get("job_id") or uuid.uuid4().hex, spec["name"]
    submitted = False
    try:
        client.submit({**spec, "job_id": job_id})
        submitted = True
        wait(job_id)
    except (KeyboardInterrupt, SystemExit):
        _cancel_and_tell(client, job_id, name)
        raise
    except BrokenPipeError:  # as after `| head`: the user has seen enough, so nothing is printed
        withdraw(client, job_id)
        awaited_end(client, job_id)
        raise
    except PenstockError:
        if submitted:
            client.cancel(job_id)
        raise


def cancel_all(client: ClusterClient, jobs: list[tuple[str, str]]) -> None:
    """Cancel all jobs (id, name), even if the cancellation of some fails."""
    for job_id, name in jobs:
        _cancel_and_tell(client, job_id, name)


def _cancel_and_tell(client: ClusterClient, job_id: str, name: str) -> None:
    """Cancel a job. An error is printed and not raised, so that it does not hide why the command ends."""
    try:
        cancel_job(client, job_id, name)
    except PenstockError as err:
        print(f"job {job_id} ({name}) could not be cancelled:\n{err}", file=sys.stderr, flush=True)


def cancel_job(client: ClusterClient, job_id: str, name: str) -> None:
    """Cancel a job, print that it is being cancelled, and wait up to CANCEL_S seconds for its end.

    Ctrl-C ends the waiting. Nothing happens for a job that has ended or that the cluster does not know.
    """
    if withdraw(client, job_id) in (None, *TERMINAL):
        return
    print(f"cancelling job {job_id} ({name}) …", file=sys.stderr, flush=True)
    state = awaited_end(client, job_id)
    told = state.lower() if state in TERMINAL else "is being cancelled"
    print(f"[job {job_id} ({name}): {told}]", file=sys.stderr, flush=True)


def awaited_end(client: ClusterClient, job_id: str) -> str:
    """The state of a cancelled job at its end, or after CANCEL_S seconds."""
    deadline = time.monotonic() + CANCEL_S
    while (state := client.job(job_id)["state"]) not in TERMINAL and time.monotonic() < deadline:
        time.sleep(0.05)
    return str(state)
