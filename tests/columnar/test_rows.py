"""Rows as functions see them."""

from __future__ import annotations

import copy
import pickle

import pytest

from penstock.columnar.rows import Row, make_row
from penstock.errors import SpecError, UnsupportedError
from penstock.types.batch import RowKind


def test_fields_by_position_by_name_and_as_attributes() -> None:
    row = Row(kind=1, name="x")
    assert (row[0], row["kind"], row.kind) == (1, 1, 1)
    assert (row["name"], row.name, row[-1]) == ("x", "x", "x")
    assert (list(row), len(row), row == (1, "x")) == ([1, "x"], 2, True)
    assert row.as_dict() == {"kind": 1, "name": "x"}
    assert row.get_fields_by_names(["name"]) == ["x"]
    assert repr(row) == "Row(kind=1, name='x')"
    with pytest.raises(SpecError, match="no field 'nmae'"):
        row["nmae"]


def test_names_that_are_methods_or_no_identifiers() -> None:
    row = make_row(("count", "a b", "names"), (1, 2, 3))
    assert (row["count"], row.count, row["a b"], row.names) == (1, 1, 2, 3)


def test_isinstance_and_templates() -> None:
    person = Row("name", "age")
    assert isinstance(person("Ada", 36), Row)
    assert person("Ada", 36).age == 36
    assert isinstance(Row(1, 2), Row)
    with pytest.raises(SpecError, match="do not fit"):
        person("Ada")


def test_kinds_travel() -> None:
    row = Row.of_kind(RowKind.DELETE, id=1)
    for other in (row, pickle.loads(pickle.dumps(row)), copy.deepcopy(row)):
        assert (other.get_row_kind(), other.id) == (RowKind.DELETE, 1)
    assert pickle.loads(pickle.dumps(Row(1, 2))) == (1, 2)


def test_the_fields_of_a_row_do_not_change() -> None:
    row = Row(a=1)
    with pytest.raises(UnsupportedError, match="does not change"):
        row["a"] = 2


def test_a_row_gets_another_kind_and_other_names() -> None:
    row = Row(1, 2)
    row.set_row_kind(RowKind.DELETE)
    row.set_field_names(["a", "b"])
    assert (row, row.a, row.get_row_kind()) == (Row(1, 2), 1, RowKind.DELETE)
    with pytest.raises(SpecError, match="do not fit"):
        row.set_field_names(["a"])
    row.set_row_kind(RowKind.INSERT)
    assert type(row) is type(Row(a=1, b=2))
