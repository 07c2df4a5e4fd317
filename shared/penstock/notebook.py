"""The extension for notebooks: ``%load_ext penstock.notebook``.

- The cell magic ``%%sql`` runs statements; the rows of a query are shown as they come.
- Jobs of streams and tables run on one cluster, which the first job starts and which ends with the kernel.
- An error of Penstock is shown once, with the line of the cell, and without the frames of the library.
"""

from __future__ import annotations

import linecache
import re
import shlex
import traceback
from types import TracebackType
from typing import Any

from IPython.core.magic import Magics, line_cell_magic, magics_class

from penstock.api.execution import keep_cluster
from penstock.errors import PenstockError, SpecError
from penstock.sql import statements as st
from penstock.sql.parsing import parse_script
from penstock.table.cluster import catch_up_output, shared_cluster
from penstock.table.environment import TableEnvironment

#: Variables of the notebook that are looked for when a cell of SQL runs; the last one is made if there is none.
ENVIRONMENTS = ("table_env", "env", "t_env")
#: The file of a cell, as the kernel and as the shell IPython call it.
_CELL = re.compile(r'File "(?:.*ipykernel_\d+|<ipython-input)')
_FRAME = re.compile(r'File "(.*(?:ipykernel_\d+|<ipython-input).*)", line (\d+)')
USAGE = "%%sql, %%sql NAME (the cell's query becomes the table NAME, and is not run), %%sql --detached (jobs run on)"


def load_ipython_extension(shell: Any) -> None:
    """Called by ``%load_ext penstock.notebook``."""
    shell.register_magics(SqlMagics)
    shell.set_custom_exc((PenstockError,), _show_error)
    shell.events.register("post_run_cell", _show_output)
    keep_cluster(shared_cluster)


def unload_ipython_extension(shell: Any) -> None:
    """Called by ``%unload_ext penstock.notebook``."""
    shell.set_custom_exc((), None)
    shell.events.unregister("post_run_cell", _show_output)
    keep_cluster(None)


def _show_output(*_: object) -> None:
    """What the jobs of a cell have printed belongs to the cell."""
    catch_up_output()


@magics_class
class SqlMagics(Magics):
    """``%sql STATEMENT`` and ``%%sql`` for many."""

    @line_cell_magic
    def sql(self, line: str, cell: str | None = None) -> Any:
        """Run statements in the notebook's table environment."""
        words = [] if cell is None else shlex.split(line)
        detached = "--detached" in words
        names = [word for word in words if word != "--detached"]
        if len(names) > 1 or (names and not names[0].isidentifier()):
            raise SpecError("%%sql takes one name at most", expected=USAGE, got=line.strip())
        environment = self._environment()
        statements = parse_script(line if cell is None else cell)
        if names:
            return self._name(environment, names[0], statements)
        for statement in statements:
            result = environment.run(statement)
            if detached and result.get_job_client() is not None and not isinstance(statement, st.Query):
                client = result.get_job_client()
                assert client is not None
                print(f"job {client.get_job_id()} runs on")  # noqa: T201 (a notebook's output)
                continue
            result._ipython_display_()
        return None

    def _name(self, environment: TableEnvironment, name: str, statements: list[st.Statement]) -> Any:
        if len(statements) != 1 or not isinstance(statements[0], st.Query):
            raise SpecError(
                f"%%sql {name} takes a query", expected="one SELECT", got=f"{len(statements)} statements"
            )
        table = environment.sql_query(statements[0].text)
        environment.create_temporary_view(name, table)
        self._variables()[name] = table
        return table

    def _variables(self) -> dict[str, Any]:
        assert self.shell is not None, "magics are registered in a shell"
        variables: dict[str, Any] = self.shell.user_ns
        return variables

    def _environment(self) -> TableEnvironment:
        for name in ENVIRONMENTS:
            if isinstance(found := self._variables().get(name), TableEnvironment):
                return found
        made = self._variables()[ENVIRONMENTS[-1]] = TableEnvironment.create()
        return made


def _show_error(
    shell: Any,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
    tb_offset: int | None = None,
) -> list[str]:
    """Shows the lines of the notebook that led to an error, and the error."""
    of_cells = [frame for frame in traceback.extract_tb(trace) if _CELL.match(f'File "{frame.filename}"')]
    shown = [f"line {frame.lineno}: {frame.line}" for frame in of_cells]
    shown += _with_source(f"error: {error}")
    shell._showtraceback(kind, error, shown)
    return shown


def _with_source(text: str) -> list[str]:
    """The lines of an error, with the source of cells that a traceback from a slot names: only the kernel has it."""
    out = []
    for line in text.splitlines():
        out.append(line)
        named = _FRAME.search(line)
        if named and (source := linecache.getline(named[1], int(named[2])).strip()):
            out.append(f"    {source}")
    return out
