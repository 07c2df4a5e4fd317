"""The methods of ``Expression`` for arrays and maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.table.expression_base import ExpressionBase

if TYPE_CHECKING:
    from penstock.table.expression import Expression


class Collections(ExpressionBase):
    """The methods for arrays and maps."""

    __slots__ = ()

    @property
    def cardinality(self) -> Expression:
        """The number of elements."""
        return self._call("CARDINALITY")

    @property
    def element(self) -> Expression:
        """The element of an array that has only one."""
        return self._call("ELEMENT")

    def array_append(self, addition: Any) -> Expression:
        """The array with ``addition`` at its end."""
        return self._call("ARRAY_APPEND", addition)

    def array_contains(self, needle: Any) -> Expression:
        """Whether ``needle`` is an element."""
        return self._call("ARRAY_CONTAINS", needle)

    def array_distinct(self) -> Expression:
        """The array without repeated elements."""
        return self._call("ARRAY_DISTINCT")

    def array_position(self, needle: Any) -> Expression:
        """The position of ``needle``, from 1; 0 if it is not an element."""
        return self._call("ARRAY_POSITION", needle)

    def array_prepend(self, addition: Any) -> Expression:
        """The array with ``addition`` at its beginning."""
        return self._call("ARRAY_PREPEND", addition)

    def array_remove(self, needle: Any) -> Expression:
        """The array without the elements that equal ``needle``."""
        return self._call("ARRAY_REMOVE", needle)

    def array_reverse(self) -> Expression:
        """The elements in reverse order."""
        return self._call("ARRAY_REVERSE")

    def array_slice(self, start_offset: Any, end_offset: Any = None) -> Expression:
        """The elements from position ``start_offset`` (the first is 1) to ``end_offset``."""
        return self._call("ARRAY_SLICE", start_offset, end_offset)

    def array_sort(self, ascending_order: Any = None, null_first: Any = None) -> Expression:
        """The elements in sorted order."""
        return self._call("ARRAY_SORT", ascending_order, null_first)

    def array_union(self, array: Any) -> Expression:
        """The elements of both arrays, each once."""
        return self._call("ARRAY_UNION", array)

    def array_concat(self, *arrays: Any) -> Expression:
        """The elements of all arrays, one array after the other."""
        return self._call("ARRAY_CONCAT", *arrays)

    def array_max(self) -> Expression:
        """The greatest element."""
        return self._call("ARRAY_MAX")

    def array_join(self, delimiter: Any, null_replacement: Any = None) -> Expression:
        """The elements as one text, with ``delimiter`` between them."""
        return self._call("ARRAY_JOIN", delimiter, null_replacement)

    def array_min(self) -> Expression:
        """The least element."""
        return self._call("ARRAY_MIN")

    def array_except(self, array: Any) -> Expression:
        """The elements that are not in ``array``."""
        return self._call("ARRAY_EXCEPT", array)

    def array_intersect(self, array: Any) -> Expression:
        """The elements that ``array`` contains, too."""
        return self._call("ARRAY_INTERSECT", array)

    @property
    def map_keys(self) -> Expression:
        """The keys as an ARRAY."""
        return self._call("MAP_KEYS")

    def map_union(self, *maps: Any) -> Expression:
        """The entries of all maps."""
        return self._call("MAP_UNION", *maps)

    @property
    def map_values(self) -> Expression:
        """The values as an ARRAY."""
        return self._call("MAP_VALUES")

    @property
    def map_entries(self) -> Expression:
        """The entries as an ARRAY of ROWs."""
        return self._call("MAP_ENTRIES")
