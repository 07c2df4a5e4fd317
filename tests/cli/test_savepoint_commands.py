"""The words of ``penstock savepoint``, ``stop``, ``checkpoint`` and ``run -s``, and what they print."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli import main, run, savepoint
from penstock.cli.options import DEFAULT_CLUSTER
from penstock.errors import SnapshotError, SpecError
from penstock.messages.slot import StateHandle
from penstock.snapshots.compatibility import Difference, Mapped
from penstock.snapshots.manifest import CheckpointManifest, VertexState
from penstock.snapshots.verifying import Verified
from penstock.store import open_store

HERE = DEFAULT_CLUSTER


@pytest.fixture
def asked(monkeypatch) -> list[tuple[str, Any]]:
    calls: list[tuple[str, Any]] = []
    for name in ("take_savepoint", "stop_job", "take_checkpoint", "inspect", "diff", "dispose"):
        monkeypatch.setattr(
            savepoint, name, lambda *args, _name=name, **more: calls.append((_name, (*args, *more.values())))
        )
    monkeypatch.setattr(run, "run_file", lambda *_, **more: calls.append(("run", more["config"])))
    monkeypatch.setattr(
        run, "_run_spec", lambda file, spec, *_: calls.append(("plan", {"sql": spec.sql, **spec.config}))
    )
    return calls


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (["savepoint", "4f1c"], ("take_savepoint", (HERE, "4f1c", None, "table"))),
        (["savepoint", "4f1c", "s3://b/x"], ("take_savepoint", (HERE, "4f1c", "s3://b/x", "table"))),
        (["savepoint", "inspect", "p"], ("inspect", ("p", HERE, "table", False))),
        (["savepoint", "inspect", "p", "--verify"], ("inspect", ("p", HERE, "table", True))),
        (["savepoint", "diff", "p", "job.sql"], ("diff", ("p", "job.sql", HERE, {}, "table"))),
        (["savepoint", "dispose", "p", "--cluster", "http://c"], ("dispose", ("p", "http://c"))),
        (["stop", "4f1c"], ("stop_job", (HERE, "4f1c", None, False, "text"))),
        (["stop", "-p", "d", "--drain", "4f1c"], ("stop_job", (HERE, "4f1c", "d", True, "text"))),
        (["stop", "--savepoint-path", "d", "4f1c"], ("stop_job", (HERE, "4f1c", "d", False, "text"))),
        (["checkpoint", "4f1c", "--full"], ("take_checkpoint", (HERE, "4f1c", True, "text"))),
        (["checkpoint", "4f1c", "--format", "json"], ("take_checkpoint", (HERE, "4f1c", False, "json"))),
    ],
)
def test_words(asked, words, call):
    result = CliRunner().invoke(main.app, words)
    assert result.exit_code == 0, result.output
    assert asked == [call]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["inspect"], "no PATH"),
        (["dispose"], "no PATH"),
        (["diff"], "neither PATH nor JOB"),
        (["diff", "p"], "no JOB behind p"),
        (["inspect", "a", "b"], "inspect a b"),
        (["4f1c", "--verify"], "savepoint inspect --verify PATH"),
    ],
)
def test_malformed(asked, words, says):
    result = CliRunner().invoke(main.app, ["savepoint", *words])
    assert isinstance(result.exception, SpecError)
    assert says in str(result.exception)
    assert result.exception.remedy
    assert not asked


@pytest.mark.parametrize("job", ["nofile.py", "nofile.sql", "folder/nofile", "nofile.yaml"])
def test_a_job_that_is_called_as_a_file_and_is_not_there(job, tmp_path):
    with pytest.raises(SpecError, match="no such file") as refused:
        savepoint.diff(str(tmp_path), job, None, {}, "table")
    assert refused.value.got == job


def test_a_run_begins_from_a_savepoint(asked, tmp_path):
    job = tmp_path / "job.sql"
    job.write_text("SELECT 1;")
    CliRunner().invoke(main.app, ["run", "-s", str(tmp_path), "-n", str(job)])
    CliRunner().invoke(main.app, ["run", "--from-savepoint", "savepoints/x", str(job)])
    assert asked[0][1]["execution.state-recovery.path"] == tmp_path.as_uri()
    assert asked[0][1]["execution.state-recovery.ignore-unclaimed-state"] == "true"
    assert asked[1][1] == {"execution.state-recovery.path": "savepoints/x"}


def test_a_run_without_a_file_is_the_savepoints_own_job(asked, tmp_path):
    folder = tmp_path / "it's"
    folder.mkdir()
    words = ["run", "-s", str(folder), "--keep-state", "a", "--keep-state", "b"]
    result = CliRunner().invoke(main.app, words)
    assert result.exit_code == 0, result.output
    assert asked == [
        (
            "plan",
            {
                "sql": f"EXECUTE PLAN '{folder.as_uri().replace(chr(39), chr(39) * 2)}'",
                "execution.state-recovery.path": folder.as_uri(),
                "execution.state-recovery.keep-state": "a;b",
            },
        )
    ]
    refused = CliRunner().invoke(main.app, ["run", "-s", str(tmp_path / "nothing")])
    assert "no such savepoint" in str(refused.exception)
    assert "there is nothing to run" in str(CliRunner().invoke(main.app, ["run"]).exception)


def test_local_paths_are_named_without_dots(monkeypatch, tmp_path, asked):
    inside = tmp_path / "in"
    inside.mkdir()
    taken = tmp_path / "sp" / "savepoint-1"
    taken.mkdir(parents=True)
    monkeypatch.chdir(inside)
    dotted = "../sp/savepoint-1"
    assert savepoint.locate(dotted, None) == taken.as_uri()
    assert savepoint.locate(f"file://{inside}/{dotted}", None) == taken.as_uri()
    assert savepoint.addressed(dotted) == str(taken)
    assert savepoint.addressed(f"{inside}/../new") == str(tmp_path / "new")
    for same in ("sp/savepoint-1", f"{taken}/", "s3://b/x", "file:///x/y"):
        assert savepoint.addressed(same) == same
    (inside / "job.sql").write_text("SELECT 1;")
    CliRunner().invoke(main.app, ["run", "-s", dotted, "job.sql"])
    assert asked[0][1]["execution.state-recovery.path"] == taken.as_uri()


def test_every_command_sends_them_so(monkeypatch, tmp_path):
    sent: list[tuple[str, Any]] = []

    class Client:
        def __init__(self, url, **more): ...
        def __enter__(self):
            return self

        def __exit__(self, *_): ...
        def savepoint(self, job_id, directory):
            sent.append(("savepoint", directory))

        def stop(self, job_id, directory, *, drain):
            sent.append(("stop", directory))

        def dispose_savepoint(self, path):
            sent.append(("dispose", path))
            return {"operation": {}}

        def wait(self, job_id):
            return {"state": "FINISHED"}

    monkeypatch.setattr(savepoint, "ClusterClient", Client)
    monkeypatch.setattr(savepoint, "find_job", lambda client, start: start)
    monkeypatch.setattr(savepoint, "_follow", lambda *_: "s")
    monkeypatch.chdir(tmp_path)
    for words in (
        ["savepoint", "4f", "./to"],
        ["stop", "-p", "x/../to", "4f"],
        ["savepoint", "dispose", "./to"],
    ):
        assert CliRunner().invoke(main.app, words).exit_code == 0
    to = str(tmp_path / "to")
    assert sent == [("savepoint", to), ("stop", to), ("dispose", to)]


@pytest.mark.parametrize(
    ("known", "text"),
    [
        ({}, "savepoint: waiting for its turn"),
        ({"acknowledged": 1, "total": 4, "size": 2_500_000}, "savepoint: 1 of 4 subtasks, 2.5 MB"),
        ({"acknowledged": 4, "total": 4, "size": 1}, "savepoint: 4 of 4 subtasks, 0.0 MB; being stored"),
    ],
)
def test_progress(known, text):
    assert savepoint.progress(known, "savepoint") == text


def test_what_was_checked_in_words():
    assert "blocks of state were not read (--verify)" in savepoint.checked(None)
    assert savepoint.checked(Verified(objects=2, blocks=1_234, bytes=5_000_000)) == (
        "checked: the manifest, and all 1,234 blocks (5,000,000 bytes) of 2 objects"
    )


def test_a_difference_in_words(capsys):
    sums = Mapped(uid="u1", name="sums", states=("value/n (keyed, 5 rows)",), rows=5)
    savepoint.print_difference(
        Difference(mapped=(sums,), dropped=(sums,), problems=("parallelism 9 is more",))
    )
    out = capsys.readouterr().out
    assert "maps: 1 operators\n  u1  sums\n    value/n (keyed, 5 rows)" in out
    assert "is new: nothing" in out
    assert "does not fit: parallelism 9 is more" in out
    assert "--allow-non-restored-state" in out


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"keys": [["user", "STRING"]], "columns": [["n", "BIGINT"]]}, "user STRING → n BIGINT"),
        ({"value": "BIGINT"}, "BIGINT"),
        ({}, ""),
    ],
)
def test_schemas(schema, text):
    assert savepoint.types_of(schema) == text


@pytest.mark.parametrize(
    ("stored", "inline", "text"),
    [
        (0, 2, "in the manifest itself; no object beside it is needed"),
        (1, 0, "in 1 object"),
        (2, 1, "in the manifest and 2 objects"),
    ],
)
def test_where_the_state_of_a_savepoint_lies(stored, inline, text):
    """State up to 64 KiB a subtask lies in the manifest: 0 objects beside it are no fault."""
    parts = [{"key": f"./k{n}"} for n in range(stored)] + [{"inline": b"x"}] * inline
    handles = tuple(
        StateHandle(vertex_id="v", subtask_index=n, checkpoint_id=1, **part) for n, part in enumerate(parts)
    )
    vertex = VertexState(
        vertex_id="v", name="v", uids=("u",), parallelism=len(parts), max_parallelism=128, handles=handles
    )
    manifest = CheckpointManifest(
        job_id="j", job_name="j", checkpoint_id=1, kind="savepoint", timestamp_ms=0, job_attempt=1, epoch=1,
        vertices=(vertex,),
    )  # fmt: skip
    assert savepoint.places(manifest) == text


async def test_what_lies_in_a_folder_of_savepoints(tmp_path):
    store = open_store("file:///")
    folder = tmp_path.as_uri()
    assert await savepoint.savepoints_in(store, folder) == []
    for name in ("savepoint-4f1c-9-2", "savepoint-4f1c-10-2"):
        await store.put(f"{folder}/{name}/manifest", b"{}")
        await store.put(f"{folder}/{name}/00000-v", b"x")
    assert await savepoint.savepoints_in(store, folder) == [
        f"{folder}/savepoint-4f1c-9-2",
        f"{folder}/savepoint-4f1c-10-2",
    ]


def test_inspecting_a_folder_of_savepoints_names_them(tmp_path):
    there = tmp_path / "savepoint-4f1c-9-2"
    there.mkdir()
    (there / "manifest").write_text("{}")
    with pytest.raises(SpecError, match="holds some") as refused:
        savepoint.inspect(str(tmp_path), None, "table")
    assert there.as_uri() in str(refused.value)
    (there / "nothing").mkdir()
    with pytest.raises(SnapshotError):
        savepoint.inspect(str(there / "nothing"), None, "table")


def test_a_damaged_savepoint_is_said_to_be_that(tmp_path):
    (tmp_path / "manifest").write_text("hello")
    with pytest.raises(SnapshotError, match="manifest"):
        savepoint.inspect(str(tmp_path), None, "table")


def test_a_path_of_this_machine_is_no_key_of_the_clusters_store(tmp_path):
    with pytest.raises(SpecError, match="no such savepoint"):
        savepoint.inspect(str(tmp_path / "nosuch"), "http://127.0.0.1:9", "table")


def test_a_disposal_that_failed_is_the_error_that_it_was(monkeypatch):
    missing = SnapshotError("the savepoint is not there", where="p", remedy="name another")

    class Client:
        def __init__(self, *_: Any, **__: Any) -> None: ...
        def __enter__(self) -> Client:
            return self

        def __exit__(self, *_: Any) -> None: ...
        def dispose_savepoint(self, path: str) -> dict[str, Any]:
            cause = {"class": missing.code, "stack-trace": str(missing), "error": missing.to_dict()}
            return {"operation": {"failure-cause": cause}}

    monkeypatch.setattr(savepoint, "ClusterClient", Client)
    with pytest.raises(SnapshotError) as failed:
        savepoint.dispose("p", "http://c")
    assert str(failed.value) == str(missing)


def test_a_disposal_says_what_was_not_readable(monkeypatch, capsys):
    class Client:
        def __init__(self, *_: Any, **__: Any) -> None: ...
        def __enter__(self) -> Client:
            return self

        def __exit__(self, *_: Any) -> None: ...
        def dispose_savepoint(self, path: str) -> dict[str, Any]:
            return {"operation": {"warning": f"the manifest of {path} cannot be read"}}

    monkeypatch.setattr(savepoint, "ClusterClient", Client)
    savepoint.dispose("p", "http://c")
    assert capsys.readouterr().out == "warning: the manifest of p cannot be read\ndeleted p\n"
