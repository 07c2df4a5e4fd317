"""The parser uses private names of sqlglot. A new version of it fails here, and says what to look at."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
import sqlglot
from sqlglot.parser import Parser
from sqlglot.tokens import Token, TokenType

import penstock.sql.parser_base

SQL = Path(penstock.sql.parser_base.__file__).parent
#: Modules whose ``self`` is a sqlglot parser.
PARSERS = ("ddl_syntax", "dialect", "function_syntax", "parser_base", "parsing", "type_syntax")
#: The version whose parser the lists below were read from.
VERSION = "30.30"

#: What the parser's methods read: the cursor over the statement's tokens.
CURSOR = ("_curr", "_index", "_next", "_prev", "_tokens")
#: Methods that Penstock calls, with the parameters that it may rely on.
CALLED = {
    "_advance": ("times",),
    "_match": ("token_type", "advance", "expression"),
    "_match_set": ("types", "advance"),
    "_match_text_seq": ("texts", "advance"),
    "_parse": ("parse_method", "raw_tokens", "sql"),
    "_parse_bitwise": (),
    "_parse_case": (),
    "_parse_column": (),
    "_parse_column_ops": ("this",),
    "_parse_disjunction": (),
    "_parse_grouping_sets": (),
    "_parse_id_var": ("any_token", "tokens"),
    "_parse_query_modifiers": ("this",),
    "_parse_select": ("nested", "table", "parse_subquery_alias", "parse_set_operation", "consume_pipe"),
    "_parse_set_operations": ("this",),
    "_parse_table_alias": ("alias_tokens",),
    "_parse_wrapped_csv": ("parse_method", "sep", "optional"),
    "_retreat": ("index",),
}
#: Methods that Penstock replaces: sqlglot must still call them, with these parameters.
REPLACED = {
    "_parse_csv": ("parse_method", "sep"),
    "_parse_cube_or_rollup": ("with_prefix",),
    "_parse_grouping_set": (),
    "_is_table_query": (),
    "_parse_limit": ("this", "top", "skip_limit_token"),
    "_parse_interval": ("require_interval", "parse_function_unit"),
    "_parse_table": (
        "schema",
        "joins",
        "alias_tokens",
        "parse_bracket",
        "is_db_reference",
        "parse_partition",
        "consume_pipe",
    ),
    "_parse_hint": (),
    "_parse_placeholder": (),
    "_parse_table_parts": ("schema", "is_db_reference", "wildcard", "fast"),
    "_parse_type": ("parse_interval", "fallback_to_identifier"),
    "_parse_types": ("check_func", "schema", "allow_identifiers", "with_collation"),
    "_parse_unnest": ("with_alias",),
    "_parse_version": (),
}


def test_the_version_is_the_one_whose_private_names_are_listed_here() -> None:
    installed = ".".join(sqlglot.__version__.split(".")[:2])
    assert installed == VERSION, (
        f"sqlglot {sqlglot.__version__} is installed; its private names were read in {VERSION}. Run the tests of "
        f"tests/sql and the golden cases with it, compare sqlglot/parser.py for the names listed in {__file__}, then "
        "set VERSION here and the bounds in pyproject.toml."
    )


@pytest.mark.parametrize("name", CURSOR)
def test_the_cursor_has_the_name(name: str) -> None:
    assert hasattr(Parser(), name), (
        f"sqlglot's Parser has no {name} any more: see how Parser._advance moves now, then change parser_base.py"
    )


@pytest.mark.parametrize("name", [*CALLED, *REPLACED])
def test_a_method_has_the_parameters_it_had(name: str) -> None:
    found = getattr(Parser, name, None)
    where = ", ".join(sorted(_users(name)))
    assert found is not None, f"sqlglot's Parser has no {name} any more; see {where}"
    parameters = tuple(inspect.signature(found).parameters)[1:]
    expected = CALLED.get(name, REPLACED.get(name))
    assert parameters == expected, f"sqlglot's Parser.{name} takes {parameters}, was {expected}; see {where}"


@pytest.mark.parametrize("field", ["token_type", "text", "start", "end"])
def test_a_token_has_the_field(field: str) -> None:
    assert hasattr(Token(TokenType.VAR, "x", 1, 1, 0, 0), field)


def test_every_private_name_in_use_is_listed() -> None:
    used = {name for module in PARSERS for name in _private_names(module)}
    listed = {*CURSOR, *CALLED, *REPLACED}
    assert used - listed == set(), "list these here: a new version of sqlglot may change them"
    assert listed - used == set(), "these are not used any more"


def _users(name: str) -> set[str]:
    return {f"penstock/sql/{module}.py" for module in PARSERS if name in _private_names(module)}


def _private_names(module: str) -> set[str]:
    """Names of sqlglot's parser with an underscore that the module reads, calls or replaces."""
    theirs = {name for name in dir(Parser) if name.startswith("_") and not name.startswith("__")}
    found = set()
    tree = ast.parse((SQL / f"{module}.py").read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in (node for cls in classes for node in ast.walk(cls)):
        match node:
            case ast.Attribute(attr=name) | ast.FunctionDef(name=name) if name in theirs:
                found.add(name)
    return found
