"""Random calls of functions and casts, with their words for DuckDB.

Where the two differ by definition (a NULL among the arguments of CONCAT or GREATEST, the rounding of a CAST), DuckDB gets the
same in other words. What only Flink has is marked by ``OURS``: such a query is compared from engine to engine.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.fuzz.tree import Node, leaf

#: Stands in DuckDB's text of what DuckDB does not have.
OURS = "\x00"
Thunk = Callable[[], Node]
Again = Callable[[str], Node]

_JSON = [
    '{"a":1,"b":[1,2,{"c":"x"}],"c":null,"d":"y"}', '{"a":"x","b":[],"d":true}', '{"a":-7,"b":{"c":"z"},"d":1.5}', "[1,null,3]", "{}",
    '{"a":null}', '"x"', "1", "null", '{"a":[{"b":"p"},{"b":"q"}],"d":"ä\\u00e9"}',
]  # fmt: skip
_PATHS = ["$.a", "$.b", "$.b[0]", "$.b[2].c", "$.b.c", "$.c", "$.d", "$.zz", "$[1]", "$.a[1].b", "$"]
#: Texts that a CAST may or may not read as a number, a boolean, a date or a timestamp.
_TEXTS = [
    "1e400", "-1e400", "1e-400", "NaN", "Infinity", "-inf", " 1 ", "1e5", "0x10", "1_000", "", ".5", "5.", "+7", "-0", "2147483648",
    "9223372036854775807", "9223372036854775808", "1.5", "true", "T", "yes", "2024-02-29", "2023-02-29", "2024-1-5", "2024-01-01 10:00:00",
    "2024-01-01 10:00:00.123456", "2024-01-01T10:00:00", "10000-01-01", "0001-01-01", "12:00", "99999999.995", "1e2", "٣",
]  # fmt: skip
_WILD = ["INT", "BIGINT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(14, 4)", "BOOLEAN", "DATE", "TIMESTAMP(3)"]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''").replace("{", "{{").replace("}", "}}") + "'"


def _whole(template: str, kind: str, duckdb: str | None = None) -> tuple[str, str | None]:
    return f"CAST({template} AS {kind})", None if duckdb is None else f"CAST({duckdb} AS {kind})"


class Functions:
    """Calls of functions of each type."""

    r: random.Random

    def calls(self, kind: str, again: Again) -> list[Thunk]:
        """``again``: an expression of a type, for the arguments."""
        match kind:
            case "INT" | "BIGINT":
                made = self._whole_numbers(kind, again)
            case "DOUBLE":
                made = self._doubles(kind, again)
            case "DECIMAL(10, 2)" | "DECIMAL(14, 4)":
                made = self._decimals(kind, again)
            case "STRING":
                made = self._texts(kind, again)
            case "BOOLEAN":
                made = self._booleans(kind, again)
            case "DATE":
                made = self._dates(kind, again)
            case _:
                made = self._timestamps(kind, again)
        if kind in _WILD:
            made.append(lambda: self._wild(kind))
            made.append(lambda: Node(kind, f"TRY_CAST({{0}} AS {kind})", (again("STRING"),), OURS + "{0}"))
        if kind != "BOOLEAN":
            word = self.r.choice(["GREATEST", "LEAST"])
            made.append(lambda: Node(kind, f"{word}({{0}}, {{1}})", (again(kind), again(kind)),
                                     f"(CASE WHEN {{0}} IS NOT NULL AND {{1}} IS NOT NULL THEN {word}({{0}}, {{1}}) END)"))  # fmt: skip
        made.append(
            lambda: Node(
                kind,
                "IF({0}, {1}, {2})",
                (again("BOOLEAN"), again(kind), again(kind)),
                "CASE WHEN {0} THEN {1} ELSE {2} END",
            )
        )
        place = self.r.randint(1, 3)
        made.append(
            lambda: Node(
                kind, f"ARRAY[{{0}}, {{1}}][{place}]", (again(kind), again(kind)), f"[{{0}}, {{1}}][{place}]"
            )
        )
        return made

    def _wild(self, kind: str) -> Node:
        """TRY_CAST of a text of which the engines must think the same, folded or read from a row."""
        text = _quoted(self.r.choice(_TEXTS))
        if self.r.random() < 0.5:
            return leaf(kind, f"TRY_CAST({text} AS {kind})", OURS)
        return leaf(kind, f"TRY_CAST(SPLIT_INDEX({text} || ';', ';', 0) AS {kind})", OURS)

    def _json(self, again: Again) -> tuple[Node, str, str]:
        """A JSON text of one of two, with a NULL now and then; a path."""
        r = self.r
        first, second = _quoted(r.choice(_JSON)), _quoted(r.choice(_JSON))
        node = Node(
            "json",
            f"CASE WHEN {{0}} THEN {first} WHEN {{1}} THEN {second} END",
            (again("BOOLEAN"), again("BOOLEAN")),
        )
        return node, r.choice(_PATHS), r.choice(["a", "b", "c", "d", "zz"])

    def _whole_numbers(self, kind: str, again: Again) -> list[Thunk]:
        r = self.r

        def one(ours: str, of: str, duckdb: str | None = None) -> Thunk:
            text, theirs = _whole(ours, kind, duckdb)
            return lambda: Node(kind, text, (again(of),), theirs)

        def two(ours: str, of: str, duckdb: str | None = None) -> Thunk:
            text, theirs = _whole(ours, kind, duckdb)
            return lambda: Node(kind, text, (again(of), again(of)), theirs)

        def from_json() -> Node:
            node, path, key = self._json(again)
            if r.random() < 0.5:
                return Node(
                    kind,
                    f"JSON_VALUE({{0}}, '{path}' RETURNING {'INTEGER' if kind == 'INT' else kind})",
                    (node,),
                    OURS + "{0}",
                )
            return Node(kind, f"TRY_CAST(PARSE_JSON({{0}})['{key}'] AS {kind})", (node,), OURS + "{0}")

        unit = r.choice(["SECOND", "MINUTE", "HOUR", "DAY"])
        part = r.choice(["QUARTER", "DOY", "WEEK", "YEAR"])
        clock = r.choice(["HOUR", "MINUTE", "SECOND"])
        months = r.choice(["MONTH", "YEAR"])
        return [
            one(f"POSITION('{r.choice(['x', 'y', 'xy'])}' IN {{0}})", "STRING"),
            one("SIGN({0})", kind),
            one("{0}", "DOUBLE", "TRUNC({0})"),
            one("{0}", r.choice(["DECIMAL(10, 2)", "DECIMAL(14, 4)"]), "TRUNC({0})"),
            one("{0}", "BOOLEAN"),
            lambda: Node(kind, f"TRY_CAST(CAST({{0}} AS STRING) AS {kind})", (again(kind),)),
            two("MOD({0}, NULLIF({1}, 0))", kind, "({0} % NULLIF({1}, 0))"),
            two("{0} / NULLIF({1}, 0)", kind, "({0} // NULLIF({1}, 0))"),
            one(f"EXTRACT({part} FROM {{0}})", r.choice(["DATE", "TIMESTAMP(3)"])),
            one("DAYOFWEEK({0})", "DATE", "EXTRACT(DOW FROM {0}) + 1"),
            one(f"EXTRACT({clock} FROM {{0}})", "TIMESTAMP(3)"),
            two(f"TIMESTAMPDIFF({unit}, {{0}}, {{1}})", "TIMESTAMP(3)", f"datesub('{unit.lower()}', {{0}}, {{1}})"),
            two(f"TIMESTAMPDIFF({months}, {{0}}, {{1}})", "TIMESTAMP(3)", OURS + "{0}{1}"),
            two("CARDINALITY(ARRAY[{0}, {1}])", kind, "len([{0}, {1}])"),
            one("CARDINALITY(ARRAY_DISTINCT(ARRAY[{0}, 1, 1, CAST(NULL AS INT)]))", "INT", OURS + "{0}"),
            one("MAP['x', 1, 'y', 2][{0}]", "STRING", "CASE {0} WHEN 'x' THEN 1 WHEN 'y' THEN 2 END"),
            one("ASCII({0})", "STRING", OURS + "{0}"),
            from_json,
        ]  # fmt: skip

    def _doubles(self, kind: str, again: Again) -> list[Thunk]:
        digits = self.r.choice([0, 1, 2])

        def from_json() -> Node:
            node, path, key = self._json(again)
            if self.r.random() < 0.5:
                return Node(kind, f"JSON_VALUE({{0}}, '{path}' RETURNING DOUBLE)", (node,), OURS + "{0}")
            return Node(kind, f"TRY_CAST(PARSE_JSON({{0}})['{key}'] AS DOUBLE)", (node,), OURS + "{0}")

        return [
            lambda: Node(kind, "SQRT(ABS({0}))", (again(kind),)),
            lambda: Node(kind, f"ROUND({{0}}, {digits})", (again(kind),)),
            lambda: Node(kind, "CEIL({0})", (again(kind),)),
            lambda: Node(kind, "TRUNCATE({0}, 0)", (again(kind),), "TRUNC({0})"),
            lambda: Node(kind, "({0} / NULLIF({1}, 0))", (again(kind), again(kind))),
            lambda: Node(kind, "POWER({0}, 2)", (again("INT"),)),
            lambda: Node(kind, "TRY_CAST(CAST({0} AS STRING) AS DOUBLE)", (again(kind),), "{0}"),
            lambda: Node(kind, "EXP({0})", (again("INT"),), OURS + "{0}"),
            from_json,
        ]  # fmt: skip

    def _decimals(self, kind: str, again: Again) -> list[Thunk]:
        r = self.r
        digits, other = r.choice([0, 1, 2]), r.choice(["DECIMAL(10, 2)", "DECIMAL(14, 4)"])
        return [
            lambda: Node(kind, f"CAST(ROUND({{0}}, {digits}) AS {kind})", (again(other),)),
            lambda: Node(kind, f"CAST({r.choice(['FLOOR', 'CEIL'])}({{0}}) AS {kind})", (again(other),)),
            lambda: Node(kind, f"CAST(({{0}} * {{1}}) AS {kind})", (again(kind), again(other))),
            lambda: Node(kind, f"CAST(({{0}} * {{1}}) AS {kind})", (again(kind), again("INT"))),
            lambda: Node(kind, f"CAST(({{0}} / NULLIF({{1}}, 0)) AS {kind})", (again(kind), again(other)), OURS + "{0}{1}"),
            lambda: Node(kind, f"CAST({{0}} AS {kind})", (again("DOUBLE"),)),
            lambda: Node(kind, f"CAST({{0}} AS {kind})", (again(other),)),
            lambda: Node(kind, f"CAST(TRUNCATE({{0}}, {digits}) AS {kind})", (again(kind),), OURS + "{0}"),
            lambda: Node(kind, f"CAST(MOD({{0}}, NULLIF({{1}}, 0)) AS {kind})", (again(kind), again(other)), f"CAST(({{0}} % NULLIF({{1}}, 0)) AS {kind})"),
            lambda: Node(kind, f"TRY_CAST(CAST({{0}} AS STRING) AS {kind})", (again(kind),)),
        ]  # fmt: skip

    def _texts(self, kind: str, again: Again) -> list[Thunk]:
        r = self.r
        n = r.randint(0, 4)

        def s(ours: str, duckdb: str | None = None, of: str = kind) -> Thunk:
            return lambda: Node(kind, ours, (again(of),), duckdb)

        def json_value() -> Node:
            node, path, _ = self._json(again)
            theirs = f"CASE WHEN json_type({{0}}, '{path}') IN ('OBJECT', 'ARRAY') THEN NULL ELSE json_extract_string({{0}}, '{path}') END"
            return Node(kind, f"JSON_VALUE({{0}}, '{path}')", (node,), theirs)

        def json_query() -> Node:
            node, path, _ = self._json(again)
            theirs = f"CASE WHEN json_type({{0}}, '{path}') IN ('OBJECT', 'ARRAY') THEN CAST(json_extract({{0}}, '{path}') AS VARCHAR) END"
            return Node(kind, f"JSON_QUERY({{0}}, '{path}')", (node,), theirs)

        def variant() -> Node:
            node, _, key = self._json(again)
            ours = r.choice([f"JSON_STRING(PARSE_JSON({{0}})['{key}'])", f"TRY_CAST(PARSE_JSON({{0}})['{key}'] AS STRING)",
                             f"TYPEOF(PARSE_JSON({{0}})['{key}'])", "JSON_STRING(TRY_PARSE_JSON({0}))"])  # fmt: skip
            return Node(kind, ours, (node,), OURS + "{0}")

        where, of = r.choice([("LEADING", "ltrim"), ("TRAILING", "rtrim"), ("BOTH", "trim")])
        side = r.choice(["LPAD", "RPAD"])
        return [
            s(f"{side}({{0}}, {n}, 'ab')"),
            s(f"{r.choice(['LEFT', 'RIGHT'])}({{0}}, {n})"),
            s("REVERSE({0})"),
            s(f"REPEAT({{0}}, {n})"),
            lambda: Node(kind, "CONCAT({0}, {1})", (again(kind), again(kind)), "({0} || {1})"),
            lambda: Node(kind, "CONCAT_WS('-', {0}, {1})", (again(kind), again(kind))),
            s(f"SUBSTRING({{0}}, -{n + 1}, 2)"),
            s("REGEXP_REPLACE({0}, '[xy]', '_')", "REGEXP_REPLACE({0}, '[xy]', '_', 'g')"),
            s("REGEXP_EXTRACT({0}, '(x)(y?)', 2)", "CASE WHEN regexp_matches({0}, '(x)(y?)') THEN regexp_extract({0}, '(x)(y?)', 2) END"),
            s(f"TRIM({where} 'x' FROM {{0}})", f"{of}({{0}}, 'x')"),
            s("CAST({0} AS STRING)", "UPPER(CAST({0} AS VARCHAR))", "BOOLEAN"),
            s("CAST({0} AS STRING)", "strftime({0}, '%Y-%m-%d %H:%M:%S.%g')", "TIMESTAMP(3)"),
            s("CAST({0} AS STRING)", OURS + "{0}", "DOUBLE"),
            s(f"CAST(CAST({{0}} AS VARCHAR({n + 1})) AS STRING)", f"LEFT({{0}}, {n + 1})"),
            s(f"CAST(CAST({{0}} AS CHAR({n + 1})) AS STRING)", OURS + "{0}"),
            s("DATE_FORMAT({0}, 'yyyy-MM-dd HH:mm')", "strftime({0}, '%Y-%m-%d %H:%M')", "TIMESTAMP(3)"),
            s("MD5({0})"), s("SHA256({0})"), s("TO_BASE64({0})", "to_base64(encode({0}))"),
            s("TRANSLATE({0}, 'xy', 'ab')"),
            s(f"SPLIT_INDEX({{0}}, 'y', {n})", OURS + "{0}"),
            s("INITCAP({0})", OURS + "{0}"),
            lambda: Node(kind, "OVERLAY({0} PLACING {1} FROM 2 FOR 1)", (again(kind), again(kind)), OURS + "{0}{1}"),
            lambda: Node(kind, "JSON_OBJECT(KEY 'k' VALUE {0} NULL ON NULL)", (again(r.choice(["INT", "BIGINT", "STRING", "BOOLEAN"])),),
                         "CAST(json_object('k', {0}) AS VARCHAR)"),
            lambda: Node(kind, "JSON_ARRAY({0}, {1} NULL ON NULL)", (again("INT"), again("STRING")), "CAST(json_array({0}, {1}) AS VARCHAR)"),
            lambda: Node(kind, "ARRAY_JOIN(ARRAY_SORT(ARRAY[{0}, {1}, 'm']), '+')", (again(kind), again(kind)), OURS + "{0}{1}"),
            json_value, json_query, variant,
        ]  # fmt: skip

    def _booleans(self, kind: str, again: Again) -> list[Thunk]:
        r = self.r

        def s(ours: str, duckdb: str | None = None, of: str = "STRING") -> Thunk:
            return lambda: Node(kind, ours, (again(of),), duckdb)

        def json_exists() -> Node:
            node, path, _ = self._json(again)
            return Node(kind, f"JSON_EXISTS({{0}}, '{path}')", (node,), f"json_exists({{0}}, '{path}')")

        return [
            s("{0} SIMILAR TO '(x|y)+'"),
            s("REGEXP({0}, 'x.*')", "regexp_matches({0}, 'x.*')"),
            s("STARTSWITH({0}, 'x')", "starts_with({0}, 'x')"), s("ENDSWITH({0}, 'y')", "ends_with({0}, 'y')"),
            s(f"({{0}} {r.choice(['IS TRUE', 'IS NOT TRUE', 'IS FALSE', 'IS NOT FALSE'])})", None, kind),
            s("({0} IS UNKNOWN)", "({0} IS NULL)", kind),
            s("CAST({0} AS BOOLEAN)", None, "INT"),
            s("({0} IS JSON)", OURS + "{0}"),
            lambda: Node(kind, "({0} LIKE {1})", (again("STRING"), again("STRING")), OURS + "{0}{1}"),
            lambda: Node(kind, "ARRAY_CONTAINS(ARRAY[{0}, {1}], {2})", (again("INT"), again("INT"), again("INT")), OURS + "{0}{1}{2}"),
            lambda: Node(kind, "(ROW({0}, {1}) = ROW({1}, {0}))", (again("INT"), again("INT")), OURS + "{0}{1}"),
            json_exists,
        ]  # fmt: skip

    def _dates(self, kind: str, again: Again) -> list[Thunk]:
        r = self.r
        unit, n = r.choice(["MONTH", "YEAR"]), r.randint(1, 14)
        sign = r.choice("+-")
        floor = r.choice(["MONTH", "YEAR", "QUARTER"])
        return [
            lambda: Node(kind, f"FLOOR({{0}} TO {floor})", (again(kind),), f"CAST(date_trunc('{floor}', {{0}}) AS DATE)"),
            lambda: Node(kind, f"CEIL({{0}} TO {unit})", (again(kind),), f"CAST(date_trunc('{unit}', {{0}} + INTERVAL 1 {unit} - INTERVAL 1 DAY) AS DATE)"),
            lambda: Node(kind, f"({{0}} {sign} INTERVAL '{n}' {unit})", (again(kind),), f"CAST({{0}} {sign} INTERVAL '{n}' {unit} AS DATE)"),
            lambda: Node(kind, f"TIMESTAMPADD({unit}, {n}, {{0}})", (again(kind),), f"CAST({{0}} + INTERVAL '{n}' {unit} AS DATE)"),
            lambda: Node(kind, "TO_DATE(CAST({0} AS STRING))", (again(kind),), "{0}"),
            lambda: Node(kind, "TO_DATE({0})", (again("STRING"),), OURS + "{0}"),
        ]  # fmt: skip

    def _timestamps(self, kind: str, again: Again) -> list[Thunk]:
        r = self.r
        unit, n, sign = r.choice(["MONTH", "YEAR"]), r.randint(1, 14), r.choice("+-")
        small = r.choice(["SECOND", "MINUTE", "HOUR", "DAY"])
        return [
            lambda: Node(kind, f"({{0}} {sign} INTERVAL '{n}' {unit})", (again(kind),)),
            lambda: Node(kind, f"({{0}} {sign} INTERVAL '1 02:03' DAY TO MINUTE)", (again(kind),), f"({{0}} {sign} INTERVAL '1 day 2 hours 3 minutes')"),
            lambda: Node(kind, f"({{0}} {sign} INTERVAL '1-2' YEAR TO MONTH)", (again(kind),), f"({{0}} {sign} INTERVAL '14 months')"),
            lambda: Node(kind, f"CEIL({{0}} TO {small})", (again(kind),), f"date_trunc('{small}', {{0}} + INTERVAL 1 {small} - INTERVAL 1 MILLISECOND)"),
            lambda: Node(kind, f"TIMESTAMPADD({small}, {n}, {{0}})", (again(kind),), f"({{0}} + INTERVAL '{n}' {small})"),
            lambda: Node(kind, "CAST(TO_TIMESTAMP(DATE_FORMAT({0}, 'yyyy-MM-dd HH:mm:ss')) AS TIMESTAMP(3))", (again(kind),), "date_trunc('second', {0})"),
            lambda: Node(kind, "CAST(CAST({0} AS STRING) AS TIMESTAMP(3))", (again(kind),), "{0}"),
            lambda: Node(kind, "CAST(CAST({0} AS STRING) AS TIMESTAMP(3))", (again("DATE"),), "CAST({0} AS TIMESTAMP)"),
            lambda: Node(kind, "CAST(TO_TIMESTAMP({0}) AS TIMESTAMP(3))", (again("STRING"),), OURS + "{0}"),
        ]  # fmt: skip
