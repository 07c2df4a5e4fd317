"""The methods of ``Expression`` that aggregate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.table.expression_base import ExpressionBase

if TYPE_CHECKING:
    from penstock.table.expression import Expression


class Aggregates(ExpressionBase):
    """The methods that aggregate."""

    __slots__ = ()

    @property
    def sum(self) -> Expression:
        """The sum over a group."""
        return self._call("SUM")

    @property
    def min(self) -> Expression:
        """The least value of a group."""
        return self._call("MIN")

    @property
    def max(self) -> Expression:
        """The greatest value of a group."""
        return self._call("MAX")

    @property
    def count(self) -> Expression:
        """The number of values of a group that are not NULL."""
        return self._call("COUNT")

    @property
    def avg(self) -> Expression:
        """The mean over a group."""
        return self._call("AVG")

    @property
    def first_value(self) -> Expression:
        """The first value of a group."""
        return self._call("FIRST_VALUE")

    @property
    def last_value(self) -> Expression:
        """The last value of a group."""
        return self._call("LAST_VALUE")

    def list_agg(self, separator: Any = None) -> Expression:
        """The texts of a group as one text, with ``separator`` (None: a comma) between them."""
        return self._call("LISTAGG", separator)

    @property
    def stddev_pop(self) -> Expression:
        """The standard deviation of a group that is the whole population."""
        return self._call("STDDEV_POP")

    @property
    def stddev_samp(self) -> Expression:
        """The standard deviation of a group that is a sample."""
        return self._call("STDDEV_SAMP")

    @property
    def var_pop(self) -> Expression:
        """The variance of a group that is the whole population."""
        return self._call("VAR_POP")

    @property
    def var_samp(self) -> Expression:
        """The variance of a group that is a sample."""
        return self._call("VAR_SAMP")

    @property
    def collect(self) -> Expression:
        """The values of a group as a MULTISET."""
        return self._call("COLLECT")

    @property
    def array_agg(self) -> Expression:
        """The values of a group as an ARRAY."""
        return self._call("ARRAY_AGG")

    def percentile(self, percentage: Any, frequency: Any = None) -> Expression:
        """The value below which the part ``percentage`` (0 to 1) of a group lies."""
        return self._call("PERCENTILE", percentage, frequency)
