from __future__ import annotations

import json

import msgspec
import pytest

from penstock.errors import SpecError
from penstock_services.dispatcher.spec import MAX_YAML_BYTES, graph_of, parse_spec
from tests.services.jobmanager.graphs import pipeline


@pytest.mark.parametrize(
    "text",
    [
        b'{"sql": "SELECT 1", "config": {"parallelism.default": 2}}',
        b"sql: SELECT 1\nconfig:\n  parallelism.default: 2\n",
        b"# a job\nsql: |\n  SELECT 1\nconfig: {parallelism.default: '2'}\n",
    ],
)
def test_json_and_yaml(text):
    spec = parse_spec(text)
    assert spec.sql.strip() == "SELECT 1"
    assert str(spec.config["parallelism.default"]) == "2"


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        (b'{"sql": "SELECT 1",\n "name" "x"}', "line 2, column 9", "not valid JSON"),
        (b"sql: SELECT 1\nname: [a\nargs: x", "line 3", "not valid YAML"),
        (b"sql: SELECT 1\n  name: x", "line 2", "not valid YAML"),
        (b"a: &x [1]\nb: *x", "line 2, column 4", "aliases"),
        (b"", None, "no fields"),
        (b"just text", None, "no fields"),
        (b"\xff\xfe", None, "not text"),
        (b'{"sqll": "SELECT 1"}', "field 'sqll'", "did you mean 'sql'"),
        (b'{"sql": 1}', "field 'sql'", "str | null"),
        (b'{"sql": "SELECT 1", "parallelism": "4"}', "field 'parallelism'", "int | null"),
        (b'{"sql": "SELECT 1", "args": [1]}', "field 'args[0]'", "str"),
        (b'{"sql": "SELECT 1", "config": {"a": {"b": 1}}}', "field 'config[...]'", ""),
        (b'{"sql": "SELECT 1", "parallelism": 0}', "field 'parallelism'", "1 to 32768"),
        (b'{"sql": "SELECT 1", "python": "x"}', None, "'sql' and 'python'"),
        (b'{"name": "x"}', None, "none of them"),
        (b'{"sql": "  "}', "field 'sql'", "empty"),
        (b'{"sql": "SELECT 1", "job_id": "a.b"}', "field 'job_id'", "32 hexadecimal digits"),
        (b'{"sql": "SELECT 1", "job_id": "my-job"}', "field 'job_id'", "md5sum"),
        (
            b'{"sql": "SELECT 1", "job_id": "ABCDEF0123456789ABCDEF0123456789"}',
            "field 'job_id'",
            "small letters",
        ),
        (
            b'{"sql": "SELECT 1", "config": {"execution.checkpointing.interval": "soon"}}',
            "configuration key 'execution.checkpointing.interval'",
            "not a duration",
        ),
        (
            b'{"sql": "SELECT 1", "config": {"execution.checkpointing.num-retained": 0}}',
            "configuration key 'execution.checkpointing.num-retained'",
            "1 or more",
        ),
        (
            b'{"sql": "SELECT 1", "config": {"heartbeat.interval": "5 s"}}',
            "configuration key 'heartbeat.interval'",
            "the cluster's",
        ),
    ],
)
def test_what_is_wrong_is_named(text, where, says):
    with pytest.raises(SpecError) as caught:
        parse_spec(text)
    assert says in str(caught.value)
    if where is not None:
        assert (caught.value.where or "").startswith(where)


DEEP = 40_000


@pytest.mark.parametrize(
    "text",
    [
        b"[" * DEEP + b"]" * DEEP,
        b"[" * DEEP,
        b"{" * DEEP,
        b"a: " + b"[" * DEEP,
        b"- " * DEEP + b"a",
        b'{"args": ' + b"[" * DEEP + b"]" * DEEP + b"}",
        b'{"a":' * DEEP + b"1" + b"}" * DEEP,
        b'{"config": ' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
    ],
    ids=["brackets", "open", "braces", "yaml value", "yaml list", "json list", "json", "json config"],
)
def test_deep_nesting_is_refused(text):
    with pytest.raises(SpecError, match=r"nested too deeply|not valid (JSON|YAML)"):
        parse_spec(text)


@pytest.mark.parametrize("part", ["job_graph", "args", "config"])
def test_nesting_that_json_can_hold_is_refused_where_it_has_no_place(part):
    value = b"[" * 900 + b"]" * 900

    def read():
        return graph_of(parse_spec(b'{"' + part.encode() + b'": {"vertices": ' + value + b"}}").job_graph)

    with pytest.raises(SpecError):
        read()


@pytest.mark.parametrize(
    "text",
    [
        b'{"sql": ' + b"9" * 5_000 + b"}",
        b"sql: 9999-99-99\n",
        b"sql: " + b"9" * 5_000 + b"\n",
        b"sql: 2000-02-31 99:99:99\n",
        b"sql: 1:" + b"9:" * 5_000 + b"9\n",
        b"sql: !!python/object/apply:os.getpid []\n",
        b'{"sql": "\\ud800"}',
        b'{"sql": NaN}',
        b"? [a]\n: b\n",
        b"1: a\n",
        b"sql: \x00",
        b"\xef\xbb\xbfsql: 1",
    ],
)
def test_values_that_nobody_means_are_refused(text):
    with pytest.raises(SpecError):
        parse_spec(text)


def test_yaml_is_read_up_to_a_size():
    with pytest.raises(SpecError, match="too large for YAML"):
        parse_spec(b"# " + b"x" * MAX_YAML_BYTES + b"\nsql: SELECT 1")


def test_a_job_graph_survives_the_way_through_json():
    graph = pipeline()
    tree = json.loads(msgspec.json.encode(graph))
    assert graph_of(tree) == graph


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.pop("vertices"), "vertices"),
        (lambda t: t.update(vertices=[]), "no vertices"),
        (lambda t: t["vertices"][0].update(parallelism="2"), "vertices[0].parallelism"),
        (lambda t: t["vertices"][0].update(parallelism=129), "out of bounds"),
        (lambda t: t["vertices"].reverse(), "topological order"),
        (lambda t: t["edges"][0].update(target="nowhere"), "'nowhere'"),
        (lambda t: t["vertices"].append(t["vertices"][0]), "same id"),
        (lambda t: t.update(config={"execution.chekpointing.interval": "1 s"}), "did you mean"),
    ],
)
def test_a_job_graph_that_cannot_run_is_refused(change, says):
    tree = json.loads(msgspec.json.encode(pipeline()))
    change(tree)
    with pytest.raises(SpecError) as caught:
        graph_of(tree)
    assert says in str(caught.value)
