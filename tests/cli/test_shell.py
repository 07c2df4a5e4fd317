"""The SQL shell: when Enter runs a statement, what is completed, and a session typed into it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from penstock.cli import shell
from penstock.cli.shell import complete_statement, run_shell
from penstock.cli.sql import Runner
from penstock.errors import SqlError
from penstock.sql.session import SqlSession


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("quit", True),
        (" EXIT; ", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT\n 1 ;  ", True),
        ("BEGIN STATEMENT SET; INSERT INTO a SELECT 1;", False),
        ("BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END;", True),
        ("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1;", False),
    ],
)
def test_enter_runs_what_is_complete(text, complete):
    assert complete_statement(text) is complete


class FakeRunner:
    """Takes down what the shell asks for."""

    def __init__(self) -> None:
        self.session = SqlSession()
        self.session.execute("CREATE TABLE bids (auction BIGINT, price INT) WITH ('connector' = 'datagen')")
        self.ran: list[str] = []
        self.cancelled = False

    def run_script(self, text: str, name: str) -> None:
        self.ran.append(text)
        if "wrong" in text:
            raise SqlError("no such thing", where="line 1, column 1")

    def cancel_started(self) -> None:
        self.cancelled = True


def test_a_session_over_several_lines_with_history(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(shell, "HISTORY", tmp_path / "deep" / "history")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    runner = FakeRunner()
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("SELECT\r1;\rSELECT wrong;\rhelp\r")
        keys.send_text("quit\r")
        run_shell(runner)
    assert runner.ran == ["SELECT\n1;", "SELECT wrong;"]
    assert runner.cancelled
    history = list(FileHistory(str(tmp_path / "deep" / "history")).load_history_strings())
    assert history == ["quit", "help", "SELECT wrong;", "SELECT\n1;"]
    output = capsys.readouterr()
    assert "no such thing" in output.out + output.err
    assert "Statements end with ';'" in output.out


def test_words_for_the_client_stand_in_scripts_too(capsys):
    runner = Runner(SimpleNamespace(client=None, defaults=dict), {}, "table")
    runner.run_script("HELP; SET 'parallelism.default' = '2'; CLEAR; QUIT; SELECT * FROM nowhere", "-e")
    printed = capsys.readouterr().out
    assert "Statements end with ';'" in printed
    assert "parallelism.default = 2" in printed
