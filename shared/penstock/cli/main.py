"""``penstock``: the entry point of the command line.

Each command imports the module that does its work when it runs, so that ``penstock --help`` is fast.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli import job_commands, run_commands
from penstock.cli.options import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from penstock.errors import PenstockError, SpecError, nested_too_deeply

app = typer.Typer(
    name="penstock",
    help="A stream processor with Flink's architecture and words, native to Python.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# In the order in which --help shows them, each with an example.
for _function, _name, _example in (
    (run_commands.up, "up", "penstock up --taskmanagers 2 --slots 4 --data ./data"),
    (run_commands.sql, "sql", "penstock sql -f report.sql --format csv"),
    (job_commands.init, "init", "penstock init words && cd words && penstock run job.py && pytest"),
    (run_commands.run, "run", "penstock run job.py -p 4 -D execution.checkpointing.interval=5s"),
    (run_commands.dev, "dev", "penstock dev job.sql"),
    (job_commands.savepoint, "savepoint", "penstock savepoint 4f1c ./savepoints"),
    (job_commands.stop, "stop", "penstock stop 4f1c --savepoint-path ./savepoints"),
    (job_commands.checkpoint, "checkpoint", "penstock checkpoint 4f1c --full"),
    (job_commands.list_, "list", "penstock list --format json"),
    (job_commands.cancel, "cancel", "penstock cancel 4f1c"),
    (job_commands.info, "info", "penstock info 4f1c --checkpoints"),
    (job_commands.logs, "logs", "penstock logs 4f1c -f"),
    (job_commands.tap, "tap", "penstock tap 4f1c e2 -n 5"),
    (job_commands.dead_letters, "dead-letters", "penstock dead-letters 4f1c --show 3 --raw"),
    (job_commands.status, "status", "penstock status 4f1c && echo it runs"),
    (job_commands.why, "why", "penstock why 4f1c"),
    (job_commands.top, "top", "penstock top --interval 2"),
    (job_commands.open_, "open", "penstock open 4f1c"),
    (job_commands.doctor, "doctor", "penstock doctor --cluster http://127.0.0.1:8081"),
    (job_commands.health, "health", "penstock health http://127.0.0.1:8081"),
    (job_commands.schema, "schema", "penstock schema job > job-spec.schema.json"),
    (job_commands.token, "token", "penstock token ci --role submit"),
):
    app.command(_name, epilog=f"Example: {_example}")(_function)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    token: Annotated[
        str,
        typer.Option("--token", help="Bearer token for the cluster; others on this machine may see it (ps)."),
    ] = "",
    token_file: Annotated[str, typer.Option("--token-file", help="File that holds the bearer token.")] = "",
) -> None:
    if token and token_file:
        raise SpecError("two tokens are given", expected="one of --token and --token-file")
    if token:
        os.environ[TOKEN_VARIABLE] = token
    if token_file:
        os.environ.pop(TOKEN_VARIABLE, None)  # what the command line says counts
        os.environ[TOKEN_FILE_VARIABLE] = token_file


def _service(role: str, name: str = "") -> None:
    @app.command(
        name or role,
        context_settings={
            "allow_extra_args": True,
            "ignore_unknown_options": True,
            "help_option_names": [],
        },
        help=f"Run one {role} process (the options of 'python -m penstock_services.{role}').",
    )
    def run_service(ctx: typer.Context) -> None:
        # This process becomes the service.
        os.execv(sys.executable, [sys.executable, "-P", "-m", f"penstock_services.{role}", *ctx.args])


for _role in ("dispatcher", "jobmanager", "resourcemanager", "taskmanager"):
    _service(_role)
_service("gateway", "sql-gateway")
_service("history", "history-server")


def main() -> None:
    """The entry point. Exit codes: 0 success, 1 an error (on stderr), 2 wrong usage, 130 Ctrl-C, 143 SIGTERM."""
    from penstock.cli.errors import print_error
    from penstock.cli.signals import leave_on_signals

    leave_on_signals()
    try:
        app()
    except PenstockError as err:
        print_error(err)
        sys.exit(1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except RecursionError:
        print_error(nested_too_deeply("program"))
        sys.exit(1)
    except Exception as err:
        import traceback

        from penstock.errors import InternalError

        text = traceback.format_exc()
        message = f"{type(err).__name__}: {err}"
        print_error(
            InternalError(
                message,
                remedy="this is a mistake of ours: please report it with the lines above",
                user_traceback=text,
            )
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
