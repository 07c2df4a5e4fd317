"""Catalog tables as a plan needs them."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from penstock.functions.expr import Expr
from penstock.jobgraph.specs import WatermarkSpec
from penstock.plan.lineage import bounded
from penstock.types.logical import Schema

#: Options whose values are never written anywhere.
_SECRET = re.compile("password|secret|token|credential|key|user-info|user\\.info|jaas", re.IGNORECASE)


class MetadataColumn(msgspec.Struct, frozen=True):
    """``name``'s value is the connector's metadata ``key``."""

    name: str
    key: str


class TableRef(msgspec.Struct, frozen=True, kw_only=True):
    """A catalog table as a plan needs it. ``physical``: the connector's own columns; ``metadata``: the
    columns after them; ``computed``: expressions over (physical, metadata) that give ``schema``;
    ``watermark`` is over ``schema``'s columns. The connector declares ``guarantee``, ``changelog``,
    ``sink_modes``, ``nested_projection`` and ``unread_fields``."""

    name: str
    connector: str
    options: dict[str, str]
    physical: Schema
    schema: Schema
    metadata: tuple[MetadataColumn, ...] = ()
    computed: tuple[Expr, ...] | None = None
    watermark: WatermarkSpec | None = None
    primary_key: tuple[str, ...] = ()
    bounded: bool = False
    guarantee: str = ""
    sink_modes: tuple[str, ...] = ("append",)
    #: The columns whose equal values must reach one writer; empty: one writer takes all rows; None: any takes any.
    sink_shuffle: tuple[str, ...] | None = None
    #: The rows of the source: ``append``: inserts alone; ``upsert``: the newest row of each primary key and
    #: deletions, of which only the key and the metadata are known; ``retract``: old and new rows of changes.
    changelog: Literal["append", "upsert", "retract"] = "append"
    #: The source can deliver a ROW column with fewer fields.
    nested_projection: bool = False
    #: The source is told which fields of ROW columns nobody reads.
    unread_fields: bool = False
    #: The cache of a lookup join with the table, in words; empty = the table cannot be looked up.
    lookup: str = ""
    #: The options that determine which data the table holds; None = all options.
    location: tuple[str, ...] | None = None
    #: ``computed`` as it was before the source took over a filter; None = ``computed`` is unchanged.
    declared: tuple[Expr, ...] | None = None

    def parallelism(self, option: str) -> int | None:
        """The parallelism that the table's option ``scan.parallelism`` or ``sink.parallelism`` asks for."""
        asked = self.options.get(option)
        return None if asked is None else int(asked)

    def place(self) -> str:
        """The location of the table's data in words, without secrets."""
        if self.location is None:
            located = {k: v for k, v in self.options.items() if not _SECRET.search(k)}
        else:
            located = {k: self.options[k] for k in self.location if k in self.options}
        where = ", ".join(f"{k} = {v}" for k, v in sorted(located.items()) if k != "connector")
        return bounded(f"{self.connector}({where})")
