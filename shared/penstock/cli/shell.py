"""The interactive shell of ``penstock sql``: history, completion, statements of several lines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.errors import print_error
from penstock.errors import PenstockError
from penstock.sql.completion import candidates

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prompt_toolkit.completion import CompleteEvent, Completion
    from prompt_toolkit.document import Document

    from penstock.cli.sql import Runner

HISTORY = Path.home() / ".penstock" / "history"
HELP = """Statements end with ';'. A SELECT over a stream shows a live table; Ctrl-C ends it.
  SHOW TABLES;  DESCRIBE t;  EXPLAIN SELECT …;  SET 'key' = 'value';
  help   this text        quit   leave (also Ctrl-D)"""


def complete_statement(text: str) -> bool:
    """Whether Enter runs the text: it ends a statement, or is a command of the shell."""
    stripped = text.strip()
    if _command(stripped) is not None or not stripped:
        return True
    if not stripped.endswith(";"):
        return False
    # BEGIN … END; contains other statements.
    upper = stripped.upper()
    return not ("STATEMENT SET" in upper and "BEGIN" in upper and not upper.rstrip("; \n").endswith("END"))


def _command(text: str) -> str | None:
    """The command of the shell that ``text`` is, with or without ``;``; else None."""
    word = text.strip().rstrip(";").strip().lower()
    return word if word in ("quit", "exit", "help", "clear") else None


def run_shell(runner: Runner) -> None:
    """Read and run statements until the user leaves. An error is printed and the session continues."""
    if not sys.stdin.isatty():
        runner.run_script(sys.stdin.read(), "standard input")
        runner.await_started()
        return
    import prompt_toolkit
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.key_binding import KeyBindings

    HISTORY.parent.mkdir(parents=True, exist_ok=True)
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event) -> None:  # type: ignore[no-untyped-def]
        buffer = event.current_buffer
        if complete_statement(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    prompt: PromptSession[str] = PromptSession(
        history=FileHistory(str(HISTORY)),
        completer=_completer(runner),
        complete_while_typing=False,
        multiline=True,
        key_bindings=bindings,
        prompt_continuation=lambda width, line, wrapped: " " * (width - 2) + "> ",
    )
    print("Penstock SQL. 'help' for help, 'quit' to leave.")
    while True:
        try:
            text = prompt.prompt("Penstock> ").strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            break
        command = _command(text)
        if command in ("quit", "exit"):
            break
        if command == "help":
            print(HELP)
        elif command == "clear":
            prompt_toolkit.shortcuts.clear()
        elif text:
            _run(runner, text)
    runner.cancel_started()


def _run(runner: Runner, text: str) -> None:
    try:
        runner.run_script(text, "shell")
    except PenstockError as err:
        print_error(err)
    except KeyboardInterrupt:
        print("cancelled")


def _completer(runner: Runner):  # type: ignore[no-untyped-def]
    from prompt_toolkit.completion import Completer, Completion

    class SqlCompleter(Completer):
        def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
            word = document.get_word_before_cursor()
            if word:
                for candidate in candidates(runner.session.catalog, word):
                    yield Completion(candidate, start_position=-len(word))

    return SqlCompleter()
