"""The keys of a job's objects in the object store.

::

    jobs/<job>/log/<n>                      the decision log
    jobs/<job>/spec  …/graph                JobSpec and JobGraph, as JSON
    jobs/<job>/checkpoints/<id>/<epoch>/manifest    the manifest; the snapshots that it names are under <id>
    jobs/<job>/checkpoints/<id>/<epoch>/statistics  what REST shows of the checkpoint once it has ended
    jobs/<job>/checkpoints/1/backfill-<attempt>/    state of the history, made on Spark, and its manifest
    jobs/<job>/checkpoints/backfill-attempt         the attempt of the backfill that may write
    jobs/<job>/checkpoints/seam             where the history ends and the stream begins; written once
    jobs/<job>/results/<attempt>-<seq>      rows of a SELECT
    jobs/<job>/spark/<uid>                  what Spark did for a query: stages and log
    jobs/<job>/spark-stream/                checkpoints of a job in Structured Streaming
    jobs/<job>/staged/<uid>/…               rows of the exactly-once NATS sink, until they are committed
    jobs/<job>/deploy/<n>                   deployments that are too large for a message
    jobs/<job>/exceptions/<epoch>           the exceptions so far, by the master of that epoch
    jobs/<job>/archive                      JobDetails of an ended job
    savepoints/savepoint-<job>-<id>-<epoch>/        a savepoint: its manifest and copies of its objects
    active-jobs/<job>                       jobs that were accepted and have not ended (an index; the log decides)
    ended-jobs/<job>                        one row about an ended job, for lists

A function that takes a job id raises SpecError if the id is invalid.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from penstock.identifiers import checked
from penstock.identifiers import checked_job_id as _job

ACTIVE_PREFIX = "active-jobs/"
ENDED_PREFIX = "ended-jobs/"


def job_prefix(job_id: str) -> str:
    """The prefix of all objects of a job."""
    return f"jobs/{_job(job_id)}/"


def spec_key(job_id: str) -> str:
    """The JobSpec."""
    return f"jobs/{_job(job_id)}/spec"


def graph_key(job_id: str) -> str:
    """The JobGraph."""
    return f"jobs/{_job(job_id)}/graph"


def archive_key(job_id: str) -> str:
    """The JobDetails of an ended job."""
    return f"jobs/{_job(job_id)}/archive"


def exceptions_prefix(job_id: str) -> str:
    """The prefix of the exceptions that the masters of a job kept."""
    return f"jobs/{_job(job_id)}/exceptions/"


def exceptions_key(job_id: str, epoch: int) -> str:
    """The exceptions that the master of ``epoch`` kept."""
    return f"{exceptions_prefix(job_id)}{epoch}"


def checkpoints_prefix(job_id: str) -> str:
    """The prefix of all checkpoints of a job."""
    return f"jobs/{_job(job_id)}/checkpoints/"


def manifest_key(job_id: str, checkpoint_id: int, epoch: int) -> str:
    """The manifest of a checkpoint. The key holds the master's epoch: a former master that was suspended and
    continues may use the same checkpoint id as its successor, but it cannot replace the successor's
    manifest."""
    return f"jobs/{_job(job_id)}/checkpoints/{checkpoint_id}/{epoch}/manifest"


#: The state that a backfill makes is the job's first checkpoint.
BACKFILL_CHECKPOINT_ID = 1


def backfill_prefix(job_id: str, attempt: int) -> str:
    """The prefix of the state that one attempt of the backfill writes. Each attempt has its own, so that no
    manifest names what a cancelled attempt still writes."""
    return f"jobs/{_job(job_id)}/checkpoints/{BACKFILL_CHECKPOINT_ID}/backfill-{attempt}/"


def backfill_manifest_key(job_id: str, attempt: int) -> str:
    """The manifest of the state that one attempt of the backfill wrote."""
    return f"{backfill_prefix(job_id, attempt)}manifest"


def backfill_attempt_key(job_id: str) -> str:
    """The number of the backfill's attempt that may write."""
    return f"jobs/{_job(job_id)}/checkpoints/backfill-attempt"


def seam_key(job_id: str) -> str:
    """The positions at which the history ends and the stream begins."""
    return f"jobs/{_job(job_id)}/checkpoints/seam"


#: The prefix of the name of a savepoint's folder.
SAVEPOINT_NAME = "savepoint-"


def located(path: str) -> str:
    """``path`` unchanged if it is a key or a URL. An absolute path of this machine becomes a file URL, and
    all spellings of one file URL become the same."""
    if path.startswith("file:///"):
        return f"file://{quote(unquote(path.removeprefix('file://')))}"
    return f"file://{quote(path)}" if path.startswith("/") else path


def savepoint_folder(directory: str, job_id: str, checkpoint_id: int, epoch: int) -> str:
    """The folder of a savepoint below ``directory``, which is a key, a URL or an absolute path."""
    return f"{located(directory).rstrip('/')}/{SAVEPOINT_NAME}{job_id[:6]}-{checkpoint_id}-{epoch}"


def staged_prefix(job_id: str) -> str:
    """The prefix of rows that a sink has written and not yet committed."""
    return f"jobs/{_job(job_id)}/staged/"


def results_prefix(job_id: str) -> str:
    """The prefix of the rows of a SELECT."""
    return f"jobs/{_job(job_id)}/results/"


def dead_letters_prefix(job_id: str) -> str:
    """The prefix of the dead letters of a job."""
    return f"jobs/{_job(job_id)}/dead-letters/"


def dead_letters_key(job_id: str, uid: str, name: str) -> str:
    """An object of dead letters of the operator ``uid``."""
    return f"{dead_letters_prefix(job_id)}{uid}/{name}"


def confirmed_letters_prefix(job_id: str) -> str:
    """The prefix of the marks of objects of dead letters whose checkpoint is complete."""
    return f"jobs/{_job(job_id)}/dead-letters-confirmed/"


def confirmed_letters_key(job_id: str, uid: str, name: str) -> str:
    """The mark that the checkpoint of an object of dead letters is complete."""
    return f"{confirmed_letters_prefix(job_id)}{uid}/{name}"


def asked_letters_prefix(job_id: str) -> str:
    """The prefix of the marks of objects of dead letters that were given to a job to be replayed."""
    return f"jobs/{_job(job_id)}/dead-letters-asked/"


def replays_prefix(job_id: str, uid: str) -> str:
    """The prefix of the objects of dead letters that the operator ``uid`` of the job is to send again."""
    return f"jobs/{_job(job_id)}/replays/{uid}/"


def replayed_prefix(job_id: str) -> str:
    """The prefix of the marks of objects of dead letters that the job has sent again, in a complete checkpoint."""
    return f"jobs/{_job(job_id)}/replayed/"


def deploy_key(job_id: str, command_id: str) -> str:
    """A deployment that is too large for a message."""
    return f"jobs/{_job(job_id)}/deploy/{command_id}"


def disposal_key(trigger_id: str) -> str:
    """The outcome of a request to delete a savepoint. Raises SpecError if ``trigger_id`` is invalid."""
    return f"disposals/{checked(trigger_id, 'request id')}"


#: Code packages: what is known of each, and their content.
PACKAGES_PREFIX, _CONTENTS_PREFIX = "packages/", "package-contents/"


def package_key(package_id: str) -> str:
    """What is known of a code package, whose id was checked."""
    return f"{PACKAGES_PREFIX}{package_id}"


def package_content_key(package_id: str) -> str:
    """The zip of a code package."""
    return f"{_CONTENTS_PREFIX}{package_id}"


def job_package_key(job_id: str, package_id: str) -> str:
    """The job's own copy of the package that it was run from."""
    return f"{job_prefix(job_id)}packages/{package_id.partition('_')[0]}.zip"


def active_key(job_id: str) -> str:
    """The index entry of a job that has not ended."""
    return f"{ACTIVE_PREFIX}{_job(job_id)}"


def ended_key(job_id: str) -> str:
    """The row about a job that has ended."""
    return f"{ENDED_PREFIX}{_job(job_id)}"


def spark_prefix(job_id: str) -> str:
    """The prefix of the reports on what Spark did for a job."""
    return f"jobs/{_job(job_id)}/spark/"


def spark_report_key(job_id: str, uid: str) -> str:
    """The report on what Spark did for the operator with ``uid``."""
    return f"jobs/{_job(job_id)}/spark/{uid}"


def spark_stream_prefix(job_id: str) -> str:
    """The folder of a job's checkpoints in Structured Streaming, without a ``/`` at its end."""
    return f"jobs/{_job(job_id)}/spark-stream"
