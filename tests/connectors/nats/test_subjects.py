import pytest

from penstock.connectors.nats.consumer import parse_reply
from penstock.connectors.nats.subjects import SubjectTemplate, covers, overlaps, split_filters
from penstock.errors import ConnectorError
from penstock.types import Batch, Schema
from penstock.types import logical as t


@pytest.mark.parametrize(
    ("a", "b", "overlap", "cover"),
    [
        ("a.b", "a.b", True, True),
        ("a.*", "a.b", True, True),
        ("a.b", "a.*", True, False),
        ("a.*.c", "a.b.*", True, False),
        (">", "a.b", True, True),
        ("a.>", "a", False, False),
        ("a.>", "a.b.c", True, True),
        ("a.*", "a.>", True, False),
        ("a.>", "a.*", True, True),
        ("a.b", "a.c", False, False),
        ("a.b", "a.b.c", False, False),
    ],
)
def test_wildcards(a, b, overlap, cover):
    assert overlaps(a, b) == overlap
    assert overlaps(b, a) == overlap
    assert covers(a, b) == cover


@pytest.mark.parametrize("text", ["a..b", "a b", "a.>.b", ".a"])
def test_what_is_no_subject(text):
    with pytest.raises(ConnectorError, match="no NATS subject"):
        split_filters(text)


def test_a_template_gives_a_subject_a_row():
    schema = Schema.of(("origin", t.VarCharType()), ("n", t.IntType()), ("tags", t.ArrayType(t.IntType())))
    template = SubjectTemplate("board.{origin}.x{n}.end", schema)
    assert template.wildcard == "board.*.x*.end"
    bad = []
    batch = Batch.of(schema, [("JFK", 1, None), ("a.b", 2, None), (None, 3, None), ("LGA", 4, None)])
    subjects = template.subjects(batch, lambda i, err: bad.append((i, str(err))))
    assert subjects == ["board.JFK.x1.end", None, None, "board.LGA.x4.end"]
    assert [i for i, _ in bad] == [1, 2]
    assert "'a.b'" in bad[0][1]
    for text, says in [
        ("b.{orign}", "did you mean 'origin'"),
        ("b.{tags}", "nested"),
        ("b.*", "not to wildcards"),
    ]:
        with pytest.raises(ConnectorError) as caught:
            SubjectTemplate(text, schema)
        assert says in str(caught.value)


def test_both_forms_of_a_delivery_subject():
    assert parse_reply("$JS.ACK.S.C.1.42.7.1700000000000000001.3") == (42, 7, 1700000000000000001, 3)
    assert parse_reply("$JS.ACK.dom.acc.S.C.1.42.7.1700000000000000001.3.rnd") == (
        42,
        7,
        1700000000000000001,
        3,
    )
