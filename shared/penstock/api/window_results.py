"""The result of built-in aggregates over windows, and the columns that hold event times meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.api.datastream import DataStream
from penstock.api.transformations import Transformation, plain, transform
from penstock.errors import SpecError
from penstock.functions.expr import InputRef
from penstock.jobgraph.specs import RecordTimeSpec
from penstock.plan import nodes as n
from penstock.types import logical as t
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from penstock.operators.output_tag import OutputTag

_TIME = t.TimestampLtzType(3)


class WindowResult(DataStream):
    """The result of built-in aggregates. Late records are a side output of the aggregate step, not of the
    result's last step."""

    def __init__(
        self,
        env: Any,
        out: Transformation,
        aggregated: Transformation,
        late: Any,
        timed: Transformation,
        width: int,
    ) -> None:
        super().__init__(env, out)
        self._aggregated = aggregated
        self._late = late
        self._timed = timed
        self._width = width

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        if self._late is None or output_tag.tag_id != self._late.tag_id:
            raise SpecError(
                f"no side output '{output_tag.tag_id}'",
                expected="the tag given to side_output_late_data",
                got=repr(output_tag),
            )
        tag, whole = output_tag.tag_id, self._timed.schema
        # The aggregate sends whole input rows: the record, perhaps a key, and the time column.
        late = plain(
            lambda nodes, c: n.SideOutput(input=nodes[0], tag=tag, schema=whole),
            (self._aggregated,),
            whole,
            f"late {tag}",
        )
        spec = RecordTimeSpec(kind="assign", column=len(whole) - 1, drop=False)
        timed = transform(lambda s, c: spec, (late,), whole, "Event time")
        return DataStream(self._env, narrowed(timed, output_tag.schema, self._width))


def narrowed(step: Transformation, schema: Schema, width: int) -> Transformation:
    """A step that keeps the first ``width`` columns, under the names of ``schema``."""
    refs = tuple(InputRef(i, f.type) for i, f in enumerate(step.schema.fields[:width]))
    return plain(
        lambda inputs, c: n.Project(input=inputs[0], expressions=refs, schema=schema),
        (step,),
        schema,
        "Record",
    )


def with_time_column(step: Transformation) -> Transformation:
    """A step that adds the record's event time as the last column."""
    schema = Schema((*step.schema.fields, t.Field("__time", _TIME)))
    spec = RecordTimeSpec(kind="append")
    return transform(lambda s, c: spec, (step,), schema, "Event time column")
