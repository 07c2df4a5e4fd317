"""The accumulator of a user's aggregate function: one Python object per slot."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.columnar.accumulator_rows import new_accumulator, result
from penstock.columnar.accumulators import Accumulator
from penstock.columnar.store import grown
from penstock.errors import FunctionError, PenstockError
from penstock.functions.function_table import opened
from penstock.functions.python_calls import shown
from penstock.functions.python_results import MISFIT, allowed, first_misfit, result_of
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: The assumed size of a user's accumulator object, whose real size is unknown.
_OBJECT_BYTES = 128


def _failed(err: Exception, method: str, values: Sequence[Any], name: str) -> Exception:
    if isinstance(err, PenstockError):
        return err
    frames = err.__traceback__.tb_next if err.__traceback__ else None
    return FunctionError(
        f"{method}() of the aggregate function {name} raised {type(err).__name__}: {err}",
        got=f"arguments {shown(tuple(values))}" if values else None,
        where=f"function {name}.{method}",
        remedy="correct the function, or filter such records out before it",
        user_traceback="".join(traceback.format_exception(type(err), err, frames)),
    )


class PythonAggregate(Accumulator):
    """Runs a user's AggregateFunction: ``create_accumulator()``, ``accumulate(acc, *args)``,
    ``get_value(acc)``, and where needed ``retract`` and ``merge``.

    An accumulator is any object that can be pickled; ``accumulate`` may return a new one. FunctionError
    names the method that raised, is missing, or gave a value of another type than declared.
    """

    keeps_nulls = True
    depends_on_order = True
    types = (t.RawType(),)

    def __init__(self, function: Any, type_: t.LogicalType) -> None:
        self._function, self.type = function, type_
        declared = getattr(function, "penstock_function", None) or {}
        self._per_batch = declared.get("per") == "batch"
        self._state = np.full(1024, None, object)

    @classmethod
    def loaded(cls, name: str, type_: t.LogicalType, functions: Callable[[str], Any]) -> PythonAggregate:
        """The accumulator of the job's function ``name``, opened. Raises FunctionError if its ``open`` fails."""
        try:
            return cls(opened(functions, name), type_)
        except PenstockError:
            raise
        except Exception as err:
            raise _failed(err, "open", (), name) from err

    @property
    def nbytes(self) -> int:
        return self.live_bytes(len(self._state))

    def live_bytes(self, slots: int) -> int:
        return slots * _OBJECT_BYTES

    def reset(self, slots: np.ndarray, high: int) -> None:
        self._state = grown(self._state, high, None)
        for slot in slots.tolist():
            self._state[slot] = new_accumulator(self._function)

    def add(self, slots: np.ndarray, args: Sequence[Column], signs: np.ndarray | None) -> None:
        if self._per_batch:
            self._add_batches(slots, args, signs)
            return
        lists = [a.to_pylist() for a in args]
        rows = zip(*lists, strict=True) if lists else iter([()] * len(slots))
        adding = [True] * len(slots) if signs is None else (signs > 0).tolist()
        for slot, values, adds in zip(slots.tolist(), rows, adding, strict=True):
            self._step("accumulate" if adds else "retract", slot, values)

    def _add_batches(self, slots: np.ndarray, args: Sequence[Column], signs: np.ndarray | None) -> None:
        """Call accumulate or retract once per slot, with Arrow arrays of all its rows in the batch."""
        adding = np.ones(len(slots), np.bool_) if signs is None else signs > 0
        for direction, method in ((True, "accumulate"), (False, "retract")):
            rows = np.flatnonzero(adding == direction)
            order = rows[np.argsort(slots[rows], kind="stable")]
            found, starts = np.unique(slots[order], return_index=True)
            for slot, part in zip(found.tolist(), np.split(order, starts[1:]), strict=bool(len(found))):
                self._step(method, slot, [a.take(part).to_external_arrow() for a in args])

    def _step(self, method: str, slot: int, values: Sequence[Any]) -> None:
        step = self._method(method)
        try:
            changed = step(self._state[slot], *values)
        except Exception as err:
            raise self._failed(err, method, values) from err
        if changed is not None:
            self._state[slot] = changed

    def _failed(self, err: Exception, method: str, values: Sequence[Any]) -> Exception:
        return _failed(err, method, values, type(self._function).__name__)

    def absorb(self, slots: np.ndarray, other: Accumulator, other_slots: np.ndarray) -> None:
        assert isinstance(other, PythonAggregate)
        self._merge(slots, other._state[other_slots])

    def partials(self, slots: np.ndarray) -> list[Column]:
        return [Column(t.RawType(), self._state[slots])]

    def merge(self, slots: np.ndarray, partials: Sequence[Column]) -> None:
        for slot, accumulator in zip(slots.tolist(), partials[0].values, strict=True):
            self._state[slot] = accumulator

    def _merge(self, slots: np.ndarray, accumulators: np.ndarray) -> None:
        merge = self._method("merge")
        for slot, accumulator in zip(slots.tolist(), accumulators, strict=True):
            changed = merge(self._state[slot], [accumulator])
            if changed is not None:
                self._state[slot] = changed

    def _method(self, name: str) -> Any:
        method = getattr(self._function, name, None)
        if method is None:
            raise FunctionError(
                f"the aggregate function {type(self._function).__name__} has no {name}()",
                expected=f"a method {name}, since "
                + ("its input retracts rows" if name == "retract" else "its windows share panes"),
                got="none",
                remedy=f"define {name} in the class",
            )
        return method

    def result(self, slots: np.ndarray) -> Column:
        values = []
        for slot in slots.tolist():
            try:
                values.append(result(self._function.get_value(self._state[slot])))
            except Exception as err:
                raise self._failed(err, "get_value", ()) from err
        try:
            return result_of(self.type, values)
        except MISFIT as err:
            found = first_misfit(self.type, values)
            raise FunctionError(
                f"the aggregate function {type(self._function).__name__} gave something that is no {self.type}",
                expected=allowed(self.type),
                got=str(err) if found is None else f"{shown(found[1:])} ({type(found[1]).__name__})",
                where=f"function {type(self._function).__name__}.get_value",
                remedy="correct get_value, or declare another result_type",
            ) from err

    def release(self, slots: np.ndarray) -> None:
        self._state[slots] = None
