"""Table functions joined to their row (LATERAL TABLE): UNNEST and user functions.

A row is repeated for each row that the function returns for it. With ``left`` a row without such rows is
emitted once, padded with NULLs. Output: the input's columns, then the function's.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columnar.python_values import columns_of, to_python
from penstock.config import ASYNC_OPERATIONS, ASYNC_TIMEOUT_MS
from penstock.errors import FunctionError, UnsupportedError
from penstock.functions.evaluate import compile_expr
from penstock.operators.asking import AskingOperator, Failed, each
from penstock.operators.bad_rows import leaving_out
from penstock.operators.operator import Operator
from penstock.operators.python import batch_columns
from penstock.operators.user_code import RuntimeContext, UserFunction
from penstock.types import Batch
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.jobgraph.specs import TableFunctionSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState

#: (columns of the function's rows, int64 parent row of each, ascending)
Expanded = tuple[list[Column], np.ndarray]
_BUILTIN = ("UNNEST", "UNNEST_WITH_ORDINALITY")


class TableFunctionOperator(Operator):
    """Runs a table function: UNNEST, or a user's function per row or per batch."""

    def __init__(self, spec: TableFunctionSpec) -> None:
        if spec.builtin and spec.function.upper() not in _BUILTIN:
            raise UnsupportedError(
                f"unknown built-in table function '{spec.function}'", expected=" | ".join(_BUILTIN)
            )
        self._spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        spec = self._spec
        self._args = [compile_expr(e, ctx.function, ctx.input_schemas[0]) for e in spec.args]
        self._run = leaving_out(ctx, spec.on_error, self._apply)
        width = len(ctx.input_schemas[0])
        self._schema = t.Schema(ctx.output_schema.fields[width:])
        self._function: UserFunction | None = None
        self._expand: Callable[[Batch, Sequence[Column]], Expanded]
        if spec.builtin:
            self._expand = self._unnest
            return
        self._function = self.hold(UserFunction(ctx, spec.function))
        self._call = self._function.method("eval")
        self._function.open(RuntimeContext(ctx))
        self._expand = self._per_batch if spec.per == "batch" else self._per_record

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        return self._run(batch)

    def _apply(self, batch: Batch) -> Iterator[Batch]:
        yield from self._joined(batch, *self._expand(batch, [arg(batch) for arg in self._args]))

    def _joined(self, batch: Batch, columns: list[Column], parents: np.ndarray) -> Iterator[Batch]:
        if self._spec.kind == "left":
            columns, parents = _padded(columns, parents, batch.num_rows)
        if len(parents):
            rows = batch.take(parents)
            yield rows.with_columns(self.ctx.output_schema, [*rows.columns, *columns])

    # -- UNNEST -------------------------------------------------------------------------------

    def _unnest(self, batch: Batch, args: Sequence[Column]) -> Expanded:
        """UNNEST: the elements of each collection; of several, those at one place in one row, with NULLs where a
        shorter one has ended."""
        parts, parents = expanded(args[0])
        if len(args) > 1:
            parts, parents = _side_by_side([(parts, parents), *map(expanded, args[1:])])
        if self._spec.function.upper().endswith("ORDINALITY"):
            parts.append(Column(t.IntType(), _ordinals(parents).astype(np.int32)))
        return [p.cast_type(f.type) for p, f in zip(parts, self._schema.fields, strict=True)], parents

    # -- the user's -----------------------------------------------------------------------------

    def _per_record(self, batch: Batch, args: Sequence[Column]) -> Expanded:
        assert self._function is not None
        items: list[Any] = []
        parents: list[int] = []
        call = self._call
        rows = zip(*map(to_python, args), strict=True) if args else [()] * batch.num_rows
        for i, row in enumerate(rows):
            before = len(items)
            try:
                result = call(*row)
                if result is not None:
                    items.extend(result)
            except Exception as err:
                raise self._function.error(err, row, "eval") from err
            parents.extend([i] * (len(items) - before))
        return self._rows(items, parents)

    def _rows(self, items: list[Any], parents: list[int]) -> Expanded:
        """The function's results as columns."""
        assert self._function is not None
        if len(self._schema) == 1:
            # The function may return bare values or rows of one field.
            items = [x[0] if isinstance(x, tuple) and len(x) == 1 else x for x in items]
            schema = t.Schema((t.Field("value", self._schema.fields[0].type),))
            return columns_of(schema, items, self._function.where), np.array(parents, np.int64)
        return columns_of(self._schema, items, self._function.where), np.array(parents, np.int64)

    def _per_batch(self, batch: Batch, args: Sequence[Column]) -> Expanded:
        """Call ``eval(*arrays)``, which returns (record batch or arrays, index of each row's parent)."""
        assert self._function is not None
        try:
            result = self._call(*(a.to_external_arrow() for a in args))
        except Exception as err:
            raise self._function.error(err, pa.nulls(batch.num_rows), "eval") from err
        if not (isinstance(result, tuple) and len(result) == 2):
            raise FunctionError(
                "a table function per batch returned no parents",
                expected="a tuple (record batch, index of each row's parent)",
                got=type(result).__name__,
                where=self._function.where,
            )
        data, parents = result
        if isinstance(data, (pa.Array, pa.ChunkedArray, np.ndarray)):
            data = [data]
        columns = batch_columns(self._schema, data, self._function.where)
        parents = np.asarray(parents, np.int64)
        if len(parents) != len(columns[0]) or (np.diff(parents) < 0).any():
            raise FunctionError(
                "parents of a table function do not fit its rows",
                expected=f"{len(columns[0])} ascending row numbers",
                got=f"{len(parents)} numbers",
                where=self._function.where,
            )
        return columns, parents


class AsyncTableFunctionOperator(TableFunctionOperator, AskingOperator):
    """Runs a table function whose ``eval`` is a coroutine that returns rows, or an async generator; many run at
    a time."""

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._at_once = ASYNC_OPERATIONS.read(ctx.config)
        self._timeout_s = ASYNC_TIMEOUT_MS.read(ctx.config) / 1000

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        assert self._function is not None
        args = [arg(batch) for arg in self._args]
        rows = list(zip(*map(to_python, args), strict=True)) if args else [()] * batch.num_rows
        answers = yield from self.ask(
            each(self._gathered, rows, at_once=self._at_once, timeout_s=self._timeout_s)
        )
        failed = [i for i, answer in enumerate(answers) if isinstance(answer, Failed)]
        for i in failed:
            error = self._function.error(answers[i].error, rows[i], "eval")
            if self._spec.on_error == "fail":
                raise error
            self.ctx.metrics.inc("numRecordsInErrors")
            if self.ctx.report_error is not None:
                self.ctx.report_error(error, batch.slice(i, 1).to_pylist()[0])
        if failed:
            kept = np.setdiff1d(np.arange(batch.num_rows), failed)
            batch, answers = batch.take(kept), [answers[i] for i in kept.tolist()]
        items = [item for answer in answers for item in answer]
        parents = [i for i, answer in enumerate(answers) for _ in answer]
        yield from self._joined(batch, *self._rows(items, parents))

    async def _gathered(self, *args: Any) -> list[Any]:
        found = self._call(*args)
        if inspect.isasyncgen(found):
            return [item async for item in found]
        return list(await found or ())


def make_table_function(spec: TableFunctionSpec) -> TableFunctionOperator:
    """The operator of a ``TableFunctionSpec``, asynchronous or not."""
    return AsyncTableFunctionOperator(spec) if spec.asynchronous else TableFunctionOperator(spec)


def expanded(column: Column) -> Expanded:
    """The elements of a column of collections: an ARRAY gives its elements (of ROWs, the fields), a MAP keys and
    values, a MULTISET each element once per copy."""
    lists: Any = column.values
    type_ = column.type
    if isinstance(type_, (t.MapType, t.MultisetType)):
        # A map is a list of entries with the same offsets and validity bitmap.
        entry = pa.struct([("key", lists.type.key_type), ("value", lists.type.item_type)])
        lists = lists.cast(pa.list_(entry))
    parents = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    items = pc.list_flatten(lists)
    match type_:
        case t.MultisetType(element=element):
            counts = pc.struct_field(items, [1]).to_numpy(zero_copy_only=False).astype(np.int64)
            repeat = np.repeat(np.arange(len(items)), counts)
            return [Column.from_arrow(element, pc.struct_field(items, [0])).take(repeat)], parents[repeat]
        case t.MapType(key=key, value=value):
            names, values = (pc.struct_field(items, [i]) for i in (0, 1))
            return [Column.from_arrow(key, names), Column.from_arrow(value, values)], parents
        case t.ArrayType(element=t.RowType() as row):
            whole = Column(row, items)
            return [whole.child(i) for i in range(len(row.fields))], parents
        case t.ArrayType(element=element):
            return [Column.from_arrow(element, items)], parents
    raise UnsupportedError("UNNEST of a value that is no collection", got=str(type_))


def _side_by_side(several: Sequence[Expanded]) -> Expanded:
    """The rows of several expansions, matched by their place among the rows of one parent."""
    places = [np.stack([parents, _ordinals(parents)]) for _, parents in several]
    every = np.unique(np.concatenate(places, axis=1), axis=1)
    columns: list[Column] = []
    for (parts, _), own in zip(several, places, strict=True):
        source = np.full(every.shape[1], -1)
        if own.shape[1]:
            # Both are sorted by parent and place; ``every`` has each pair of ``own``.
            width = int(every[1].max()) + 1
            source[np.searchsorted(every[0] * width + every[1], own[0] * width + own[1])] = np.arange(
                own.shape[1]
            )
        columns += [part.take_or_null(source) for part in parts]
    return columns, every[0]


def _padded(columns: list[Column], parents: np.ndarray, n: int) -> Expanded:
    """Add a row of NULLs, in its place, for each of the ``n`` parents that has no row."""
    missing = np.setdiff1d(np.arange(n), parents)
    if not len(missing):
        return columns, parents
    all_parents = np.concatenate([parents, missing])
    source = np.concatenate([np.arange(len(parents)), np.full(len(missing), -1)])
    order = np.argsort(all_parents, kind="stable")
    return [c.take_or_null(source[order]) for c in columns], all_parents[order]


def _ordinals(parents: np.ndarray) -> np.ndarray:
    """The ordinals 1, 2, … within each run of equal parents."""
    if not len(parents):
        return parents
    starts = np.flatnonzero(np.concatenate(([True], parents[1:] != parents[:-1])))
    lengths = np.diff(np.concatenate((starts, [len(parents)])))
    return np.arange(len(parents)) - np.repeat(starts, lengths) + 1
