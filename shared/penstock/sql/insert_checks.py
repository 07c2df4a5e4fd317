"""Which statements that write may be one job, and what they may read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.sql.catalog import Catalog
    from penstock.sql.statements import Insert


def check_together(catalog: Catalog, inserts: Sequence[Insert]) -> None:
    """Raise UnsupportedError if a job overwrites a table into which it also inserts, since one would undo the other, or
    has DELETE or UPDATE beside another statement, since the one would not see what the other does."""
    targets = [catalog.catalogs.canonical(i.table) for i in inserts]
    for insert in inserts:
        if insert.change is not None and len(inserts) > 1:
            raise UnsupportedError(
                f"{insert.verb} beside other statements in one job",
                expected="a job of its own",
                got=f"{len(inserts)} statements in one job",
                where=str(insert.position),
                remedy="run the script with penstock sql -f, which makes a job of each, one after the other",
            )
        if insert.overwrite and targets.count(catalog.catalogs.canonical(insert.table)) > 1:
            raise UnsupportedError(
                f"INSERT OVERWRITE beside another INSERT into table '{insert.table}'",
                expected="one INSERT into it in a statement set",
                where=str(insert.position),
                remedy="UNION ALL the queries",
            )


def check_bounded(inserts: Sequence[Insert], *, bounded: bool) -> None:
    """Raise UnsupportedError if a statement that replaces rows reads an unbounded query."""
    for insert in inserts:
        if bounded or not (insert.overwrite or insert.change is not None):
            continue
        overwrites = insert.overwrite
        raise UnsupportedError(
            ("INSERT OVERWRITE" if overwrites else insert.verb) + " of an unbounded query",
            expected="bounded sources: the old rows go when the new ones are complete",
            got="an unbounded source",
            where=str(insert.position),
            remedy="INSERT INTO, or bound the sources" if overwrites else "bound the sources",
        )
