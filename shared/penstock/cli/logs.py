"""``penstock logs JOB``: the output of a job's slots that their task managers still keep."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from penstock.api.client import TERMINAL, ClusterClient
from penstock.cli.showing import find_job
from penstock.errors import ExternalError, SpecError
from penstock.messages.slot_output import numbered

if TYPE_CHECKING:
    from typing import BinaryIO

#: Seconds between two polls for new output.
POLL_S = 0.5


def show_logs(url: str, start: str, *, follow: bool) -> None:
    """Print the output of the job whose id begins with ``start``; with ``follow`` until the job has ended."""
    with ClusterClient(url, patience_s=2) as client:
        job_id = find_job(client, start)
        printed = Printed(client, job_id, sys.stdout.buffer)
        while True:
            # The state is read before the lines, so that all output before the job's end is printed.
            over = client.job(job_id)["state"] in TERMINAL
            printed.show_new()
            if over or not follow:
                break
            time.sleep(POLL_S)
        if not printed.files:
            print("the job has printed nothing that a task manager still has", file=sys.stderr)


class Printed:
    """The output of a job that was printed so far. ``files``: (task manager, stem) -> (file number, bytes
    printed)."""

    def __init__(self, client: ClusterClient, job_id: str, out: BinaryIO) -> None:
        self._client = client
        self._job_id = job_id
        self._out = out
        self._away: set[str] = set()
        self.files: dict[tuple[str, str], tuple[int, int]] = {}

    def show_new(self) -> None:
        """Print all new output. A task manager that does not respond is reported once."""
        for manager in self._client.taskmanagers():
            try:
                self._show_of(manager["id"])
                self._away.discard(manager["id"])
            except ExternalError as err:
                if manager["id"] not in self._away:
                    self._away.add(manager["id"])
                    _say(f"task manager {manager['id']} does not answer: {err.message}")
        self._out.flush()

    def _show_of(self, manager: str) -> None:
        for file in self._client.log_files(manager):
            named = numbered(file["name"])
            if named is None or not named[0].startswith(f"{self._job_id}."):
                continue
            stem, number = named
            last, seen = self.files.get((manager, stem), (-1, 0))
            if number < last or (number == last and file["size"] == seen):
                continue
            if number > last + 1:
                _say(f"what was printed before {file['name']} is no longer kept")
            offset = seen if number == last else 0
            if file["size"] < offset:
                _say(f"{file['name']} was emptied: code past Python wrote too much into it")
                offset = 0
            self.files[manager, stem] = number, offset
            try:
                for piece in self._client.log_file(manager, file["name"], offset):
                    self._out.write(piece)
                    offset += len(piece)
                    self.files[manager, stem] = number, offset
            except SpecError:
                continue  # the file was removed after it was listed; newer files follow


def _say(text: str) -> None:
    print(f"[{text}]", file=sys.stderr, flush=True)
