"""Savepoints on a real cluster: taken, looked into, moved, restored at other parallelisms."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nats
import pytest
from typer.testing import CliRunner

from penstock.api.client import ClusterClient
from penstock.api.planner import plan_spec
from penstock.cli import main
from penstock.cli import savepoint as command
from penstock.cli.jobs import Results
from penstock.cli.run import run_plan
from penstock.errors import PenstockError, SnapshotError, SpecError
from penstock.jobgraph.specs import SinkSpec
from penstock.messages.cluster import JobSpec
from penstock.snapshots.manifest import CheckpointManifest, decode_manifest
from tests.e2e.support import slot_pid, story_of

pytestmark = pytest.mark.cluster

#: Rows; of them, those that are there when the job begins; keys; subjects.
ROWS, FIRST, KEYS, SUBJECTS = 12_000, 4_000, 40, 4
SQL = f"""
CREATE TABLE numbers (n BIGINT) WITH (
  'connector' = 'nats', 'stream' = 'NUMBERS', 'format' = 'json', 'message.batch' = 'true',
  'scan.split' = 'subject', 'scan.bounded.mode' = 'marker');
SELECT MOD(n, {KEYS}) AS k, COUNT(*) AS c, SUM(n) AS s FROM numbers GROUP BY MOD(n, {KEYS});
"""
OTHER = SQL.replace("MOD(n, 40)", "MOD(n, 7)")
EXPECTED = sorted((k, ROWS // KEYS, sum(range(k, ROWS, KEYS))) for k in range(KEYS))


def publish(url: str, numbers: range, *, end: bool = False) -> None:
    """``numbers`` over all subjects, a hundred a message. ``end``: there will be no more."""

    async def run() -> None:
        connection = await nats.connect(url)
        try:
            stream = connection.jetstream(timeout=60)
            await stream.add_stream(name="NUMBERS", subjects=["numbers.*"])
            for first in range(numbers.start, numbers.stop, 100):
                lines = "\n".join(f'{{"n":{n}}}' for n in range(first, first + 100))
                await stream.publish(f"numbers.{first // 100 % SUBJECTS}", lines.encode())
            for subject in range(SUBJECTS) if end else ():
                headers = {"Penstock-End-Of-Stream": "true"}
                await stream.publish(f"numbers.{subject}", b"", headers=headers)
        finally:
            await connection.close()

    asyncio.run(run())


def spec(sql: str = SQL, parallelism: int = 2, **config: str) -> dict:
    return {
        "name": "counts",
        "sql": sql,
        "parallelism": parallelism,
        "config": {"execution.checkpointing.interval": "300 ms", **config},
    }


def result(client: ClusterClient, job_id: str, sql: str = SQL) -> list[tuple]:
    graph = plan_spec(JobSpec(**spec(sql)))
    sink = next(
        o.spec for v in graph.vertices for o in v.operators
        if isinstance(o.spec, SinkSpec) and o.spec.connector == "collect"
    )  # fmt: skip
    keys = sink.keys if sink.mode == "upsert" else None
    return sorted(Results(client, job_id, sink.schema, keys).final())


def read(client: ClusterClient, job_id: str) -> int:
    """Rows that the job's source has given out: in front of any barrier that follows."""
    [source] = [v["id"] for v in client.job(job_id)["vertices"] if v["name"].startswith("Source")]
    metrics = client.vertex_metrics(job_id, source)
    return sum(int(n) for name, n in metrics.items() if name.endswith("Source: numbers.numRecordsOut"))


def folder_of(location: str) -> Path:
    return Path(unquote(urlsplit(location).path))


def test_stop_move_look_and_resume_at_other_parallelisms(make_cluster, until, tmp_path, capsys) -> None:
    cluster = make_cluster(taskmanagers=1, slots=4)
    url = cluster.rest_url
    with ClusterClient(url) as client:
        publish(cluster.nats_url, range(FIRST))
        job_id = client.submit(spec())
        until(lambda: read(client, job_id) == FIRST, "the first rows to be read")
        until(lambda: client.checkpoints(job_id).get("counts", {}).get("completed", 0) >= 2, "checkpoints")
        command.take_savepoint(url, job_id[:8], str(tmp_path / "kept 100%"))
        kept = capsys.readouterr().out.strip()
        assert folder_of(kept).parent == tmp_path / "kept 100%"
        command.stop_job(url, job_id, None, drain=False)
        stopped = capsys.readouterr().out.strip()
        assert client.job(job_id)["state"] == "FINISHED"
        publish(cluster.nats_url, range(FIRST, ROWS), end=True)

        # It is whole: moved elsewhere, and what the cluster had of it deleted.
        moved = tmp_path / "moved there" / "it"
        moved.parent.mkdir()
        shutil.move(folder_of(stopped), moved)
        command.inspect(str(moved), url, "json")
        seen = json.loads(capsys.readouterr().out)
        states = [s for o in seen["operators"] for s in o["states"] if s["kind"] == "keyed"]
        assert sum(s["rows"] for s in states) == KEYS
        assert seen["job_id"] == job_id
        assert seen["written_by"]
        command.inspect(str(moved), url, "table")
        assert "of 128 key groups" in capsys.readouterr().out

        program = tmp_path / "job.sql"
        program.write_text(SQL)
        command.diff(str(moved), str(program), url, {}, "table")
        told = capsys.readouterr().out
        assert "would be dropped: nothing" in told
        assert "is new: nothing" in told
        program.write_text(OTHER)
        command.diff(str(moved), str(program), url, {}, "json")
        difference = json.loads(capsys.readouterr().out)
        assert [o["rows"] for o in difference["changed"]] == [KEYS]
        assert "→" in difference["changed"][0]["why"][0]
        assert difference["new"]

        for parallelism in (1, 4):
            config = {"execution.state-recovery.path": moved.as_uri()}
            resumed = client.submit(spec(parallelism=parallelism, **config))
            assert result(client, resumed) == EXPECTED
        # The other one, taken in passing, is as good; and it holds the job's plan, so that it needs no SQL.
        run_plan(
            kept, cluster=url, config={"execution.state-recovery.path": kept}, detached=False, format_="csv"
        )
        rows = [tuple(map(int, line.split(","))) for line in capsys.readouterr().out.splitlines()[1:]]
        assert sorted(rows) == EXPECTED

        # A filter below the state is another meaning; the user knows that it changes nothing, and says so.
        program.write_text(SQL.replace("FROM numbers GROUP", "FROM numbers WHERE n > -1 GROUP"))
        words = ["run", "--cluster", url, "-s", kept, "--format", "csv", str(program)]
        changed = CliRunner().invoke(main.app, words).exception
        assert isinstance(changed, SpecError)
        uid = str(changed.remedy).partition("--keep-state ")[2].partition(" ")[0]
        told = CliRunner().invoke(main.app, [*words, "--keep-state", uid])
        assert told.exit_code == 0, told.output
        rows = [tuple(map(int, line.split(","))) for line in told.stdout.splitlines()[1:]]
        assert sorted(rows) == EXPECTED

        with pytest.raises(SpecError, match="means something else than this job") as refused:
            client.submit(spec(OTHER, **{"execution.state-recovery.path": kept}))
        assert "→" in str(refused.value)
        with pytest.raises(SpecError, match="does not fit") as refused:
            client.submit(spec(**{"execution.state-recovery.path": kept, "pipeline.max-parallelism": "64"}))
        assert "128" in str(refused.value)
        with pytest.raises(SnapshotError, match="manifest is not there"):
            client.submit(spec(**{"execution.state-recovery.path": "savepoints/nowhere"}))
        lenient = {
            "execution.state-recovery.path": kept,
            "execution.state-recovery.ignore-unclaimed-state": "true",
        }
        assert client.wait(client.submit(spec(OTHER, **lenient)))["state"] == "FINISHED"

        damaged = max(moved.glob("0*"), key=lambda p: p.stat().st_size, default=moved / "manifest")
        damaged.write_bytes(damaged.read_bytes()[:-7])
        with pytest.raises(SnapshotError) as broken:
            client.submit(spec(**{"execution.state-recovery.path": moved.as_uri()}))
        assert damaged.name in str(broken.value)

        command.dispose(kept, url)
        assert not list(folder_of(kept).rglob("*"))
        with pytest.raises(PenstockError, match="not there"):
            command.dispose(kept, url)


COUNTS = """
CREATE TABLE numbers (n BIGINT) WITH (
  'connector' = 'datagen', 'rows-per-second' = '20000', 'fields.n.min' = '0', 'fields.n.max' = '1000000');
CREATE TABLE counted (n BIGINT, c BIGINT, s BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO counted SELECT n, COUNT(*), SUM(n) FROM numbers GROUP BY n;
"""


def take_checkpoint(client: ClusterClient, until, job_id: str) -> int:
    """The id of one that is complete."""
    trigger = client.checkpoint(job_id)
    done = until(
        lambda: (t := client.triggered(job_id, trigger))["status"]["id"] == "COMPLETED" and t,
        "a checkpoint",
        lambda: story_of(client, job_id),
    )
    return int(done["operation"]["checkpointId"])


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def test_a_damaged_checkpoint_gives_way_to_the_one_before(make_cluster, until) -> None:
    cluster = make_cluster(taskmanagers=1, slots=1)
    store = Path(unquote(urlsplit(cluster.storage_url).path))
    with ClusterClient(cluster.rest_url) as client:
        # None but those asked for here: none is under way, and none comes, when one is damaged.
        config = {
            "execution.checkpointing.interval": "10 d",
            "execution.checkpointing.incremental": "false",
            "execution.checkpointing.num-retained": "3",
        }
        job_id = client.submit({"name": "counts", "sql": COUNTS, "parallelism": 1, "config": config})
        folder = store / "jobs" / job_id / "checkpoints"

        def checkpoint() -> int:
            return take_checkpoint(client, until, job_id)

        def objects(checkpoint_id: int) -> list[Path]:
            """Of its own: it has some when its state is too large to travel inline."""
            return list((folder / str(checkpoint_id)).glob("*-0-1"))

        until(lambda: client.job(job_id)["state"] == "RUNNING", "it to run")
        older = until(lambda: objects(n := checkpoint()) and n, "a checkpoint with objects")
        newest = checkpoint()
        assert newest > older
        assert objects(newest)
        for path in filter(Path.is_file, (folder / str(newest)).iterdir()):
            flip_a_byte(path)
        os.kill(slot_pid(client), signal.SIGKILL)
        job = until(
            lambda: (j := client.job(job_id))["state"] == "RUNNING" and j["attempt"] >= 3 and j,
            "the attempt after the one that found the damage",
            lambda: client.exceptions(job_id),
        )
        assert job["restored-checkpoint"] == older
        entries = client.exceptions(job_id)["exceptionHistory"]["entries"]
        found = next(e for e in entries if e["restoredInstead"])
        assert f"checkpoint {newest} cannot be read" in found["restoredInstead"]
        assert "damaged" in found["stacktrace"]
        assert f"checkpoints/{newest}/" in found["stacktrace"], "the object is named"
        assert checkpoint() > newest
        client.cancel(job_id)


def test_damage_in_what_all_retained_checkpoints_share(make_cluster, until) -> None:
    """Incremental ones have the beginning of their chain in common."""
    cluster = make_cluster(taskmanagers=1, slots=1)
    store = Path(unquote(urlsplit(cluster.storage_url).path))
    with ClusterClient(cluster.rest_url) as client:
        config = {"execution.checkpointing.interval": "10 d", "execution.checkpointing.num-retained": "2"}
        job_id = client.submit({"name": "counts", "sql": COUNTS, "parallelism": 1, "config": config})
        until(lambda: client.job(job_id)["state"] == "RUNNING", "it to run")

        def manifests() -> list[CheckpointManifest]:
            """Newest first. (An old one may be deleted while we look.)"""
            found = []
            for path in (store / "jobs" / job_id / "checkpoints").glob("*/*/manifest"):
                with contextlib.suppress(FileNotFoundError):
                    found.append(decode_manifest(path.read_bytes(), str(path)))
            return sorted(found, key=lambda m: -m.checkpoint_id)

        def shared_and_not() -> tuple[str, int] | None:
            """What the newest two begin with, and the newest that has no object in common with them."""
            newest, before, *others = manifests()
            chains = [h.chain for v in newest.vertices for h in v.handles if h.chain]
            alone = [m for m in others if m.object_keys().isdisjoint(newest.object_keys())]
            if not chains or not alone or chains[0][-1].key not in before.object_keys():
                return None
            return chains[0][-1].key, alone[0].checkpoint_id

        take_checkpoint(client, until, job_id)
        found = until(
            lambda: take_checkpoint(client, until, job_id) and shared_and_not(),
            "a second chain to have begun",
        )
        shared, alone = found
        newest, before = (m.checkpoint_id for m in manifests()[:2])
        flip_a_byte(store / shared)
        os.kill(slot_pid(client), signal.SIGKILL)
        job = until(
            lambda: (j := client.job(job_id))["state"] == "RUNNING" and j["attempt"] >= 4 and j,
            "the attempt that nothing damaged is needed for",
            lambda: client.exceptions(job_id),
        )
        assert job["restored-checkpoint"] == alone
        said = [e["restoredInstead"] for e in client.exceptions(job_id)["exceptionHistory"]["entries"]]
        assert f"checkpoint {newest} cannot be read: checkpoint {before} is used instead" in said
        assert take_checkpoint(client, until, job_id) > newest
        client.cancel(job_id)


def test_state_of_another_type_is_refused_at_submission(make_cluster, until, capsys, tmp_path) -> None:
    cluster = make_cluster(taskmanagers=1, slots=2)
    program = (Path(__file__).parent / "stateful_job.py").read_text()
    with ClusterClient(cluster.rest_url) as client:
        config = {"execution.checkpointing.interval": "300 ms"}
        job_id = client.submit({"name": "visits", "python": program, "parallelism": 1, "config": config})
        until(lambda: client.checkpoints(job_id).get("counts", {}).get("completed", 0) >= 2, "checkpoints")
        command.stop_job(cluster.rest_url, job_id, None, drain=False)
        config["execution.state-recovery.path"] = capsys.readouterr().out.strip()
        other = program.replace(
            'ValueStateDescriptor("visits", Types.LONG())', 'ValueStateDescriptor("visits", Types.STRING())'
        )
        assert other != program
        with pytest.raises(SpecError, match="cannot be read as it is declared") as refused:
            client.submit({"name": "visits", "python": other, "parallelism": 1, "config": config})
        assert "BIGINT" in refused.value.got
        capsys.readouterr()
        (tmp_path / "other.py").write_text(other)
        with pytest.raises(SystemExit):  # nothing is submitted or stopped for that
            command.diff(
                config["execution.state-recovery.path"],
                str(tmp_path / "other.py"),
                cluster.rest_url,
                {},
                "table",
            )
        shown = capsys.readouterr().out
        assert "does not fit: state 'value/visits' of operator 'visits': declared STRING" in shown
        assert "value/visits (" not in shown, "what does not fit does not map"
        renamed = other.replace('"visits", Types.STRING())', '"seen", Types.LONG()).renamed_from("visits")')
        (tmp_path / "renamed.py").write_text(renamed)
        command.diff(
            config["execution.state-recovery.path"],
            str(tmp_path / "renamed.py"),
            cluster.rest_url,
            {},
            "table",
        )
        shown = capsys.readouterr().out
        assert "does not fit" not in shown
        maps = shown.partition("is kept,")[0]
        assert "value/visits (keyed" in maps
        (tmp_path / "lost.py").write_text(renamed.replace('.renamed_from("visits")', ""))
        command.diff(
            config["execution.state-recovery.path"], str(tmp_path / "lost.py"), cluster.rest_url, {}, "json"
        )
        found = json.loads(capsys.readouterr().out)
        assert [s.partition(" ")[0] for o in found["unread"] for s in o["states"]] == ["value/visits"]
        assert "value/visits" not in str(found["mapped"])
        assert ["value/seen"] in [o["states"] for o in found["new"]]
        again = client.submit({"name": "visits", "python": renamed, "parallelism": 2, "config": config})
        until(lambda: client.checkpoints(again).get("counts", {}).get("completed", 0) >= 1, "a checkpoint")
        job = client.job(again)
        assert (job["attempt"], job["restored-checkpoint"] > 0) == (1, True)
        client.cancel(again)
