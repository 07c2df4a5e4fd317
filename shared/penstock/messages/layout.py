"""Where a job's objects lie in the object store.

::

    jobs/<job>/log/<n>                      decision log (the truth)
    jobs/<job>/spec  …/graph                JobSpec and JobGraph, as JSON
    jobs/<job>/checkpoints/<id>/<epoch>/manifest    … and under <id> the snapshots it names
    jobs/<job>/checkpoints/<id>/<epoch>/statistics  what is shown of it when it has ended
    jobs/<job>/checkpoints/1/backfill-<attempt>/    state of the history, made on Spark; its manifest
    jobs/<job>/checkpoints/backfill-attempt         the attempt of the backfill that may write
    jobs/<job>/checkpoints/seam             where history ends and live begins, fixed once
    jobs/<job>/results/<attempt>-<seq>      rows of a SELECT
    jobs/<job>/spark/<uid>                  what Spark did for a query: stages, log
    jobs/<job>/spark-stream/                checkpoints of a job in Structured Streaming
    jobs/<job>/staged/<uid>/…               rows of the exactly-once NATS sink, until committed
    jobs/<job>/deploy/<n>                   deployments too large for a message
    jobs/<job>/exceptions/<epoch>           what went wrong so far, by the master of that epoch
    jobs/<job>/archive                      JobDetails of an ended job
    savepoints/savepoint-<job>-<id>-<epoch>/        a savepoint: manifest and copies of its objects
    active-jobs/<job>                       accepted and not ended (an index, not the truth)
    ended-jobs/<job>                        one line on an ended job, for lists
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from penstock.identifiers import checked
from penstock.identifiers import checked_job_id as _job

ACTIVE_PREFIX = "active-jobs/"
ENDED_PREFIX = "ended-jobs/"


def job_prefix(job_id: str) -> str:
    return f"jobs/{_job(job_id)}/"


def spec_key(job_id: str) -> str:
    return f"jobs/{_job(job_id)}/spec"


def graph_key(job_id: str) -> str:
    return f"jobs/{_job(job_id)}/graph"


def archive_key(job_id: str) -> str:
    return f"jobs/{_job(job_id)}/archive"


def exceptions_prefix(job_id: str) -> str:
    return f"jobs/{_job(job_id)}/exceptions/"


def exceptions_key(job_id: str, epoch: int) -> str:
    return f"{exceptions_prefix(job_id)}{epoch}"


def checkpoints_prefix(job_id: str) -> str:
    return f"jobs/{_job(job_id)}/checkpoints/"


def manifest_key(job_id: str, checkpoint_id: int, epoch: int) -> str:
    """Of one master's alone: what an older one, woken from a stop, still writes replaces no
    manifest of its successor, though both may use the same checkpoint id."""
    return f"jobs/{_job(job_id)}/checkpoints/{checkpoint_id}/{epoch}/manifest"


#: A backfill's state is its job's first checkpoint.
BACKFILL_CHECKPOINT_ID = 1


def backfill_prefix(job_id: str, attempt: int) -> str:
    """Of one attempt alone: what a cancelled one still writes is in nobody's manifest."""
    return f"jobs/{_job(job_id)}/checkpoints/{BACKFILL_CHECKPOINT_ID}/backfill-{attempt}/"


def backfill_manifest_key(job_id: str, attempt: int) -> str:
    return f"{backfill_prefix(job_id, attempt)}manifest"


def backfill_attempt_key(job_id: str) -> str:
    """The number of the attempt that may write."""
    return f"jobs/{_job(job_id)}/checkpoints/backfill-attempt"


def seam_key(job_id: str) -> str:
    return f"jobs/{_job(job_id)}/checkpoints/seam"


#: How the name of a savepoint's folder begins.
SAVEPOINT_NAME = "savepoint-"


def located(path: str) -> str:
    """A key or URL as it is, a folder of this machine as a URL of one spelling."""
    if path.startswith("file:///"):
        return f"file://{quote(unquote(path.removeprefix('file://')))}"
    return f"file://{quote(path)}" if path.startswith("/") else path


def savepoint_folder(directory: str, job_id: str, checkpoint_id: int, epoch: int) -> str:
    """``directory``: a key, a URL or an absolute path."""
    return f"{located(directory).rstrip('/')}/{SAVEPOINT_NAME}{job_id[:6]}-{checkpoint_id}-{epoch}"


def staged_prefix(job_id: str) -> str:
    return f"jobs/{_job(job_id)}/staged/"


def results_prefix(job_id: str) -> str:
    return f"jobs/{_job(job_id)}/results/"


def dead_letters_prefix(job_id: str) -> str:
    return f"jobs/{_job(job_id)}/dead-letters/"


def deploy_key(job_id: str, command_id: str) -> str:
    return f"jobs/{_job(job_id)}/deploy/{command_id}"


def disposal_key(trigger_id: str) -> str:
    return f"disposals/{checked(trigger_id, 'request id')}"


def active_key(job_id: str) -> str:
    return f"{ACTIVE_PREFIX}{_job(job_id)}"


def ended_key(job_id: str) -> str:
    return f"{ENDED_PREFIX}{_job(job_id)}"


def spark_prefix(job_id: str) -> str:
    return f"jobs/{_job(job_id)}/spark/"


def spark_report_key(job_id: str, uid: str) -> str:
    return f"jobs/{_job(job_id)}/spark/{uid}"


def spark_stream_prefix(job_id: str) -> str:
    return f"jobs/{_job(job_id)}/spark-stream"
