"""Makes the step of a process function, and finds the output schema and error policy of a user's function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.api.function_slots import check_function
from penstock.api.transformations import Compiler, Transformation, transform
from penstock.api.typeinfo import annotated_type, schema_of
from penstock.columnar.annotations import as_type
from penstock.errors import SpecError
from penstock.jobgraph import Broadcast, Hash
from penstock.jobgraph.specs import KeyedProcessSpec
from penstock.types import logical as t
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from penstock.api.datastream import DataStream
    from penstock.api.environment import StreamExecutionEnvironment

#: (step, key columns, leading columns that make the record or None for all)
Input = tuple[Transformation, tuple[int, ...], "int | None"]


def process_step(
    env: StreamExecutionEnvironment,
    inputs: list[Input],
    kind: str,
    func: Any,
    output_type: t.LogicalType | None,
    on_error: str,
    *,
    schema: Schema | None = None,
    batch: bool = False,
    name: str = "Process",
    method: str = "process_element",
) -> DataStream:
    """A process operator over one or two inputs."""
    on_error = policy(on_error)
    check_function(func, kind, on_error)
    out = schema or output_schema(func, output_type, "flat_map")
    widths = tuple(len(step.schema) if width is None else width for step, _, width in inputs)

    def spec(step: Transformation, compiler: Compiler) -> KeyedProcessSpec:
        return KeyedProcessSpec(
            kind=kind,  # type: ignore[arg-type]
            function=compiler.function(func, kind),
            keys=tuple(keys for _, keys, _ in inputs),
            per="batch" if batch else "record",
            on_error=on_error,  # type: ignore[arg-type]
            record_columns=widths,
            tags=tuple(sorted(step.tags)),
        )

    partitioning = []
    for i, (_, keys, _) in enumerate(inputs):
        broadcast = kind == "broadcast-process" and i == 1
        partitioning.append(Broadcast() if broadcast else Hash(keys) if keys else None)
    steps = tuple(step for step, _, _ in inputs)
    made = transform(spec, steps, out, name, tuple(partitioning), has_tags=True)
    return env.streams.plain(made)


def output_schema(func: Any, declared: Any, method: str, *, needed: bool = False) -> Schema:
    """The schema of a function's output: the declared type, else the annotated one, else pickled values."""
    if declared is not None and (known := as_type(declared)) is None:
        raise SpecError(
            "output_type is no type", expected="Types.…, or a class with fields", got=repr(declared)
        )
    found = (known if declared is not None else None) or (None if needed else annotated_type(func, method))
    if found is None and needed:
        raise SpecError(
            "a batch function needs its output type",
            expected="output_type=Types.…",
            got="none",
            remedy="Arrow results are not pickled: declare their type",
        )
    return schema_of(found or t.RawType())


def policy(on_error: str) -> str:
    if on_error not in ("fail", "skip", "dead-letter"):
        raise SpecError("unknown on_error", expected="fail | skip | dead-letter", got=repr(on_error))
    return on_error
