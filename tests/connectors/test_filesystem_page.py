"""The page of the connector 'filesystem' against the code: its tables of options, metadata columns and compressions."""

import re
from pathlib import Path

import pytest

from penstock.connectors.filesystem.settings import METADATA, OPTIONS
from penstock.connectors.lookup import LOOKUP_OPTIONS
from penstock.connectors.registry import validate_table
from penstock.errors import ConnectorError
from penstock.formats.compressed import EXTENSIONS
from penstock.types import Schema
from penstock.types import logical as t

PAGE = (Path(__file__).parents[2] / "docs/connectors/filesystem.md").read_text()
#: Set by the planner, or on the page of lookups.
ELSEWHERE = {
    "sink.overwrite", "sink.truncate", "sink.static-partition", "partition.keys", "partition.filter",
    *(option.key for option in LOOKUP_OPTIONS),
}  # fmt: skip


def table(head: str) -> list[list[str]]:
    """The cells of the table below the line ``head``."""
    rows = PAGE.split(head, 1)[1].split("\n\n", 1)[0].strip().splitlines()[1:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip("|"))] for row in rows]


def test_every_option_is_in_the_table_with_its_default() -> None:
    found: dict[str, str] = {}
    for keys, defaults, _ in table("| option | default | meaning |"):
        names = re.findall(r"`([^`]+)`", keys)
        values = [defaults] if len(names) == 1 else [part.strip() for part in defaults.split(",")]
        found |= dict(zip(names, values, strict=True))
    options = {key: option for key, option in OPTIONS.options.items() if key not in ELSEWHERE}
    assert set(found) == set(options)
    for key, option in options.items():
        shown = found[key].strip("`")
        if option.required:
            assert shown == "required", key
        elif option.default in (None, ""):
            assert shown == "–" or shown.startswith("`") or "format" in shown, key
        else:
            parsed = option.parse(shown)
            assert parsed == option.default, key


def test_every_metadata_column_is_in_the_table_with_its_type() -> None:
    found = {key.strip("`"): type_.strip("`") for key, type_, _ in table("| metadata column | type | is |")}
    assert found == {key: f"{type_.sql()} NOT NULL" for key, type_ in METADATA.items()}


def test_every_extension_of_a_compressed_file_is_in_the_table() -> None:
    found = {
        name for keys, _ in table("| extension | compression |") for name in re.findall(r"`\.(\w+)`", keys)
    }
    assert found == set(EXTENSIONS)


def refused_by_the_page() -> list[str]:
    return [key for keys, _ in table("| option | instead |") for key in re.findall(r"`([^`]+)`", keys)]


@pytest.mark.parametrize("option", refused_by_the_page())
def test_an_option_of_flink_that_the_page_refuses_is_refused_by_name(option: str) -> None:
    given = {"connector": "filesystem", "path": "/x", "format": "json", option: "1"}
    for role in ("source", "sink"):
        with pytest.raises(ConnectorError, match=re.escape(option)):
            validate_table(Schema.of(("a", t.IntType())), given, role=role, where="table 't'")
