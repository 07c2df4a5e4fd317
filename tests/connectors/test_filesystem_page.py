"""The page of the connector 'filesystem' against the code: its tables of options, metadata columns and compressions."""

import re

import pytest

from penstock.connectors.filesystem.settings import METADATA, OPTIONS
from penstock.connectors.lookup import LOOKUP_OPTIONS
from penstock.connectors.registry import validate_table
from penstock.errors import ConnectorError
from penstock.formats.compressed import EXTENSIONS
from penstock.types import Schema
from penstock.types import logical as t
from tests.connectors.pages import Page

PAGE = Page("filesystem")
#: Set by the planner, or on the page of lookups.
ELSEWHERE = {
    "sink.overwrite", "sink.truncate", "sink.static-partition", "partition.keys", "partition.filter",
    *(option.key for option in LOOKUP_OPTIONS),
}  # fmt: skip


def test_every_option_is_in_the_table_with_its_default() -> None:
    PAGE.compare(OPTIONS, ELSEWHERE)


def test_every_metadata_column_is_in_the_table_with_its_type() -> None:
    found = {
        key.strip("`"): type_.strip("`") for key, type_, _ in PAGE.table("| metadata column | type | is |")
    }
    assert found == {key: f"{type_.sql()} NOT NULL" for key, type_ in METADATA.items()}


def test_every_extension_of_a_compressed_file_is_in_the_table() -> None:
    rows = PAGE.table("| extension | compression |")
    assert {name for keys, _ in rows for name in re.findall(r"`\.(\w+)`", keys)} == set(EXTENSIONS)


@pytest.mark.parametrize("option", PAGE.refused())
def test_an_option_of_flink_that_the_page_refuses_is_refused_by_name(option: str) -> None:
    given = {"connector": "filesystem", "path": "/x", "format": "json", option: "1"}
    for role in ("source", "sink"):
        with pytest.raises(ConnectorError, match=re.escape(option)):
            validate_table(Schema.of(("a", t.IntType())), given, role=role, where="table 't'")
