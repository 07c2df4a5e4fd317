"""``penstock sql``: runs a script's statements one after the other, or a shell.

The job of a SELECT is awaited and its rows are printed. A bounded INSERT is awaited before the next statement.
An unbounded INSERT continues while the script goes on, and is awaited at the end (``SET 'table.dml-sync' =
'true'`` awaits every INSERT).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.api.attached import Watching, ends_with_client
from penstock.api.client import raise_if_cancelled
from penstock.cli.jobs import ClusterAccess, Results, follow_job, status
from penstock.cli.leaving import attended, cancel_all
from penstock.cli.output import WHOLE, write_rows
from penstock.config import DML_SYNC, MAX_COLUMN_WIDTH, PARALLELISM
from penstock.errors import SpecError, SqlError, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.sql.results import PlannedJob, StatementResult
    from penstock.sql.session import SqlSession

FORMATS = ("table", "json", "csv")
#: File suffix -> (the word for such a file, what it should contain). Other files are scripts.
_KINDS = {
    **dict.fromkeys((".yaml", ".yml", ".json"), ("spec", "a job spec")),
    ".py": ("script", "a Python program"),
}


def read_script(path: Path) -> str:
    """The text of a script, a program or a spec, without a byte order mark.

    Raises:
        SpecError: the file does not exist, or is not UTF-8.
    """
    what, holds = _KINDS.get(path.suffix, ("script", "statements"))
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as err:
        raise SpecError(
            f"cannot read the {what}: {err.strerror}",
            expected=f"a file with {holds}",
            got="nothing that can be read",
            where=str(path),
            remedy="check its path",
        ) from err
    except UnicodeDecodeError as err:
        raise SpecError(f"the {what} is not UTF-8 text", where=f"{path}, byte {err.start}") from err


def run_sql(
    *,
    file: Path | None,
    text: str | None,
    init: Path | None,
    python: Path | None,
    cluster: str | None,
    config: dict[str, str],
    format_: str,
) -> None:
    """Run a script or a shell (see the module). Raises the first error; jobs that were started before it are
    cancelled."""
    if format_ not in FORMATS:
        raise SpecError("unknown format", expected=" | ".join(FORMATS), got=repr(format_), where="--format")
    if file is not None and text is not None:
        raise SpecError("-f and -e exclude one another", expected="one of them")
    before = read_script(init) if init else ""
    script = read_script(file) if file else text
    parallelism = PARALLELISM.read(config)
    # The output of slots must not be mixed with rows that a program reads.
    output = sys.stdout if format_ == "table" else sys.stderr
    with ClusterAccess(cluster, slots=max(8, 4 * parallelism), slot_output=output) as access:
        if script is not None and _starts_jobs(script):
            access.prepare()
        runner = Runner(access, config, format_, python)
        try:
            if before:
                runner.run_script(before, str(init), init)
            if script is None:
                from penstock.cli.shell import run_shell

                run_shell(runner)
            else:
                runner.run_script(script, str(file) if file else "-e", file)
                runner.await_started()
        except BaseException:
            runner.cancel_started()
            raise


def _starts_jobs(script: str) -> bool:
    """Whether the script probably starts jobs, so that a cluster is started while it is planned. A wrong guess
    does no harm."""
    words = script.upper()
    return any(word in words for word in ("SELECT", "INSERT", "EXECUTE PLAN")) and "EXPLAIN" not in words


class Runner:
    """Runs statements of one session on one cluster."""

    def __init__(
        self, access: ClusterAccess, config: dict[str, str], format_: str, python: Path | None = None
    ) -> None:
        self._access = access
        self._config = {**access.defaults(), **config}
        self._python = python
        self.format = format_
        self.session = self._new_session()
        #: (job id, name) of the unbounded INSERTs that are running.
        self._started: list[tuple[str, str]] = []

    def _new_session(self) -> SqlSession:
        from penstock.spark.support import spark_support
        from penstock.sql.session import SqlSession

        session = SqlSession(self._config, python_path=_python_path(self._python), spark=spark_support())
        if self._python is not None:
            from penstock.sql.functions import register_module

            register_module(session.catalog.functions, self._python)
        session.jobs = lambda: self._access.client
        return session

    def run_script(self, script: str, name: str, script_file: Path | None = None) -> None:
        """Run every statement. Errors name the script ``name``; ``script_file`` is its path."""
        try:
            from penstock.sql.parsing import parse_script
            from penstock.sql.statements import ClientCommand

            self.session.folder = None if script_file is None else str(script_file.absolute().parent)
            for statement in parse_script(script):
                if isinstance(statement, ClientCommand):
                    if statement.word in ("QUIT", "EXIT"):
                        return
                    self._client(statement.word)
                else:
                    self.show(self.session.run(statement))
        except UserError as err:
            if isinstance(err, SqlError) and not err.where:
                err.where = name
            elif err.where and err.where.startswith("line "):
                err.where = f"{name}, {err.where}"
            raise

    def _client(self, word: str) -> None:
        """Run HELP, or CLEAR, which does something only on a terminal."""
        if word == "HELP":
            from penstock.cli.shell import HELP

            print(HELP)
        elif sys.stdout.isatty():
            print("\x1b[2J\x1b[H", end="")

    def show(self, result: StatementResult) -> None:
        """Print a statement's result; run its job if it has one."""
        for words in result.warnings if result.kind != "text" else ():
            print(f"warning: {words}", file=sys.stderr, flush=True)
        match result.kind:
            case "text":
                print(result.message)
            case "rows":
                self._print_plain(result)
            case "job":
                assert result.job is not None
                if result.message and self.format == "table":
                    print(f"[{result.message}]")
                self.run_job(result.job)
            case _:
                if self.format == "table":
                    print(f"[{result.message}]")
        sys.stdout.flush()

    def _print_plain(self, result: StatementResult) -> None:
        from penstock.types.logical import Schema, VarCharType

        schema = Schema.of(*((c, VarCharType()) for c in result.columns))
        rows = [[None if v is None else str(v) for v in row] for row in result.rows]
        write_rows(schema, rows, self.format, config={MAX_COLUMN_WIDTH.key: str(WHOLE)})

    def run_job(self, job: PlannedJob) -> None:
        """Submit a job; wait for it and print a SELECT's rows, or leave an unbounded INSERT running."""
        client = self._access.client
        select = job.kind == "select"
        graph = ends_with_client(job.job_graph) if select else job.job_graph
        spec: dict[str, Any] = {"name": graph.name, "job_graph": msgspec.to_builtins(graph)}

        def wait(job_id: str) -> None:
            if select:
                with Watching(client, job_id, graph.config):
                    self._show_select(job, job_id)
            elif job.bounded or DML_SYNC.read(self.session.config):
                self._await(job_id, graph.name)
            else:
                self._started.append((job_id, graph.name))
                if self.format == "table":
                    print(f"[job {job_id} ({graph.name}) runs]")

        attended(client, spec, wait)

    def _show_select(self, job: PlannedJob, job_id: str) -> None:
        assert job.result_schema is not None
        results = Results(self._access.client, job_id, job.result_schema, job.result_keys, job.mode)
        if job.bounded:
            with status("running …"):
                rows = results.final()
            raise_if_cancelled(self._access.client.job(job_id), job_id, job.job_graph.name)
            write_rows(job.result_schema, rows, self.format, config=self.session.config)
        elif self.format == "table" and sys.stdout.isatty():
            results.live(job.job_graph.name, self.session.config)
        else:
            self._stream(results)

    def _stream(self, results: Results) -> None:
        """Print the rows of an unbounded query as they arrive, with their kind if they are changes."""
        from penstock.types.batch import RowKind
        from penstock.types.logical import Field, Schema, VarCharType

        schema = Schema((Field("op", VarCharType()), *results.schema.fields))
        format_ = "csv" if self.format == "table" else self.format

        def rows() -> Iterator[tuple[Any, ...]]:
            for changes in results.changes():
                for kind, row in changes:
                    yield (RowKind(kind).short, *row)
                # The reader of a pipe gets rows when they arrive, not when 8 KiB are full.
                sys.stdout.flush()

        write_rows(schema, rows(), format_, config=self.session.config)

    def _await(self, job_id: str, name: str) -> None:
        job = follow_job(self._access.client, job_id, name)
        raise_if_cancelled(job, job_id, name)
        if self.format == "table":
            print(f"[job {job_id} ({name}): {job['state'].lower()}, {job['duration'] / 1000:.1f} s]")

    def await_started(self) -> None:
        """Wait for the INSERTs that are running."""
        while self._started:
            self._await(*self._started[0])
            del self._started[0]

    def cancel_started(self) -> None:
        """Cancel the INSERTs that are running."""
        started, self._started = self._started, []
        if started:
            cancel_all(self._access.client, started)


def _python_path(module: Path | None) -> list[str]:
    return [] if module is None else [str(module.absolute().parent)]
