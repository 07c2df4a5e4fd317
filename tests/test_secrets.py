"""Secrets by reference: found in a folder, a file or the environment, and shown nowhere."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from penstock import secrets
from penstock.connectors.base import TableInfo
from penstock.connectors.helper.messages import Open
from penstock.connectors.helper.process import opening
from penstock.errors import ConnectorError, SecretError
from penstock.redaction import without_credentials
from penstock.sql.session import SqlSession
from penstock.types import Schema
from penstock.types import logical as t

SCHEMA = Schema.of(("id", t.BigIntType()))


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (secrets.FOLDER_VARIABLE, secrets.FILE_VARIABLE, secrets.PREFIX_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def folder(tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    (tmp_path / "db").write_text("from-a-folder\n")
    patch.setenv(secrets.FOLDER_VARIABLE, str(tmp_path))


def file(tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    (tmp_path / "all.yaml").write_text("db: 'from-a-file'\n")
    patch.setenv(secrets.FILE_VARIABLE, str(tmp_path / "all.yaml"))


def environment(tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("PENSTOCK_SECRET_db", "from-the-environment")


def prefixed(tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv(secrets.PREFIX_VARIABLE, "MINE_")
    patch.setenv("MINE_db", "from-a-prefix")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (folder, "from-a-folder"),
        (file, "from-a-file"),
        (environment, "from-the-environment"),
        (prefixed, "from-a-prefix"),
    ],
)
def test_a_secret_is_found(place: Any, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place(tmp_path, monkeypatch)
    options = TableInfo(
        SCHEMA, {"password": "secret:db", "url": "x://u:${secret:db}@h/d", "user": "me"}
    ).options
    assert dict(options) == {"password": value, "url": f"x://u:{value}@h/d", "user": "me"}
    assert value not in repr(options)
    assert without_credentials(f"refused: {value}") == "refused: ******"
    assert dict(secrets.unresolved(pickle.loads(pickle.dumps(options))))["password"] == "secret:db"


def test_the_folder_comes_before_the_file_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (folder, file, environment):
        place(tmp_path, monkeypatch)
    assert secrets.resolve("secret:db", where="here") == "from-a-folder"


def test_a_value_that_changes_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    options = secrets.resolved({"password": "secret:db"})
    for value in ("first-one", "second-one"):
        monkeypatch.setenv("PENSTOCK_SECRET_db", value)
        assert options["password"] == value


def test_services_say_where_secrets_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "db").write_text("from-a-service")
    for name in (secrets.FOLDER_VARIABLE, secrets.PREFIX_VARIABLE):
        monkeypatch.setenv(name, "")
    secrets.announce({"secrets.folder": str(tmp_path), "secrets.environment-prefix": "X_"})
    assert secrets.resolve("secret:db", where="here") == "from-a-service"


def test_a_missing_secret_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(tmp_path, monkeypatch)
    file(tmp_path, monkeypatch)
    with pytest.raises(SecretError) as caught:
        secrets.check({"password": "secret:other.one"}, where="connector 'jdbc'")
    assert caught.value.where == "connector 'jdbc', option 'password'"
    assert caught.value.expected == (
        f"'other.one' in the file {tmp_path}/other.one, or the file {tmp_path}/all.yaml, or the environment's "
        "PENSTOCK_SECRET_other_one"
    )


@pytest.mark.parametrize("name", ["", "../etc/passwd", "a b", "/etc/passwd"])
def test_a_name_that_is_a_path_is_refused(name: str) -> None:
    with pytest.raises(SecretError, match="no proper name"):
        secrets.resolve(f"secret:{name}", where="option 'password'")


def test_a_broken_file_is_an_error_that_does_not_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "all.yaml").write_text("db: 'hidden-thing\n: [")
    monkeypatch.setenv(secrets.FILE_VARIABLE, str(tmp_path / "all.yaml"))
    with pytest.raises(SecretError, match="not YAML") as caught:
        secrets.resolve("secret:db", where="here")
    assert "hidden-thing" not in str(caught.value)


def test_a_number_in_the_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "all.yaml").write_text("db: 0123\n")
    monkeypatch.setenv(secrets.FILE_VARIABLE, str(tmp_path / "all.yaml"))
    with pytest.raises(SecretError, match="not a text"):
        secrets.resolve("secret:db", where="here")


def test_a_helper_process_gets_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    class Context:
        job_id, uid, subtask_index, parallelism, attempt = "j", "u", 0, 1, 1
        projection, metadata, pushed, config, on_error, batch_rows = (), (), {}, {}, "fail", 1
        gathered = False

    monkeypatch.setenv("PENSTOCK_SECRET_db", "not-to-be-sent")
    message = opening("reader", "x", TableInfo(SCHEMA, {"password": "secret:db"}), Context())  # type: ignore[arg-type]
    assert isinstance(message, Open)
    assert message.options == {"password": "secret:db"}


DECLARED = """
CREATE TABLE source (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = 'secret:rows');
CREATE TABLE sink (id BIGINT) WITH ('connector' = 'blackhole');
"""


def test_plans_and_statements_hold_the_reference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_SECRET_rows", "918273645")
    session = SqlSession(folder=str(tmp_path))
    shown = [str(r) for r in session.run_script(DECLARED)]
    shown += [str(session.execute(s)) for s in ("SHOW CREATE TABLE source", "EXPLAIN INSERT INTO sink SELECT * FROM source",
              "EXPLAIN JSON_EXECUTION_PLAN INSERT INTO sink SELECT * FROM source")]  # fmt: skip
    session.execute("COMPILE PLAN 'p.json' FOR INSERT INTO sink SELECT * FROM source")
    plan = (tmp_path / "p.json").read_text()
    assert json.loads(plan)
    assert not [text for text in [*shown, plan] if "918273645" in text]
    assert "secret:rows" in plan


PLAIN = """
CREATE TABLE t (id BIGINT) WITH ('connector' = 'opensearch', 'hosts' = 'http://me:not-shown@h', 'index' = 't',
  'username' = 'me', 'password' = 'not-shown');
CREATE TABLE named (id BIGINT) WITH ('connector' = 'opensearch', 'hosts' = 'http://h', 'index' = 't',
  'username' = 'me', 'password' = 'secret:p');
"""


def test_show_create_table_hides_a_password_and_says_what_to_write() -> None:
    session = SqlSession()
    list(session.run_script(PLAIN))
    [(shown,)] = session.execute("SHOW CREATE TABLE t").rows
    assert "not-shown" not in shown
    assert "'password' = '******'" in shown
    assert shown.startswith("-- 'password' is hidden")
    assert "'password' = 'secret:NAME'" in shown
    [(named,)] = session.execute("SHOW CREATE TABLE named").rows
    assert "'password' = 'secret:p'" in named
    assert "--" not in named
    with pytest.raises(ConnectorError, match="stands for a value that is not shown") as caught:
        SqlSession().execute(shown)
    assert "secret:NAME" in str(caught.value)
    SqlSession().execute(named)


def test_set_shows_no_password() -> None:
    session = SqlSession()
    said = session.execute("SET 'user.password' = 'not-shown'").message
    listed = dict(session.execute("SET").rows)
    assert said == "user.password = ******"
    assert listed["user.password"] == "******"
    assert session.config["user.password"] == "not-shown"


def test_a_catalog_keeps_the_password_that_it_does_not_show(tmp_path: Path) -> None:
    def session() -> SqlSession:
        made = SqlSession()
        made.execute(f"CREATE CATALOG house WITH ('type' = 'penstock', 'path' = '{tmp_path}')")
        made.execute("USE CATALOG house")
        return made

    first = session()
    list(first.run_script(PLAIN))
    later = session()
    [(shown,)] = later.execute("SHOW CREATE TABLE t").rows
    assert "not-shown" not in shown
    assert later.catalog.tables["t"].options["password"] == "not-shown"


def test_an_option_that_does_not_exist_shows_no_value() -> None:
    session = SqlSession()
    list(session.run_script(PLAIN.replace("'password'", "'pasword'")))
    with pytest.raises(ConnectorError, match="unknown option 'pasword'") as caught:
        session.execute("EXPLAIN INSERT INTO t VALUES (1)")
    assert "not-shown" not in str(caught.value)


def test_a_missing_secret_fails_at_submission() -> None:
    session = SqlSession()
    list(session.run_script(DECLARED))
    with pytest.raises(ConnectorError, match="there is no secret 'rows'") as caught:
        session.execute("INSERT INTO sink SELECT * FROM source")
    assert "PENSTOCK_SECRET_rows" in str(caught.value)
    assert "line 2" in (caught.value.where or "")
