"""User code: loading, the runtime context, and errors that show the user's traceback.

A function of the job's table is a plain callable or an object with Flink's methods (``open``, ``map``,
``process_element``, ``close`` …). Each subtask has its own copy.
"""

from __future__ import annotations

import copy
import os
import traceback
import types
from typing import TYPE_CHECKING, Any

from penstock.columnar.python_values import redact
from penstock.errors import FunctionError, PenstockError, UnsupportedError
from penstock.operators.accumulators import Accumulators, IntCounter, LongCounter
from penstock.operators.user_metrics import UserMetrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.operators.operator import OperatorContext
    from penstock.state.backend import KeyedStateBackend

_HERE = os.path.dirname(__file__)


class RuntimeContext:
    """The argument of a function's ``open``: where the function runs, and its keyed state.

    ``ctx`` is the operator's context; ``backend`` its keyed state, None for a function without keyed state.
    """

    def __init__(self, ctx: OperatorContext, backend: KeyedStateBackend | None = None) -> None:
        self._ctx = ctx
        self._backend = backend
        self._accumulators = Accumulators(ctx.metrics, f"operator '{ctx.name}'")

    def get_job_id(self) -> str:
        """The job's id, 32 hexadecimal digits."""
        return self._ctx.job_id

    def get_task_name(self) -> str:
        """The operator's name."""
        return self._ctx.name

    def get_number_of_parallel_subtasks(self) -> int:
        """The parallelism of the operator."""
        return self._ctx.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        """The number of key groups."""
        return self._ctx.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        """The index of the subtask, from 0."""
        return self._ctx.subtask_index

    def get_attempt_number(self) -> int:
        """The number of this run of the task, from 1."""
        return self._ctx.attempt

    def get_task_name_with_subtasks(self) -> str:
        """The operator's name, with the number of the subtask from 1 and the parallelism: ``Map (1/4)``."""
        return f"{self._ctx.name} ({self._ctx.subtask_index + 1}/{self._ctx.parallelism})"

    def get_job_parameter(self, key: str, default_value: str | None = None) -> str | None:
        """The configuration value ``user.KEY``, else the configuration value ``key``, else ``default_value``."""
        config = self._ctx.config
        return config.get(f"user.{key}", config.get(key, default_value))

    def get_metrics_group(self) -> UserMetrics:
        """Counters, gauges, meters and distributions of this function."""
        return UserMetrics(self._ctx.metrics, self._ctx.now_ms)

    get_metric_group = get_metrics_group

    def add_accumulator(self, name: str, accumulator: LongCounter) -> None:
        """Let the job's result have ``accumulator``, an ``IntCounter`` or ``LongCounter``, as ``name``: the sum over all subtasks.

        Raises:
            SpecError: The name is taken.
            UnsupportedError: It is another accumulator, or the job runs on Spark.
        """
        self._accumulators.add(name, accumulator)

    def get_accumulator(self, name: str) -> LongCounter:
        """The accumulator ``name`` that this function has added.

        Raises:
            SpecError: There is none.
        """
        return self._accumulators.get(name)

    def get_int_counter(self, name: str) -> LongCounter:
        """The counter ``name`` among the job's accumulators; added if there is none."""
        if not self._accumulators.has(name):
            self._accumulators.add(name, IntCounter())
        return self._accumulators.get(name)

    get_long_counter = get_int_counter

    def _state(self, descriptor: Any) -> Any:
        """The state that ``descriptor`` declares, of the current key.

        Raises:
            UnsupportedError: The function has no keyed state.
        """
        if self._backend is None:
            raise UnsupportedError(
                f"state '{descriptor.name}' in a function without keyed state",
                expected="a KeyedProcessFunction, CoProcessFunction or window function after key_by(…)",
                where=f"operator '{self._ctx.name}'",
            )
        return self._backend.state(descriptor)

    get_state = get_list_state = get_map_state = get_reducing_state = get_aggregating_state = _state


class UserFunction:
    """A function of the job's table, private to this subtask, with its error policy."""

    def __init__(self, ctx: OperatorContext, name: str, on_error: str = "fail") -> None:
        self._ctx = ctx
        self._on_error = on_error
        found = ctx.function(name)
        # All subtasks of a slot load the same object. ``open`` puts state into it, so each needs a copy.
        self.object: Any = found if isinstance(found, _STATELESS) else copy.deepcopy(found)
        self._opened: list[Any] = []

    @property
    def where(self) -> str:
        """The place for error messages: operator, subtask (from 1) and parallelism."""
        return f"operator '{self._ctx.name}', subtask {self._ctx.subtask_index + 1}/{self._ctx.parallelism}"

    def method(self, name: str) -> Callable[..., Any]:
        """The object's method ``name``, or the object itself if it is a plain callable.

        Raises:
            FunctionError: the object has no such method.
        """
        found = getattr(self.object, name, None)
        if found is None and callable(self.object):
            found = self.object
        if found is None:
            raise FunctionError(
                f"a function object without the method '{name}'",
                expected=f"a callable, or an object with {name}(…)",
                got=type(self.object).__name__,
                where=self.where,
            )
        return found

    def open(self, context: RuntimeContext, *parts: Any) -> None:
        """Call ``open`` of the object, or of ``parts`` of it, if there is one. Raises FunctionError if it fails."""
        for part in parts or (self.object,):
            opener = getattr(part, "open", None)
            if opener is not None and not isinstance(part, _STATELESS):
                try:
                    opener(context)
                except PenstockError:
                    raise
                except (Exception, SystemExit) as err:
                    raise self.error(err, None, "open") from err
                self._opened.append(part)

    def close(self) -> None:
        """Call ``close`` of every object that was opened and has one. Raises FunctionError if one fails."""
        for part in self._opened:
            closer = getattr(part, "close", None)
            if closer is not None:
                try:
                    closer()
                except PenstockError:
                    raise
                except (Exception, SystemExit) as err:
                    raise self.error(err, None, "close") from err
        self._opened.clear()

    def error(self, err: BaseException, record: Any, method: str) -> FunctionError:
        """The user's exception as a ``FunctionError`` with the user's traceback and the redacted record."""
        error = FunctionError(
            f"{method}() of operator '{self._ctx.name}' raised {type(err).__name__}: {err}",
            got=None if record is None else f"record {redact(record)}",
            where=self.where,
            remedy="correct the function, or set on_error to 'skip' or 'dead-letter'",
            user_traceback=user_traceback(err),
        )
        error.__cause__ = err
        return error

    def failed(self, err: BaseException, record: Any, method: str) -> None:
        """Apply the error policy: raise the error, or count (and keep) the record."""
        if isinstance(err, PenstockError) and not isinstance(err, FunctionError):
            raise err
        error = err if isinstance(err, FunctionError) else self.error(err, record, method)
        if self._on_error == "fail":
            raise error from err
        self._ctx.metrics.inc("numRecordsInErrors")
        if self._ctx.report_error is not None:
            self._ctx.report_error(error, record)


_STATELESS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)


def user_traceback(err: BaseException) -> str:
    """The traceback, beginning at the first frame outside Penstock."""
    tb = err.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith(_HERE):
        tb = tb.tb_next
    return "".join(traceback.format_exception(type(err), err, tb))
