"""``penstock savepoint``, ``stop`` and ``checkpoint``: take, inspect, compare and delete savepoints."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.api.client import ClusterClient
from penstock.cli.jobs import status
from penstock.cli.run import KINDS, plan_file, spec_of
from penstock.cli.savepoint_paths import addressed, locate
from penstock.cli.showing import find_job, print_table
from penstock.cli.sql import read_script
from penstock.config import MAX_PARALLELISM, RECOVERY_PATH
from penstock.errors import PenstockError, SnapshotError, SpecError, error_from_dict
from penstock.snapshots.compatibility import Difference, adopted, by_state, compare, kept_uids, operators_of
from penstock.snapshots.footers import OperatorSummary, summarise
from penstock.snapshots.manifest import CheckpointManifest, folder_at, read_manifest
from penstock.snapshots.matching import Operator
from penstock.snapshots.verifying import Verified, verify
from penstock.store.open import open_store
from penstock.store.routed import split_url

if TYPE_CHECKING:
    from penstock.jobgraph import JobGraph
    from penstock.ports import Store

#: The most savepoints of a folder that an error names.
MOST_NAMED = 5
#: The field of an operation that holds its error.
FAILED = "failure-cause"


# -- taking --------------------------------------------------------------------------------


def take_savepoint(url: str, start: str, directory: str | None, format_: str = "text") -> None:
    """Take a savepoint of the job whose id begins with ``start`` and print its location."""
    with ClusterClient(url) as client:
        job_id = find_job(client, start)
        target = None if directory is None else addressed(directory)
        location = _follow(client, job_id, client.savepoint(job_id, target), "savepoint")
    _print_location(job_id, location, format_)


def stop_job(url: str, start: str, directory: str | None, *, drain: bool, format_: str = "text") -> None:
    """Stop the job whose id begins with ``start`` with a savepoint, and print the savepoint's location."""
    with ClusterClient(url) as client:
        job_id = find_job(client, start)
        target = None if directory is None else addressed(directory)
        location = _follow(client, job_id, client.stop(job_id, target, drain=drain), "savepoint")
        job = client.wait(job_id)
    if format_ != "json":
        print(f"job {job_id}: {job['state']}", file=sys.stderr)
    _print_location(job_id, location, format_, state=job["state"])


def take_checkpoint(url: str, start: str, *, full: bool, format_: str = "text") -> None:
    """Take a checkpoint of the job whose id begins with ``start`` and print its location."""
    with ClusterClient(url) as client:
        job_id = find_job(client, start)
        location = _follow(client, job_id, client.checkpoint(job_id, full=full), "checkpoint")
    _print_location(job_id, location, format_)


def _print_location(job_id: str, location: str, format_: str, **more: str) -> None:
    told = {"job-id": job_id, "location": location, **more}
    print(json.dumps(told, indent=2) if format_ == "json" else location)


def _follow(client: ClusterClient, job_id: str, trigger_id: str, what: str) -> str:
    """Wait for the operation ``trigger_id``, with a line of progress on a terminal; return the location.

    A lost connection is opened again, because the request is kept by the cluster.
    """
    shown = sys.stderr.isatty()

    def tell(known: dict[str, Any]) -> None:
        sys.stderr.write(f"\r\x1b[K{progress(known, what)}")
        sys.stderr.flush()

    try:
        return client.location(job_id, trigger_id, what, tell if shown else None)
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")


def progress(known: dict[str, Any], what: str) -> str:
    """The line of progress of a savepoint or checkpoint, as REST describes it."""
    if not known.get("total"):
        return f"{what}: waiting for its turn"
    text = f"{what}: {known['acknowledged']} of {known['total']} subtasks, {known['size'] / 1e6:,.1f} MB"
    return text if known["acknowledged"] < known["total"] else f"{text}; being stored"


# -- finding -------------------------------------------------------------------------------


async def savepoints_in(store: Store, folder: str) -> list[str]:
    """The URLs of savepoints and checkpoints below ``folder``, ordered by their numbers."""
    try:
        listed = await store.list(f"{folder}/")
    except PenstockError:  # the caller has reported already that the folder is no savepoint
        return []
    found = [key.removesuffix("/manifest") for key, _ in listed if key.endswith("/manifest")]
    found = [key for key in found if key != folder]  # the folder itself may be a damaged savepoint
    return sorted(found, key=lambda key: [int(n) for n in re.findall(r"[0-9]+", key.removeprefix(folder))])


def _store_of(folder: str) -> Store:
    return open_store(split_url(folder)[0])


class _Opened(msgspec.Struct):
    """A savepoint's manifest and summaries. ``verified`` is set if the whole savepoint was read."""

    folder: str
    manifest: CheckpointManifest
    operators: list[OperatorSummary]
    verified: Verified | None = None


def _read(location: str, *, every_block: bool = False) -> _Opened:
    async def read() -> _Opened:
        store = _store_of(location)
        folder = await folder_at(store, location)
        try:
            manifest = await read_manifest(store, location)
        except SnapshotError:
            if inside := await savepoints_in(store, folder):
                raise SpecError(
                    "this folder is no savepoint, but holds some",
                    expected="one of " + ", ".join(inside[-MOST_NAMED:]),
                    got=folder,
                    remedy=f"e.g. {inside[-1]}",
                ) from None
            raise
        key = f"{folder}/manifest"
        opened = _Opened(folder, manifest, await summarise(store, manifest, key))
        if every_block:
            opened.verified = await verify(store, manifest, key)
        return opened

    with status(f"reading {location} …"):
        return asyncio.run(read())


def summaries_at(location: str) -> list[OperatorSummary]:
    """The operators of the savepoint at ``location``, with their states."""
    return _read(location).operators


# -- inspect -------------------------------------------------------------------------------


def inspect(path: str, cluster: str | None, format_: str, *, every_block: bool = False) -> None:
    """Print what a savepoint contains. It reads the manifest and the objects' footers; with ``every_block``
    everything."""
    opened = _read(locate(path, cluster), every_block=every_block)
    folder, manifest, operators = opened.folder, opened.manifest, opened.operators
    if format_ == "json":
        print(json.dumps(described(folder, manifest, operators, opened.verified), indent=2))
        return
    print(
        f"{manifest.kind} {manifest.checkpoint_id} of job {manifest.job_id} ({manifest.job_name}), "
        f"attempt {manifest.job_attempt}\n"
        f"format {manifest.version}, written by Penstock {manifest.written_by or '(unknown)'}; "
        f"{manifest.full_size_bytes:,} bytes {places(manifest)}\n{folder}"
    )
    rows: list[list[Any]] = []
    for operator in operators:
        groups = f"{operator.parallelism} × of {operator.max_parallelism} key groups"
        rows.append([operator.uid, operator.name, groups, "", "", ""])
        rows += [
            ["", f"  {s.name}", s.kind, types_of(s.schema), f"{s.rows:,}", f"{s.size_bytes:,}"]
            for s in operator.states
        ]
    print_table(["uid", "operator / state", "kind", "schema", "rows", "bytes"], rows)
    print(checked(opened.verified))


def places(manifest: CheckpointManifest) -> str:
    """Where the state lies: small snapshots lie in the manifest itself."""
    handles = [handle for vertex in manifest.vertices for handle in vertex.handles]
    inline = any(h.inline is not None or any(link.inline is not None for link in h.chain) for h in handles)
    count = len(manifest.object_keys())
    objects = f"{count} object{'' if count == 1 else 's'}"
    if not count:
        return "in the manifest itself; no object beside it is needed"
    return f"in the manifest and {objects}" if inline else f"in {objects}"


def checked(verified: Verified | None) -> str:
    """A line that says how much of the savepoint was verified by checksums."""
    if verified is None:
        return "checked: the manifest and the objects' footers; the blocks of state were not read (--verify)"
    return (
        f"checked: the manifest, and all {verified.blocks:,} blocks ({verified.bytes:,} bytes) of "
        f"{verified.objects:,} objects"
    )


def types_of(schema: dict[str, Any]) -> str:
    """The types of a state in one line, as its operator declared them: ``user STRING → count BIGINT``."""

    def names(part: Any) -> str:
        if isinstance(part, list):
            return ", ".join(" ".join(map(str, p)) if isinstance(p, list) else str(p) for p in part)
        return str(part)

    keys, columns = schema.get("keys"), schema.get("columns") or schema.get("value")
    return " → ".join(names(part) for part in (keys, columns) if part)


def described(
    folder: str,
    manifest: CheckpointManifest,
    operators: list[OperatorSummary],
    verified: Verified | None = None,
) -> dict[str, Any]:
    """A savepoint as JSON: its location, the manifest's fields, sizes and operators."""
    head = {name: getattr(manifest, name) for name in manifest.__struct_fields__ if name != "vertices"}
    return {
        "location": folder,
        **head,
        "size_bytes": manifest.full_size_bytes,
        "objects": len(manifest.object_keys()),
        "operators": msgspec.to_builtins(operators),
        "verified": msgspec.to_builtins(verified),
    }


# -- diff ----------------------------------------------------------------------------------


def diff(path: str, job: str, cluster: str | None, config: dict[str, str], format_: str) -> None:
    """Print what a job would restore from a savepoint. Nothing is started or stopped."""
    folder = locate(path, cluster)
    planned = _planned(job, {RECOVERY_PATH.key: folder, **config})
    summaries = summaries_at(folder)
    if planned is not None:
        difference = compare_graph(planned, summaries)
    else:
        difference = msgspec.structs.replace(
            compare(_operators(job, cluster), summaries),
            notes=("the states of a job that is known by its id are not looked at: compared by operator",),
        )
    if format_ == "json":
        print(json.dumps(msgspec.to_builtins(difference), indent=2))
    else:
        print_difference(difference)
    if difference.problems:
        sys.exit(1)


def _planned(job: str, config: dict[str, str]) -> JobGraph | None:
    """The job graph of a file; None if ``job`` is neither a file nor looks like a file's name."""
    if not Path(job).exists():
        if "/" not in job and Path(job).suffix not in KINDS:
            return None
        raise SpecError(
            "there is no such file", expected="a job (" + ", ".join(KINDS) + "), or a job's id", got=job,
            remedy="check its path",
        )  # fmt: skip

    return plan_file(Path(job), spec_of(Path(job), read_script(Path(job)), [], config))


def compare_graph(graph: JobGraph, summaries: list[OperatorSummary]) -> Difference:
    """The difference that the submission of ``graph`` would find, and the states that its functions declare."""
    from penstock.api.restore_check import declared_states

    own = MAX_PARALLELISM.read(graph.config) > 0
    keep = kept_uids(graph.config)
    difference = compare(operators_of(graph), summaries, own_max_parallelism=own, keep=keep)
    graph = adopted(graph, difference, summaries)
    keyed = {
        s.uid: {state.name: state.schema for state in s.states if state.kind == "keyed"} for s in summaries
    }
    return by_state(difference, summaries, asyncio.run(declared_states(graph, keyed)))


def _operators(job: str, cluster: str | None) -> list[Operator]:
    """The operators of a job that the cluster knows."""
    if cluster is None:
        raise SpecError(
            "no such job", expected="a file (.sql, .py, .yaml, .json), or --cluster and a job's id", got=job
        )
    with ClusterClient(cluster, patience_s=2) as client:
        vertices = client.job(find_job(client, job))["vertices"]
    return [
        Operator(
            uid=o["uid"], name=o["name"], parallelism=v["parallelism"], max_parallelism=v["maxParallelism"]
        )
        for v in vertices
        for o in v["operators"]
    ]


def print_difference(difference: Difference) -> None:
    """Print a difference, one group of operators after the other."""
    for title, found in (
        ("maps", difference.mapped),
        ("is converted", difference.converted),
        ("is refused, since its meaning in the job has changed", difference.changed),
        ("is refused, since it may belong to several operators", difference.ambiguous),
        ("is kept, but no open() asks for it", difference.unread),
        ("would be dropped", difference.dropped),
        ("is new", difference.new),
    ):
        print(f"{title}: {len(found)} operators" if found else f"{title}: nothing")
        for operator in found:
            print(f"  {operator.uid}  {operator.name}")
            for state in operator.states:
                print(f"    {state}")
            for why in operator.why:
                print(f"    - {why}")
    for problem in difference.problems:
        print(f"does not fit: {problem}")
    for note in difference.notes:
        print(f"note: {note}")
    keepable = [changed.uid for changed in difference.changed if changed.readable]
    if keepable:
        print(f"keeping a changed one as it is needs --keep-state UID, e.g. {keepable[0]}")
    if difference.dropped or difference.changed or difference.ambiguous:
        print("restoring the rest needs --allow-non-restored-state")


# -- dispose -------------------------------------------------------------------------------


def dispose(path: str, cluster: str) -> None:
    """Delete the savepoint at ``path``. Raises the cluster's error if that fails."""
    with ClusterClient(cluster, patience_s=2) as client:
        operation = client.dispose_savepoint(addressed(path))["operation"]
    if FAILED in operation:
        raise error_from_dict(operation[FAILED]["error"])
    if "warning" in operation:
        print(f"warning: {operation['warning']}")
    print(f"deleted {path}")
