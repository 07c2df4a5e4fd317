"""The methods of ``Expression`` for numbers, NULL, hashes and bitmaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.table.expression_base import ExpressionBase

if TYPE_CHECKING:
    from penstock.table.expression import Expression


class Numbers(ExpressionBase):
    """The methods for numbers, NULL, hashes and bitmaps."""

    __slots__ = ()

    @property
    def exp(self) -> Expression:
        """e to the power of this number."""
        return self._call("EXP")

    @property
    def log10(self) -> Expression:
        """The logarithm to the base 10."""
        return self._call("LOG10")

    @property
    def log2(self) -> Expression:
        """The logarithm to the base 2."""
        return self._call("LOG2")

    @property
    def ln(self) -> Expression:
        """The natural logarithm."""
        return self._call("LN")

    @property
    def cosh(self) -> Expression:
        """The hyperbolic cosine."""
        return self._call("COSH")

    @property
    def sinh(self) -> Expression:
        """The hyperbolic sine."""
        return self._call("SINH")

    @property
    def sin(self) -> Expression:
        """The sine of an angle in radians."""
        return self._call("SIN")

    @property
    def cos(self) -> Expression:
        """The cosine of an angle in radians."""
        return self._call("COS")

    @property
    def tan(self) -> Expression:
        """The tangent of an angle in radians."""
        return self._call("TAN")

    @property
    def cot(self) -> Expression:
        """The cotangent of an angle in radians."""
        return self._call("COT")

    @property
    def asin(self) -> Expression:
        """The arc sine, in radians."""
        return self._call("ASIN")

    @property
    def acos(self) -> Expression:
        """The arc cosine, in radians."""
        return self._call("ACOS")

    @property
    def atan(self) -> Expression:
        """The arc tangent, in radians."""
        return self._call("ATAN")

    @property
    def tanh(self) -> Expression:
        """The hyperbolic tangent."""
        return self._call("TANH")

    @property
    def degrees(self) -> Expression:
        """Radians as degrees."""
        return self._call("DEGREES")

    @property
    def radians(self) -> Expression:
        """Degrees as radians."""
        return self._call("RADIANS")

    @property
    def sqrt(self) -> Expression:
        """The square root."""
        return self._call("SQRT")

    @property
    def abs(self) -> Expression:
        """The absolute value."""
        return self._call("ABS")

    @property
    def sign(self) -> Expression:
        """The sign of the number: -1, 0 or 1."""
        return self._call("SIGN")

    @property
    def bin(self) -> Expression:
        """A whole number in binary digits."""
        return self._call("BIN")

    @property
    def hex(self) -> Expression:
        """A number or text in hexadecimal digits."""
        return self._call("HEX")

    @property
    def unhex(self) -> Expression:
        """Hexadecimal digits as bytes."""
        return self._call("UNHEX")

    def round(self, places: Any) -> Expression:
        """The number rounded to ``places`` digits after the point."""
        return self._call("ROUND", places)

    def truncate(self, n: Any = 0) -> Expression:
        """The number cut to ``n`` digits after the point."""
        return self._call("TRUNCATE", n)

    def if_null(self, null_replacement: Any) -> Expression:
        """This value, or ``null_replacement`` if this value is NULL."""
        return self._call("IFNULL", null_replacement)

    def sha2(self, hash_length: Any) -> Expression:
        """The SHA-2 hash of ``hash_length`` bits, in hexadecimal digits."""
        return self._call("SHA2", hash_length)

    @property
    def md5(self) -> Expression:
        """The MD5 hash, in hexadecimal digits."""
        return self._call("MD5")

    @property
    def sha1(self) -> Expression:
        """The SHA-1 hash, in hexadecimal digits."""
        return self._call("SHA1")

    @property
    def sha224(self) -> Expression:
        """The SHA-224 hash, in hexadecimal digits."""
        return self._call("SHA224")

    @property
    def sha256(self) -> Expression:
        """The SHA-256 hash, in hexadecimal digits."""
        return self._call("SHA256")

    @property
    def sha384(self) -> Expression:
        """The SHA-384 hash, in hexadecimal digits."""
        return self._call("SHA384")

    @property
    def sha512(self) -> Expression:
        """The SHA-512 hash, in hexadecimal digits."""
        return self._call("SHA512")

    def bitmap_and(self, bitmap2: Any) -> Expression:
        """The engine has no bitmaps: the query is refused."""
        return self._call("BITMAP_AND", bitmap2)

    def bitmap_andnot(self, bitmap2: Any) -> Expression:
        """The engine has no bitmaps: the query is refused."""
        return self._call("BITMAP_ANDNOT", bitmap2)

    def bitmap_and_agg(self) -> Expression:
        """The engine has no bitmaps: the query is refused."""
        return self._call("BITMAP_AND_AGG")

    def bitmap_and_cardinality_agg(self) -> Expression:
        """The engine has no bitmaps: the query is refused."""
        return self._call("BITMAP_AND_CARDINALITY_AGG")

    def bitmap_build(self) -> Expression:
        """The engine has no bitmaps: the query is refused."""
        return self._call("BITMAP_BUILD")

    def bitmap_build_agg(self) -> Expression:
        """The engine has no bitmaps: the query is refused."""
        return self._call("BITMAP_BUILD_AGG")

    def bitmap_build_cardinality_agg(self) -> Expression:
        """The engine has no bitmaps: the query is refused."""
        return self._call("BITMAP_BUILD_CARDINALITY_AGG")

    def bitmap_cardinality(self) -> Expression:
        """The engine has no bitmaps: the query is refused."""
        return self._call("BITMAP_CARDINALITY")

    def bitmap_from_bytes(self) -> Expression:
        """The engine has no bitmaps: the query is refused."""
        return self._call("BITMAP_FROM_BYTES")

    def bitmap_or(self, bitmap2: Any) -> Expression:
        """The engine has no bitmaps: the query is refused."""
        return self._call("BITMAP_OR", bitmap2)

    def bitmap_or_agg(self) -> Expression:
        """The engine has no bitmaps: the query is refused."""
        return self._call("BITMAP_OR_AGG")

    def bitmap_or_cardinality_agg(self) -> Expression:
        """The engine has no bitmaps: the query is refused."""
        return self._call("BITMAP_OR_CARDINALITY_AGG")

    def bitmap_to_array(self) -> Expression:
        """The engine has no bitmaps: the query is refused."""
        return self._call("BITMAP_TO_ARRAY")

    def bitmap_to_bytes(self) -> Expression:
        """The engine has no bitmaps: the query is refused."""
        return self._call("BITMAP_TO_BYTES")

    def bitmap_to_string(self) -> Expression:
        """The engine has no bitmaps: the query is refused."""
        return self._call("BITMAP_TO_STRING")

    def bitmap_xor(self, bitmap2: Any) -> Expression:
        """The engine has no bitmaps: the query is refused."""
        return self._call("BITMAP_XOR", bitmap2)

    def bitmap_xor_agg(self) -> Expression:
        """The engine has no bitmaps: the query is refused."""
        return self._call("BITMAP_XOR_AGG")

    def bitmap_xor_cardinality_agg(self) -> Expression:
        """The engine has no bitmaps: the query is refused."""
        return self._call("BITMAP_XOR_CARDINALITY_AGG")
