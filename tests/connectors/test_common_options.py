"""What every table may say, whatever its connector: on-error, and paths that mean the same
in every process."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.connectors.filesystem.opening import open_files
from penstock.connectors.filesystem.paths import absolute_path, working_folder
from penstock.connectors.registry import resolved_options, validate_table
from penstock.errors import ConnectorError
from penstock.types import Schema
from penstock.types.logical import IntType

SCHEMA = Schema.of(("a", IntType()))


@pytest.mark.parametrize("policy", ["fail", "skip", "dead-letter"])
def test_on_error_is_known_to_every_connector(policy: str) -> None:
    validate_table(SCHEMA, {"connector": "datagen", "on-error": policy}, role="source")
    validate_table(SCHEMA, {"connector": "print", "on-error": policy}, role="sink")


def test_an_unknown_policy_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConnectorError) as err:
        validate_table(SCHEMA, {"connector": "datagen", "on-error": "dead_letter"}, role="source", where="t")
    assert err.value.expected == "fail | skip | dead-letter"
    assert err.value.remedy is not None
    assert "'dead-letter'" in err.value.remedy
    assert err.value.where is not None
    assert err.value.where.startswith("t")


def test_an_unknown_connector_names_the_table() -> None:
    with pytest.raises(ConnectorError) as err:
        validate_table(SCHEMA, {"connector": "nat"}, role="source", where="table 't' (line 3, column 1)")
    assert err.value.where == "table 't' (line 3, column 1)"


def test_relative_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = {"connector": "filesystem", "path": "in/*.json", "format": "json"}
    assert resolved_options(options, where="t")["path"] == f"{tmp_path}/in/*.json"
    for path in ("/a/b", "s3://bucket/a", "file:///a/b"):
        assert absolute_path(path, where="t") == path


def test_relative_paths_are_refused_where_the_users_folder_is_unknown() -> None:
    token = working_folder.set(None)
    try:
        with pytest.raises(ConnectorError, match="relative path") as err:
            absolute_path("in/x.json", where="table 't', option 'path'")
    finally:
        working_folder.reset(token)
    assert err.value.where == "table 't', option 'path'"
    assert err.value.remedy is not None
    assert "penstock sql -f" in err.value.remedy


def test_what_may_not_be_read_is_said_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.json").write_text("{}")
    files, path = open_files(str(folder), {})
    assert len(files.list(path)) == 1
    with pytest.raises(ConnectorError, match="cannot be read") as err:
        files.open_input(str(folder / "gone.json"))
    assert err.value.got == "No such file or directory"
    monkeypatch.setattr("os.access", lambda *_: False)  # tests may run as root
    for pattern in (path, f"{path}/*.json"):
        with pytest.raises(ConnectorError, match="cannot be read") as err:
            files.list(pattern)
        assert err.value.got == "permission denied"
