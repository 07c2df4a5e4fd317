"""What the examples share: a project's steps, one job after the other, on a cluster; and the command line."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli.jobs import progress_line
from penstock.cli.project import planned_steps, read_project

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.console import Console

    from penstock.api.client import ClusterClient
    from penstock.cli.project import Step
    from penstock.sql.results import PlannedJob

Planned = tuple["Step", "PlannedJob"]


def steps_of(file: Path, out: Path) -> Iterator[Planned]:
    """The project's steps with ``out/<project>`` in their scripts made ``out``."""
    project = read_project(file, file.read_text())
    return planned_steps(file, project, {}, {f"'out/{project.name}/": f"'{out}/"})


def submit(client: ClusterClient, planned: Planned) -> str:
    step, job = planned
    return client.submit({"name": step.name, "job_graph": msgspec.to_builtins(job.job_graph)})


def run(console: Console, client: ClusterClient, planned: Planned) -> None:
    """To its end; raises its error."""
    name, started = planned[0].name, time.monotonic()
    job_id = submit(client, planned)
    with console.status(name) as status:

        def show(job: dict[str, Any]) -> None:
            status.update(progress_line(job, name, time.monotonic() - started))

        client.raise_if_failed(job_id, client.wait(job_id, on_progress=show))
    engine = planned[1].job_graph.plan.splitlines()[1]
    seconds = time.monotonic() - started
    console.print(f"step '{name}': {seconds:.1f} s; engine {engine}", soft_wrap=True)


def penstock(*words: str) -> str:
    """What a command of ``penstock`` prints. CalledProcessError if it fails, with both outputs."""
    command = [sys.executable, "-m", "penstock.cli.main", *words]
    return subprocess.run(command, check=True, text=True, capture_output=True).stdout.strip()
