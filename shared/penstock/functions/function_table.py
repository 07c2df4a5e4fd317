"""The functions of a job by name, for operators."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from penstock.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class FunctionTable:
    """Calling it with a name gives the object of that name, the same one each time.

    ``load`` finds an object; ``job_config`` is the job's configuration, which ``open`` of a function may read.
    """

    def __init__(self, load: Callable[[str], Any], job_config: Mapping[str, str]) -> None:
        self._load = load
        self.job_config = job_config

    def __call__(self, name: str) -> Any:
        return self._load(name)


class TaskFunctions(FunctionTable):
    """The functions of ``table`` as one operator of a task has them: a function with ``open`` is the operator's own
    copy, which was opened once with ``context``."""

    def __init__(self, table: Callable[[str], Any], context: Any, job_config: Mapping[str, str]) -> None:
        super().__init__(table, job_config)
        self.table = table
        self._context = context
        self._opened: dict[str, Any] = {}

    def opened(self, name: str) -> Any:
        """The function ``name`` of this operator, opened. What its ``open`` raises is not caught."""
        if name not in self._opened:
            target = self(name)
            if _opens(target):
                target = copy.deepcopy(target)
                target.open(self._context)
            self._opened[name] = target
        return self._opened[name]

    def close(self) -> list[BaseException]:
        """Call ``close`` of each own copy that has one. Returns what they raised."""
        errors: list[BaseException] = []
        opened, self._opened = self._opened, {}
        for target in opened.values():
            if _opens(target) and callable(getattr(target, "close", None)):
                try:
                    target.close()
                except Exception as err:
                    errors.append(err)
        return errors


class FunctionContext:
    """The argument of ``open`` where a function has no task, as on Spark. ``config``: the job's configuration."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = config

    def get_job_parameter(self, key: str, default_value: str | None = None) -> str | None:
        """The configuration value ``user.KEY``, else the configuration value ``key``, else ``default_value``."""
        return self._config.get(f"user.{key}", self._config.get(key, default_value))

    def _of_a_task(self, *_: Any) -> Any:
        raise UnsupportedError(
            "a function of SQL that asks for its task or its metrics, on Spark",
            expected="get_job_parameter(key)",
            remedy="run the job on the streaming runtime: execution.engine = streaming",
        )

    get_task_name = get_number_of_parallel_subtasks = get_index_of_this_subtask = get_metric_group = (
        _of_a_task
    )


def opened(functions: Callable[[str], Any], name: str) -> Any:
    """The function ``name``, opened: an operator's own copy where ``functions`` are those of a task, else the one of the
    process. What its ``open`` raises is not caught."""
    if isinstance(functions, TaskFunctions):
        return functions.opened(name)
    target = functions(name)
    if _opens(target) and not getattr(target, "_penstock_opened", False):
        target.open(FunctionContext(functions.job_config if isinstance(functions, FunctionTable) else {}))
        target._penstock_opened = True
    return target


def _opens(target: Any) -> bool:
    return not isinstance(target, type) and callable(getattr(target, "open", None))
