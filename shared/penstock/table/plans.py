"""``CompiledPlan`` and ``PlanReference``: the plan of INSERTs that a program keeps and runs later, as COMPILE PLAN does."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config import PLAN_FORCE_RECOMPILE
from penstock.errors import SpecError, UnsupportedError
from penstock.plan.compiled import written_by
from penstock.sql.plan_files import PlanFile, plan_file
from penstock.table.running import started

if TYPE_CHECKING:
    from typing import NoReturn

    from penstock.sql.session import SqlSession
    from penstock.table.results import TableResult
    from penstock.table.settings import ExplainDetail


@dataclass(frozen=True)
class PlanReference:
    """Where a compiled plan is. ``from_file`` and ``from_json_string`` make one.

    ``path``: the plan's file; None if ``content`` is the plan itself.
    """

    path: str | None = None
    content: str = ""

    @staticmethod
    def from_file(path: str | Path) -> PlanReference:
        """The plan in a file on this machine or in an object store, or in a savepoint's folder."""
        return PlanReference(path=str(path))

    @staticmethod
    def from_json_string(json_string: str) -> PlanReference:
        """The plan that ``as_json_string`` gave."""
        return PlanReference(content=json_string)

    @staticmethod
    def from_smile_bytes(smile_bytes: bytes) -> NoReturn:
        """Not supported.

        Raises:
            UnsupportedError: Always: plans are JSON.
        """
        raise _smile("from_smile_bytes", "from_json_string")

    def get_file(self) -> Path:
        """The plan's file.

        Raises:
            SpecError: The reference holds the plan itself.
        """
        if self.path is None:
            raise SpecError("the plan is in no file", expected="from_file(…)", got="from_json_string(…)")
        return Path(self.path)

    def get_content(self) -> str:
        """The plan as JSON; empty if the reference names a file."""
        return self.content

    def read(self, session: SqlSession) -> bytes:
        """The plan's bytes."""
        if self.path is None:
            return self.content.encode()
        return plan_file(self.path, session.folder, "load_plan()").read()


class CompiledPlan:
    """The plan of one or several INSERTs. ``session``: runs it; ``data``: the plan as COMPILE PLAN writes it.

    Raises:
        SpecError: ``data`` is not a plan.
    """

    def __init__(self, session: SqlSession, data: bytes) -> None:
        self._session = session
        self._data = data
        self._job = session.plan_of(data, "compiled plan")

    def as_json_string(self) -> str:
        """The plan as JSON."""
        return self._data.decode()

    __str__ = as_json_string

    def as_smile_bytes(self) -> NoReturn:
        """Not supported.

        Raises:
            UnsupportedError: Always: plans are JSON.
        """
        raise _smile("as_smile_bytes", "as_json_string")

    def write_to_file(self, file: str | Path, ignore_if_exists: bool = False) -> None:
        """Write the plan into a file.

        Args:
            file: A path, or the URL of an object.
            ignore_if_exists: Keep a file that is there.

        Raises:
            SpecError: The file is there, ``ignore_if_exists`` is False, and ``table.plan.force-recompile`` is not set.
        """
        target: PlanFile = plan_file(str(file), self._session.folder, "write_to_file()")
        if target.exists():
            if ignore_if_exists:
                return
            if not PLAN_FORCE_RECOMPILE.read(self._session.config):
                raise SpecError(
                    "the compiled plan is there already",
                    expected="a path where nothing is",
                    got=target.located,
                    where="write_to_file()",
                    remedy=f"ignore_if_exists=True keeps it; '{PLAN_FORCE_RECOMPILE.key}' = 'true' replaces it",
                )
        target.write(self._data)

    def execute(self) -> TableResult:
        """Run the plan. The job runs when the method returns; ``wait()`` waits for its end."""
        return started(self._session.plan_of(self._data, "compiled plan"), self._session.config, ["plan"])

    def explain(self, *extra_details: ExplainDetail) -> str:
        """The plan as text, as EXPLAIN prints it. ``extra_details``: what to print besides."""
        names = tuple(getattr(detail, "name", str(detail)) for detail in extra_details)
        return self._session.explained(self._job.job_graph, names)

    def print_explain(self, *extra_details: ExplainDetail) -> None:
        """Print ``explain(…)``."""
        sys.stdout.write(f"{self.explain(*extra_details)}\n")

    def print_json_string(self) -> None:
        """Print ``as_json_string()``."""
        sys.stdout.write(f"{self.as_json_string()}\n")

    def get_flink_version(self) -> str:
        """The version of Penstock that made the plan."""
        return written_by(self._data)


def _smile(name: str, other: str) -> UnsupportedError:
    return UnsupportedError(f"{name}: a plan in Smile", expected="a plan in JSON", remedy=other)
