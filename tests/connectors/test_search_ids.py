"""Ids of documents: different keys have different ids, and Flink's ids where those tell keys apart."""

from __future__ import annotations

import itertools

import pytest

from penstock.connectors.registry import validate_table
from penstock.connectors.search.ids import DocumentIds
from penstock.errors import ConnectorError
from penstock.types import Batch, Schema
from penstock.types import logical as t

S, N, D, F, B = (
    t.VarCharType(), t.IntType(), t.DateType(), t.DoubleType(), t.VarBinaryType(),
)  # fmt: skip


def ids(types, rows, delimiter="_"):
    schema = Schema.of(*((f"c{i}", x) for i, x in enumerate(types)))
    return DocumentIds(delimiter, list(types), "test").of(Batch.of(schema, rows).columns)


@pytest.mark.parametrize("delimiter", ["_", "__", "ab", "-", "%", " "])
@pytest.mark.parametrize("types", [(S, S), (S, S, S), (S, N), (N, N), (B, S)])
def test_different_keys_have_different_ids(types, delimiter):
    texts = ["", "a", "b", "ab", "_", "__", "a_", "_a", "\\", "\\_", "-1", "1-", "%", " ", "a b"]
    values = {S: texts, N: [-11, -1, 1, 11], B: [x.encode() for x in texts]}
    rows = list(itertools.islice(itertools.product(*(values[x] for x in types)), 4000))
    made = ids(types, rows, delimiter)
    assert len(set(made)) == len(rows)


@pytest.mark.parametrize(
    ("types", "row", "id_"),
    [
        ((S,), ("a_b\\c",), "a_b\\c"),
        ((S, N), ("a_b", 7), "a_b_7"),
        ((S, D, N), ("a_b", None, 7), None),
        ((S, S), ("a", "b"), "a_b"),
        ((S, S), ("a_b", "c"), "a\\_b_c"),
        ((S, S), ("a", "b_c"), "a_b\\_c"),
        ((S, S), ("a\\", "b"), "a\\\\_b"),
        ((F, N), (1.5, 2), "1.5_2"),
    ],
)
def test_an_id_is_flinks_where_it_tells_keys_apart(types, row, id_):
    assert ids(types, [row]) == [id_]


@pytest.mark.parametrize("delimiter", ["", "\\", "a\\"])
def test_a_delimiter_that_cannot_tell_keys_apart_is_refused(delimiter):
    with pytest.raises(ConnectorError, match="cannot tell two keys apart"):
        ids((N, N), [], delimiter)
    assert ids((S,), [("x",)], delimiter) == ["x"]


def test_it_is_refused_at_submission():
    schema = Schema.of(("a", N), ("b", N))
    options = {
        "connector": "opensearch",
        "hosts": "http://localhost:9200",
        "index": "i",
        "document-id.key-delimiter": "",
    }
    with pytest.raises(ConnectorError, match="cannot tell two keys apart"):
        validate_table(schema, options, role="sink", primary_key=("a", "b"))
