"""The methods of ``Expression`` for texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.table.expression_base import ExpressionBase

if TYPE_CHECKING:
    from penstock.table.expression import Expression


class Texts(ExpressionBase):
    """The methods for texts."""

    __slots__ = ()

    def starts_with(self, start_expr: Any) -> Expression:
        """Whether the text begins with ``start_expr``."""
        return self._call("STARTSWITH", start_expr)

    def ends_with(self, end_expr: Any) -> Expression:
        """Whether the text ends with ``end_expr``."""
        return self._call("ENDSWITH", end_expr)

    def substring(self, begin_index: Any, length: Any = None) -> Expression:
        """``length`` characters (None: all) of the text, from character
        ``begin_index`` (the first is 1) on."""
        return self._call("SUBSTRING", begin_index, length)

    def substr(self, begin_index: Any, length: Any = None) -> Expression:
        """As ``substring``."""
        return self._call("SUBSTR", begin_index, length)

    def replace(self, search: Any, replacement: Any) -> Expression:
        """The text with ``replacement`` in the place of each ``search``."""
        return self._call("REPLACE", search, replacement)

    def translate(self, from_str: Any, to_str: Any) -> Expression:
        """The text with each character of ``from_str`` replaced by the character
        at the same place in ``to_str``."""
        return self._call("TRANSLATE", from_str, to_str)

    @property
    def char_length(self) -> Expression:
        """The number of characters."""
        return self._call("CHAR_LENGTH")

    @property
    def upper_case(self) -> Expression:
        """The text in capitals."""
        return self._call("UPPER")

    @property
    def lower_case(self) -> Expression:
        """The text in small letters."""
        return self._call("LOWER")

    @property
    def init_cap(self) -> Expression:
        """The text with a capital at the beginning of each word."""
        return self._call("INITCAP")

    def position(self, haystack: Any) -> Expression:
        """The position at which this text begins in ``haystack``, from 1; 0 if it is not there."""
        return self._call("POSITION", haystack)

    def lpad(self, length: Any, pad: Any) -> Expression:
        """The text filled up to ``length`` characters with ``pad`` at its left."""
        return self._call("LPAD", length, pad)

    def rpad(self, length: Any, pad: Any) -> Expression:
        """The text filled up to ``length`` characters with ``pad`` at its right."""
        return self._call("RPAD", length, pad)

    def overlay(self, new_string: Any, starting: Any, length: Any = None) -> Expression:
        """The text with ``new_string`` in the place of ``length`` characters from ``starting`` on."""
        return self._call("OVERLAY", new_string, starting, length)

    def regexp(self, regex: Any) -> Expression:
        """Whether ``regex`` matches somewhere in the text."""
        return self._call("REGEXP", regex)

    def regexp_count(self, regex: Any) -> Expression:
        """The number of matches of ``regex``."""
        return self._call("REGEXP_COUNT", regex)

    def regexp_replace(self, regex: Any, replacement: Any) -> Expression:
        """The text with ``replacement`` in the place of each match of ``regex``."""
        return self._call("REGEXP_REPLACE", regex, replacement)

    def regexp_extract(self, regex: Any, extract_index: Any = None) -> Expression:
        """The first match of ``regex``, or the match's group ``extract_index``."""
        return self._call("REGEXP_EXTRACT", regex, extract_index)

    def regexp_extract_all(self, regex: Any, extract_index: Any = None) -> Expression:
        """All matches of ``regex``, or the matches' groups ``extract_index``."""
        return self._call("REGEXP_EXTRACT_ALL", regex, extract_index)

    def regexp_instr(self, regex: Any) -> Expression:
        """The position at which the first match of ``regex`` begins, from 1."""
        return self._call("REGEXP_INSTR", regex)

    def regexp_substr(self, regex: Any) -> Expression:
        """The first match of ``regex``."""
        return self._call("REGEXP_SUBSTR", regex)

    @property
    def from_base64(self) -> Expression:
        """The text decoded from Base64."""
        return self._call("FROM_BASE64")

    @property
    def to_base64(self) -> Expression:
        """The text in Base64."""
        return self._call("TO_BASE64")

    @property
    def ascii(self) -> Expression:
        """The code of the first character."""
        return self._call("ASCII")

    @property
    def chr(self) -> Expression:
        """The character that has this number as its code."""
        return self._call("CHR")

    def decode(self, charset: Any) -> Expression:
        """The bytes decoded as text of ``charset``."""
        return self._call("DECODE", charset)

    def encode(self, charset: Any) -> Expression:
        """The text encoded as bytes of ``charset``."""
        return self._call("ENCODE", charset)

    def left(self, length: Any) -> Expression:
        """The first ``length`` characters."""
        return self._call("LEFT", length)

    def right(self, length: Any) -> Expression:
        """The last ``length`` characters."""
        return self._call("RIGHT", length)

    def instr(self, s: Any) -> Expression:
        """The position at which ``s`` begins in the text, from 1; 0 if it is not there."""
        return self._call("INSTR", s)

    def locate(self, s: Any, pos: Any = None) -> Expression:
        """The position, at ``pos`` or behind, at which this text begins in
        ``s``, from 1; 0 if it is not there."""
        return self._call("LOCATE", s, pos)

    def url_decode(self) -> Expression:
        """The text decoded from a URL."""
        return self._call("URL_DECODE")

    def url_encode(self) -> Expression:
        """The text encoded as a part of a URL."""
        return self._call("URL_ENCODE")

    def inet_aton(self) -> Expression:
        """The engine has no such function: the query is refused."""
        return self._call("INET_ATON")

    def inet_ntoa(self) -> Expression:
        """The engine has no such function: the query is refused."""
        return self._call("INET_NTOA")

    def parse_url(self, part_to_extract: Any, key: Any = None) -> Expression:
        """A part of a URL: HOST, PATH, QUERY, REF, PROTOCOL, AUTHORITY, FILE, USERINFO."""
        return self._call("PARSE_URL", part_to_extract, key)

    def printf(self, *obj: Any) -> Expression:
        """The values ``obj`` formatted by this text, a pattern of printf."""
        return self._call("PRINTF", *obj)

    def ltrim(self, trim_str: Any = None) -> Expression:
        """The text without the characters ``trim_str`` (None: blanks) at its left."""
        return self._call("LTRIM", trim_str)

    def rtrim(self, trim_str: Any = None) -> Expression:
        """The text without the characters ``trim_str`` (None: blanks) at its right."""
        return self._call("RTRIM", trim_str)

    def btrim(self, trim_str: Any = None) -> Expression:
        """The text without the characters ``trim_str`` (None: blanks) at both ends."""
        return self._call("BTRIM", trim_str)

    def repeat(self, n: Any) -> Expression:
        """The text repeated ``n`` times."""
        return self._call("REPEAT", n)

    @property
    def reverse(self) -> Expression:
        """The text backwards."""
        return self._call("REVERSE")

    def split_index(self, separator: Any, index: Any) -> Expression:
        """The part ``index`` (from 0) of the text, which ``separator`` splits."""
        return self._call("SPLIT_INDEX", separator, index)

    def split(self, delimiter: Any) -> Expression:
        """The parts of the text between ``delimiter``, as an ARRAY."""
        return self._call("SPLIT", delimiter)

    def str_to_map(self, list_delimiter: Any = None, key_value_delimiter: Any = None) -> Expression:
        """The text as a MAP. The delimiters are ``,`` and ``=`` if they are None."""
        return self._call("STR_TO_MAP", list_delimiter, key_value_delimiter)

    def elt(self, expr: Any, *exprs: Any) -> Expression:
        """The argument whose position, from 1, is this number."""
        return self._call("ELT", expr, *exprs)

    def json_quote(self) -> Expression:
        """The text as a quoted string of JSON."""
        return self._call("JSON_QUOTE")

    def json_unquote(self) -> Expression:
        """The text that a quoted string of JSON holds."""
        return self._call("JSON_UNQUOTE")

    def object_update(self, *kv: Any) -> Expression:
        """The engine has no such function: the query is refused."""
        return self._call("OBJECT_UPDATE", *kv)
