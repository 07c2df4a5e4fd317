"""The page of the connector 'jdbc' against the code: its table of options, what it refuses, and what it says of the guarantee."""

import re
from pathlib import Path

import pytest

from penstock.connectors.base import TableInfo
from penstock.connectors.jdbc.connector import JdbcConnector
from penstock.connectors.jdbc.server_parts import JdbcServerConnector
from penstock.connectors.jdbc.settings import OPTIONS
from penstock.connectors.lookup import LOOKUP_OPTIONS
from penstock.connectors.registry import validate_table
from penstock.errors import ConnectorError
from penstock.types import Schema
from penstock.types import logical as t
from tests.connectors.pages import Page

PAGE = Page("jdbc")
SCHEMA = Schema.of(("a", t.IntType()))
SERVER = {"url": "jdbc:postgresql://h/db", "table-name": "t"}


def test_every_option_is_in_the_table_with_its_default() -> None:
    PAGE.compare(OPTIONS, {"sink.truncate", "sink.row-change", *(option.key for option in LOOKUP_OPTIONS)})


@pytest.mark.parametrize("option", PAGE.refused())
def test_an_option_of_flink_that_the_page_refuses_is_refused_by_name(option: str, tmp_path: Path) -> None:
    given = {"connector": "jdbc", "url": f"jdbc:sqlite:{tmp_path}/x.db", "table-name": "t", option: "1"}
    for role in ("source", "sink"):
        with pytest.raises(ConnectorError, match=re.escape(option)):
            validate_table(SCHEMA, given, role=role, where="table 't'")


def test_the_directions_and_guarantees_are_those_of_the_code() -> None:
    connector, once = JdbcConnector(), {"sink.delivery-guarantee": "exactly-once"}
    facts = {row[0]: row[1] for row in PAGE.table("| | |")}
    table = TableInfo(SCHEMA, SERVER)
    assert connector.is_bounded(table) == ("source, bounded" in facts["direction"])
    assert connector.sink_modes(table) == ("append", "upsert")
    assert facts["guarantee, source"].startswith(connector.source_guarantee(table))
    assert facts["guarantee, sink"].startswith(connector.sink_guarantee(table))
    assert connector.sink_guarantee(TableInfo(SCHEMA, SERVER | once)) == "exactly-once"
    assert (connector.runs, JdbcServerConnector().runs) == ("native", "helper")
    assert facts["runs"] == "servers in a helper process; SQLite in the slot"
