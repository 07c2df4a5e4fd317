"""Converts a stream's columns to those of a sink's table by the implicit casts of INSERT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config import LOCAL_TIME_ZONE
from penstock.errors import SpecError
from penstock.functions.expr import InputRef
from penstock.functions.inference import cast_expr, same_type
from penstock.sql.assigning import assignable, nullable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.functions.expr import Expr
    from penstock.types.logical import Schema


def implicit_casts(have: Schema, want: Schema, config: Mapping[str, str], what: str) -> tuple[Expr, ...]:
    """One expression for each column; empty if all types are equal. ``what``: the name of the target in
    errors. Raises SpecError when a column has no implicit cast to the declared type. A NULL in a NOT NULL
    column is found when the row is written."""
    if len(have) != len(want):
        raise SpecError(
            f"the stream does not fit {what}",
            expected=f"{len(want)} columns: {want}",
            got=f"{len(have)} columns: {have}",
            remedy="map the records to the sink's columns, in order",
        )
    for given, column in zip(have.fields, want.fields, strict=True):
        if not assignable(given.type.with_nullable(True), nullable(column.type)):
            raise SpecError(
                f"the stream does not fit {what}: column '{column.name}'",
                expected=f"{column.type}, or a type that becomes it by itself",
                got=f"{given.type} (column '{given.name}' of the stream)",
                remedy="map the records to the sink's types, in order, with output_type=Types.…",
            )
    if all(map(same_type, have.types, want.types)):
        return ()
    zone = LOCAL_TIME_ZONE.read(config)
    return tuple(
        cast_expr(
            InputRef(i, given),
            column.type.with_nullable(given.nullable),
            within=f"column '{column.name}' of {what}",
            zone=zone,
        )
        for i, (given, column) in enumerate(zip(have.types, want.fields, strict=True))
    )
