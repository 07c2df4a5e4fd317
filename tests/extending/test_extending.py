"""docs/extending: the code of the pages passes the kits, and works in a job as an installed package."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys

import pytest

from penstock.api import Sink, StreamExecutionEnvironment
from penstock.api.planner import plan_spec
from penstock.connectors.registry import CONNECTORS, get_connector
from penstock.errors import ConnectorError, PenstockError, SpecError, SqlError
from penstock.formats import get_format
from penstock.leases import open_leases
from penstock.messages.cluster import JobSpec
from penstock.providers import open_provider
from penstock.sql.session import SqlSession
from penstock.state.backends import make_backend
from penstock.state.blocks import KeyLayout
from penstock.store import open_store
from penstock.testing import Conformance, run_graph, run_kit


@pytest.mark.parametrize(
    ("name", "of"),
    [
        pytest.param("journal", "TestJournal", id="journal"),
        # Each check starts processes. test_a_real_cluster_runs_the_job has the same connector in make test.
        pytest.param("journal", "TestPolled", id="journal-in-helpers", marks=pytest.mark.long),
        *(
            pytest.param(name, "", id=name)
            for name in ("pairs", "stores", "leases", "fleet", "functions", "state", "debounce")
        ),
    ],
)
def test_what_a_page_shows_passes_its_kit(acme, name, of):
    """All kits of a page, or those whose names begin so."""
    path = acme / "tests" / f"test_{name}.py"
    spec = importlib.util.spec_from_file_location(f"acme_test_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kits = [
        x
        for x in vars(module).values()
        if isinstance(x, type) and issubclass(x, Conformance) and x.__module__ == module.__name__
    ]
    assert kits
    if of:
        kits = [kit for kit in kits if kit.__name__.startswith(of)]
        assert len(kits) == 2  # a source and a sink
    for kit in kits:
        assert kit.checks()
        assert [str(f) for f in run_kit(kit)] == []


def test_each_thing_is_found_by_its_name(acme, tmp_path):
    assert get_connector("acme-journal").name == "acme-journal"
    assert get_format("acme-pairs").name == "acme-pairs"
    assert type(open_store(f"acme-sqlite://{tmp_path}/s.db").base).__name__ == "SqliteStore"
    assert type(open_leases(f"acme-sqlite://{tmp_path}/l.db")).__name__ == "SqliteLeases"
    assert type(open_provider("acme-fleet", "c", {})).__name__ == "FleetProvider"


def test_import_paths_need_no_entry_point(acme):
    assert get_connector("python:acme.journal:JournalConnector").name == "acme-journal"
    assert get_format("python:acme.pairs:PairsFormat").name == "acme-pairs"


SCRIPT = """
CREATE TABLE journal (id BIGINT, name STRING) WITH ('connector' = 'acme-journal', 'path' = '{folder}/in', 'format' = 'acme-pairs');
CREATE TABLE copied (who STRING, many BIGINT) WITH ('connector' = 'acme-journal', 'path' = '{folder}/out', 'format' = 'acme-pairs');
INSERT INTO copied SELECT initials(name), id * 2 FROM journal WHERE id > 0;
"""


def made(folder):
    for name in ("in", "out"):
        (folder / name).mkdir()
    for n in range(3):
        lines = [f"id={n * 10 + i};name=Ada%20L{i}" for i in range(10)]
        (folder / "in" / f"{n}.log").write_text("\n".join(lines) + "\n")


def test_a_job_uses_connector_format_and_function(acme, tmp_path):
    made(tmp_path)
    results = SqlSession().run_script(SCRIPT.format(folder=tmp_path))
    run_graph(next(r.job for r in results if r.job is not None).job_graph)
    assert written(tmp_path) == sorted(f"who=AL;many={2 * i}" for i in range(1, 30))


def written(folder):
    return sorted(x for p in (folder / "out").glob("*.log") for x in p.read_text().splitlines())


def test_a_program_uses_the_operator(acme):
    from acme.presses import pressed

    env = StreamExecutionEnvironment.get_execution_environment()
    bounces = [("a", 0), ("b", 1_000), ("a", 20_000), ("a", 60_000), ("b", 90_000), ("a", 110_000)]
    pressed(env, bounces).sink_to(Sink.connector("collect"))
    graph = env.job_graph("presses")
    assert "keeps the time of a key's last row" in graph.plan
    assert sorted(run_graph(graph).rows) == [("a", 0), ("a", 110_000), ("b", 1_000), ("b", 90_000)]


VISITS = """
from penstock.api import KeyedProcessFunction, Sink, StreamExecutionEnvironment, Types, ValueStateDescriptor


class CountVisits(KeyedProcessFunction):
    def open(self, runtime_context):
        self.visits = runtime_context.get_state(ValueStateDescriptor("visits", Types.LONG()))

    def process_element(self, value, ctx):
        n = (self.visits.value() or 0) + 1
        self.visits.update(n)
        yield value[0], n


env = StreamExecutionEnvironment.get_execution_environment()
rows = [(i % 7, i) for i in range(70)]
(
    env.from_collection(rows, Types.ROW_NAMED(["who", "i"], [Types.LONG(), Types.LONG()]))
    .key_by(lambda row: row[0], key_type=Types.LONG())
    .process(CountVisits(), output_type=Types.ROW_NAMED(["who", "n"], [Types.LONG(), Types.LONG()]))
    .sink_to(Sink.connector("acme-journal", {"path": "PATH", "format": "json"}))
)
env.execute("visits")
"""


COUNTED = [(who, n) for who in range(7) for n in range(1, 11)]


def visits(folder, backend):
    return JobSpec(python=VISITS.replace("PATH", str(folder)), config={"state.backend.type": backend})


def visited(folder):
    lines = [json.loads(x) for p in folder.glob("*.log") for x in p.read_text().splitlines()]
    return sorted((row["who"], row["n"]) for row in lines)


@pytest.mark.parametrize(
    "name", ["acme-counting", "acme.state:open_backend", "python:acme.state:open_backend"]
)
def test_a_job_names_its_state_backend(acme, tmp_path, monkeypatch, name):
    from acme.state import CountingStateBackend

    made = []
    monkeypatch.setattr(
        CountingStateBackend, "close", lambda self: made.extend(s.table for s in self._registered.values())
    )
    run_graph(plan_spec(visits(tmp_path, name)))
    assert sum(table.writes for table in made) == 70
    assert visited(tmp_path) == COUNTED


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("acme-countin", "unknown state backend"),
        ("acme.state:nothing", "cannot be imported"),
        ("acme.state:CountingTable.x y", "neither a name nor an import path"),
    ],
)
def test_a_state_backend_that_is_not_there_is_refused_when_planned(acme, tmp_path, name, error):
    with pytest.raises(SpecError, match=error):
        plan_spec(visits(tmp_path, name))


def test_what_gives_no_state_backend_is_refused(declare):
    declare("odd-state", {}, odd_state="def factory(space, context):\n    return {}\n")
    with pytest.raises(SpecError, match="gives no state backend") as err:
        make_backend("odd_state:factory", KeyLayout((), 128), now_ms=int, uid="op")
    assert err.value.got == "an object of type dict"


@pytest.mark.cluster
def test_a_real_cluster_keeps_state_in_the_packages_backend(acme, tmp_path, monkeypatch):
    """The job takes checkpoints; its result is that of the built-in backends."""
    from penstock.api.client import ClusterClient
    from penstock.embedded.cluster import EmbeddedCluster

    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(acme), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
    )
    with EmbeddedCluster(taskmanagers=1, slots=2) as cluster, ClusterClient(cluster.rest_url) as client:
        spec = {
            "python": VISITS.replace("PATH", str(tmp_path)),
            "config": {
                "state.backend.type": "acme.state:open_backend",
                "execution.checkpointing.interval": "300 ms",
            },
        }
        job_id = client.submit(spec)
        assert client.wait(job_id)["state"] == "FINISHED"
        spec["config"]["state.backend.type"] = "acme-count"
        with pytest.raises(PenstockError, match="unknown state backend 'acme-count'"):
            client.submit(spec)
    assert visited(tmp_path) == COUNTED


PACED_VISITS = (
    VISITS.split("env = ")[0]
    + """
env = StreamExecutionEnvironment.get_execution_environment()
env.execute_sql(
    "CREATE TABLE clicks (i BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '300', "
    "'fields.i.kind' = 'sequence', 'fields.i.start' = '0', 'fields.i.end' = '4499')"
)
(
    env.from_table("clicks")
    .key_by(lambda row: row[0] % 7, key_type=Types.LONG())
    .process(CountVisits(), output_type=Types.ROW_NAMED(["who", "n"], [Types.LONG(), Types.LONG()]))
    .sink_to(Sink.connector("filesystem", {"path": "PATH", "format": "json"}))
)
env.execute("visits")
"""
).replace("yield value[0], n", "yield value[0] % 7, n")


@pytest.mark.cluster
def test_state_in_the_packages_backend_outlives_a_killed_task_manager(acme, tmp_path, monkeypatch):
    """The job is restored from its checkpoint: every visit is counted once."""
    from penstock.api.client import ClusterClient
    from penstock.embedded.cluster import EmbeddedCluster
    from tests.e2e.support import story_of, until_true

    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(acme), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
    )
    out = tmp_path / "out"
    with EmbeddedCluster(taskmanagers=1, slots=2) as cluster, ClusterClient(cluster.rest_url) as client:
        config = {
            "state.backend.type": "acme.state:open_backend",
            "execution.checkpointing.interval": "300 ms",
        }
        spec = {"python": PACED_VISITS.replace("PATH", str(out)), "parallelism": 2, "config": config}
        job_id = client.submit(spec)
        until_true(
            lambda: client.checkpoints(job_id).get("counts", {}).get("completed", 0) >= 2,
            "two completed checkpoints",
            lambda: story_of(client, job_id),
        )
        assert client.job(job_id)["state"] == "RUNNING"
        os.kill(cluster.child("taskmanager-0").pid, signal.SIGKILL)
        job = client.wait(job_id)
        assert job["state"] == "FINISHED"
        assert job["attempt"] >= 2
        assert job["restored-checkpoint"] >= 1
    lines = [json.loads(x) for p in out.rglob("*") if p.is_file() for x in p.read_text().splitlines()]
    want = [(who, n) for who in range(7) for n in range(1, len(range(who, 4_500, 7)) + 1)]
    assert sorted((row["who"], row["n"]) for row in lines) == want


@pytest.mark.cluster
@pytest.mark.parametrize("connector", ["acme-journal", "acme-polled"])
def test_a_real_cluster_runs_the_job(acme, tmp_path, monkeypatch, connector):
    """With readers and writers in the slots, and in helper processes of the slots. The processes of the cluster find the package as an installed one: by the import path alone."""
    from penstock.api.client import ClusterClient
    from penstock.embedded.cluster import EmbeddedCluster

    made(tmp_path)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(acme), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
    )
    with EmbeddedCluster(taskmanagers=1, slots=2) as cluster, ClusterClient(cluster.rest_url) as client:
        script = SCRIPT.format(folder=tmp_path).replace("acme-journal", connector)
        job_id = client.submit({"sql": script})
        assert client.wait(job_id)["state"] == "FINISHED"
    assert written(tmp_path) == sorted(f"who=AL;many={2 * i}" for i in range(1, 30))


# -- the registers -----------------------------------------------------------------------------


def test_a_name_that_two_packages_provide_is_refused_and_names_both(declare):
    declare("one-package", {"penstock.connectors": {"twice": "one:X"}})
    declare("another", {"penstock.connectors": {"twice": "two:Y"}}, version="2.5")
    assert "twice" in CONNECTORS.names()
    with pytest.raises(ConnectorError, match="provided twice") as err:
        get_connector("twice")
    assert "one-package 1.0 (one:X)" in err.value.got
    assert "another 2.5 (two:Y)" in err.value.got


def test_a_package_may_not_take_a_name_of_ours(declare):
    declare("greedy", {"penstock.formats": {"json": "greedy:Json"}})
    with pytest.raises(ConnectorError, match="'json' is provided twice") as err:
        get_format("json")
    assert "penstock (penstock.formats.json:JsonFormat) and greedy 1.0" in err.value.got


def test_a_package_that_fails_at_import_fails_only_who_uses_it(declare):
    declare(
        "broken-package",
        {"penstock.connectors": {"broken": "broken_module:X"}},
        broken_module="raise RuntimeError('no licence')",
    )
    assert get_connector("datagen").name == "datagen"
    with pytest.raises(
        ConnectorError, match=r"'broken' of package broken-package 1\.0 cannot be imported"
    ) as err:
        get_connector("broken")
    assert "RuntimeError: no licence" in err.value.got
    sys.modules.pop("broken_module", None)


def test_what_is_no_connector_is_refused(declare):
    declare("odd", {"penstock.connectors": {"odd": "odd_module:X"}}, odd_module="X = 5")
    with pytest.raises(ConnectorError, match="'odd' is no connector") as err:
        get_connector("odd")
    assert "odd_module:X: an object of type int" in err.value.got


def test_an_unknown_way_to_run_is_refused_by_name(declare):
    text = "from penstock.connectors.api import Connector\nclass X(Connector):\n    name = 'far'\n    runs = 'helpers'\n"
    declare("far-package", {"penstock.connectors": {"far": "far_module:X"}}, far_module=text)
    with pytest.raises(ConnectorError, match="a way to run that there is not") as err:
        get_connector("far")
    assert err.value.got == "runs = 'helpers'"
    assert "'helper'" in err.value.remedy


def test_an_unknown_name_says_which_entry_point_would_bring_it():
    with pytest.raises(ConnectorError) as err:
        get_connector("zzz")
    assert "penstock.connectors" in err.value.remedy


def test_a_broken_function_is_named(declare):
    declare("bad-functions", {"penstock.functions": {"half": "no_such_module:half"}})
    with pytest.raises(SqlError, match=r"function 'half' of package bad-functions 1\.0 cannot be imported"):
        SqlSession().execute("SELECT half(1)")


def test_the_options_of_a_foreign_format_are_the_formats(acme, tmp_path):
    (tmp_path / "x.pairs").write_text("id=1\n")
    ddl = "CREATE TABLE t (id BIGINT) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'acme-pairs'{})"
    job = list(SqlSession().run_script(ddl.format(tmp_path, "") + "; SELECT id FROM t"))[-1].job
    assert run_graph(job.job_graph).rows == [(1,)]
    with pytest.raises(PenstockError, match="acme-pairs"):
        list(SqlSession().run_script(ddl.format(tmp_path, ", 'acme-pairs.x' = '1'") + "; SELECT id FROM t"))
