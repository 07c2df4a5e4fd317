"""What must hold at every moment of a run, watched where it would be broken."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from penstock.connectors.nats.client import TRANSACTION_HEADER
from penstock.connectors.nats.exactly_once import Marker
from penstock.errors import PenstockError
from penstock.messages import cluster as msg
from penstock.messages import slot as slot_msg
from penstock.snapshots.manifest import decode_manifest
from penstock.testing.simulation import Process
from penstock_services.jobmanager.exceptions import KEPT
from tests.simulation.faults import ALL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.testing.simulation.jetstream import Stored
    from tests.simulation.connector import Committed
    from tests.simulation.scenario import Scenario

_EXCEPTIONS = re.compile(r"jobs/([^/]+)/exceptions/(\d+)$")
_LOG = re.compile(r"jobs/([^/]+)/log/(\d+)$")
_entry = msgspec.json.Decoder(msg.LogEntry)
_command = msgspec.json.Decoder(msg.ToTaskManager)


class JobWatch:
    """One job's log as it grows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.attempt = 0
        #: newest attempt of which a task manager has taken a part
        self.deployed = 0
        self.checkpoint_id = 0
        self.completed: list[msg.CheckpointCompleted] = []
        self.terminal: msg.Terminal | None = None
        self.restored: list[msg.Restored] = []
        self.leaders: list[str] = []
        #: when what went wrong happened, as the job's masters have written it; and as it stood
        #: when the present master began
        self.exceptions: list[int] = []
        self.inherited_exceptions: list[int] = []


class _Jobs(dict[str, JobWatch]):
    def __missing__(self, name: str) -> JobWatch:
        self[name] = JobWatch(name)
        return self[name]


class Watch:
    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._world = scenario.world
        self.jobs: dict[str, JobWatch] = _Jobs()
        #: (task manager's process id, job) → newest epoch of a command it agreed to
        self._obeyed: dict[tuple[int, str], int] = {}
        self._jobs_of: dict[str, str] = {}
        #: execution id → (newest checkpoint that it was asked for, by the master of which epoch)
        self._triggered: dict[str, tuple[int, int]] = {}
        objects = scenario.cluster.objects
        objects.on_write.append(self._written)
        objects.on_delete.append(self._deleted)
        scenario.cluster.bus.on_exchange.append(self._exchanged)
        scenario.outside.on_commit.append(self._committed)
        scenario.disk.on_rename.append(self._file_committed)
        scenario.nats.jetstream.on_store.append(self._batch_stored)

    def job_of(self, slot: Process) -> str:
        """Whose the slot is; nobody's, when it was never given to a job."""
        allocation = slot.name.partition("/")[2].rpartition("-")[0]
        return self._jobs_of.get(allocation, "")

    # -- the decision log -----------------------------------------------------------------

    def _written(self, who: Process, key: str, data: bytes) -> None:
        if (kept := _EXCEPTIONS.fullmatch(key)) is not None:
            self._keeps_exceptions(self.jobs[kept[1]], int(kept[2]), data)
        found = _LOG.fullmatch(key)
        if found is None:
            return
        if key in self._scenario.cluster.objects.objects:
            self._world.violated(f"{who} overwrites {key}")
        job, n = self.jobs[found[1]], int(found[2])
        entry = _entry.decode(data)
        self._world.trace(who.name, "decides", f"{n} {type(entry).__name__}")
        if job.terminal is not None and not isinstance(entry, msg.LeaderEpoch):
            self._world.violated(f"{who} decides {entry} after {job.terminal}")
        match entry:
            case msg.LeaderEpoch(leader_id=leader_id):
                job.epoch = n
                job.leaders.append(leader_id)
                job.inherited_exceptions = job.exceptions
            case msg.JobAccepted():
                pass
            case _ if entry.epoch != job.epoch:
                self._world.violated(f"{who} of epoch {entry.epoch} decides in epoch {job.epoch}: {entry}")
            case msg.CheckpointCompleted():
                self._completes(job, entry)
            case msg.Restored():
                self._restores(job, entry)
            case msg.Terminal():
                job.terminal = entry

    def _keeps_exceptions(self, job: JobWatch, epoch: int, data: bytes) -> None:
        """A master's history goes on where that of the one before ended."""
        entries = msgspec.json.decode(data)
        job.exceptions = [e["timestamp_ms"] for entry in entries for e in (entry, *entry["concurrent"])]
        missing = set(job.inherited_exceptions) - set(job.exceptions)
        if epoch == job.epoch and missing and len(entries) < KEPT:
            self._world.violated(f"what went wrong in {job.name} is forgotten by its next master")

    def _completes(self, job: JobWatch, entry: msg.CheckpointCompleted) -> None:
        if entry.checkpoint_id <= job.checkpoint_id:
            self._world.violated(f"checkpoint {entry.checkpoint_id} completes after {job.checkpoint_id}")
        job.checkpoint_id = entry.checkpoint_id
        job.completed.append(entry)
        self._is_whole(entry)

    def _restores(self, job: JobWatch, entry: msg.Restored) -> None:
        # Once more for an attempt of which nothing was deployed: a slot was lost on the way.
        if entry.job_attempt < job.attempt or entry.job_attempt <= job.deployed:
            self._world.violated(f"attempt {entry.job_attempt} begins after {job.attempt}")
        if job.completed and entry.job_attempt > 1 and not self._scenario.hurt & {ALL, job.name}:
            self._world.violated(
                f"attempt {entry.job_attempt} of {job.name} begins, though nothing happened to its tasks"
            )
        job.attempt = entry.job_attempt
        job.restored.append(entry)
        newest = job.completed[-1].checkpoint_id if job.completed else 0
        if entry.checkpoint_id < newest:
            self._world.violated(f"attempt {entry.job_attempt} restores {entry.checkpoint_id}, not {newest}")

    def _is_whole(self, entry: msg.CheckpointCompleted) -> None:
        """Its manifest and everything that names are there."""
        objects = self._scenario.cluster.objects.objects
        if entry.manifest_key not in objects:
            self._world.violated(f"checkpoint {entry.checkpoint_id} has no manifest {entry.manifest_key}")
            return
        try:
            manifest = decode_manifest(objects[entry.manifest_key], entry.manifest_key)
        except PenstockError as err:
            self._world.violated(f"manifest {entry.manifest_key}: {err}")
            return
        missing = sorted(manifest.object_keys() - objects.keys())
        if missing:
            self._world.violated(
                f"the manifest of checkpoint {entry.checkpoint_id} names what is not there: {missing}"
            )

    def _deleted(self, who: Process, key: str) -> None:
        """Never what the newest completed checkpoint names, while the job lives."""
        for job_id, job in self.jobs.items():
            if not key.startswith(f"jobs/{job_id}/") or job.terminal is not None or not job.completed:
                continue
            newest = job.completed[-1]
            data = self._scenario.cluster.objects.objects.get(newest.manifest_key)
            if data is None:
                continue
            manifest = decode_manifest(data, newest.manifest_key)
            if key == newest.manifest_key or key in manifest.object_keys():
                self._world.violated(f"{who} deletes {key} of the newest checkpoint {newest.checkpoint_id}")

    # -- commands ----------------------------------------------------------------------------

    def _exchanged(self, process: Process, subject: str, data: bytes, reply: bytes) -> None:
        """A task manager must not obey an epoch older than one it has obeyed before."""
        if ".taskmanager." not in subject or b'"type":"ack"' not in reply:
            return
        message = _command.decode(data)
        match message:
            case msg.AllocateSlot(job_id=job_id, allocation_id=allocation_id):
                self._jobs_of[allocation_id] = job_id
                self._obeys(process, "the resource manager", message.epoch)
            case msg.DeploySlot(deploy=deploy) if deploy is not None:
                self._obeys(process, deploy.job_id, deploy.epoch)
                job = self.jobs[deploy.job_id]
                job.deployed = max(job.deployed, deploy.job_attempt)
            # FreeSlot is left out: for a slot that is free already everybody is told yes.
            case msg.SlotCommand(command=command):
                self._obeys(process, self._jobs_of[message.allocation_id], command.epoch)
                if isinstance(command, slot_msg.TriggerCheckpoint):
                    self._triggers(self._jobs_of[message.allocation_id], command)

    def _triggers(self, job: str, command: slot_msg.TriggerCheckpoint) -> None:
        """A task that was asked for a checkpoint by one master is not asked for it by the next."""
        for execution_id in command.execution_ids:
            task = f"{job}/{execution_id}"
            newest, epoch = self._triggered.get(task, (0, 0))
            if command.epoch > epoch and command.checkpoint_id <= newest:
                self._world.violated(
                    f"{task} is asked for checkpoint {command.checkpoint_id} in epoch {command.epoch}, "
                    f"and was for {newest} in epoch {epoch}"
                )
            if command.checkpoint_id > newest:
                self._triggered[task] = (command.checkpoint_id, command.epoch)

    def _obeys(self, process: Process, whom: str, epoch: int) -> None:
        newest = self._obeyed.get((process.pid, whom), 0)
        if epoch < newest:
            self._world.violated(f"{process} obeys epoch {epoch} of {whom} after {newest}")
        self._obeyed[(process.pid, whom)] = max(epoch, newest)

    # -- output ------------------------------------------------------------------------------

    def _committed(self, committed: Committed) -> None:
        """Nothing is shown before the log says that its checkpoint is complete."""
        _, job_id, _, attempt, checkpoint_id = committed.transaction.split("/")
        job = self.jobs[job_id]
        if not any(entry.checkpoint_id >= int(checkpoint_id) for entry in job.completed):
            self._world.violated(f"{committed.transaction} is committed before its checkpoint is complete")
        if int(attempt) > job.attempt:
            self._world.violated(f"{committed.transaction} is of an attempt that nobody announced")

    def _file_committed(self, target: str) -> None:
        checkpoint_id = int(target.rsplit("-", 2)[1])
        if not any(e.checkpoint_id >= checkpoint_id for j in self.jobs.values() for e in j.completed):
            self._world.violated(f"{target} is committed before its checkpoint is complete")

    def _batch_stored(self, stream: str, messages: Sequence[Stored]) -> None:
        """What an exactly-once sink stores comes with a marker, whose checkpoint is complete."""
        sinks = self._scenario.workload.all_sinks().values()
        if not any(how.get("stream") == stream and how.get("exactly-once") for how in sinks):
            return
        *rows, last = messages
        if TRANSACTION_HEADER not in last.headers:
            self._world.violated(f"rows without a marker in {stream}: {messages}")
            return
        marker = msgspec.json.decode(last.data, type=Marker)
        job = self.jobs[marker.job]
        if marker.attempt > job.attempt:
            self._world.violated(f"a marker of attempt {marker.attempt}, which nobody announced")
        checkpoints = [marker.checkpoint_id, *marker.done.values()]
        completed = [e.checkpoint_id for j in self.jobs.values() for e in j.completed]
        if rows and max(checkpoints) > max(completed, default=0):
            self._world.violated(f"{stream} holds rows of {marker}, whose checkpoint is not complete")
