"""What the slots of a job use of the machine, from /proc while they live."""

from __future__ import annotations

import os
import time
from pathlib import Path

from penstock.api.client import ClusterClient

_TICK, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
#: Between questions to the cluster for new processes.
_ASK_S = 1.0


class Slots:
    """CPU seconds by process, and the highest resident memory of all of them together."""

    def __init__(self, client: ClusterClient, job: str) -> None:
        self._client, self._job = client, job
        self.cpu_s: dict[int, float] = {}
        self._asked = 0.0
        self.peak_bytes = 0

    def sample(self) -> None:
        if time.monotonic() - self._asked > _ASK_S:
            self._find()
        resident = 0
        for pid in self.cpu_s:
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except OSError:  # it has ended
                continue
            self.cpu_s[pid] = (int(fields[11]) + int(fields[12])) / _TICK
            resident += pages * _PAGE
        self.peak_bytes = max(self.peak_bytes, resident)

    def _find(self) -> None:
        self._asked = time.monotonic()
        for process in self._client.info()["processes"]:
            for slot in process.get("slots", []):
                if slot.get("pid") and slot.get("job_id") == self._job:
                    self.cpu_s.setdefault(slot["pid"], 0.0)
