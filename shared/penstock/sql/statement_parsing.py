"""Parses the tokens of one statement. Queries and DDL have modules of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from penstock.errors import SqlError, UnsupportedError
from penstock.sql.catalog_syntax import CatalogSyntax
from penstock.sql.dotted import catalog_name
from penstock.sql.errors import Position, position_in
from penstock.sql.refused import REFUSED, refused_words
from penstock.sql.statements import (
    Call,
    Change,
    ClientCommand,
    CompilePlan,
    Describe,
    ExecutePlan,
    Explain,
    Insert,
    JobStatement,
    Pattern,
    Query,
    ResetOption,
    SetOption,
    Show,
    Statement,
    StatementSet,
    Use,
)

_DETAILS = ("ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")


_SHOWN = ("TABLES", "VIEWS", "FUNCTIONS", "USER FUNCTIONS", "CREATE TABLE", "CREATE VIEW", "CREATE CATALOG", "COLUMNS", "PARTITIONS", "CATALOGS",
          "DATABASES", "CURRENT CATALOG", "CURRENT DATABASE", "MODULES", "FULL MODULES", "PROCEDURES")  # fmt: skip


_SHOW_WORDS = {word for what in _SHOWN for word in what.split()}


class StatementParser(CatalogSyntax):
    """Parses whole statements: queries, INSERT, DDL, SET, SHOW …"""

    def statement(self) -> Statement:
        """The next statement. Raises UnsupportedError for a statement of Flink that Penstock does not have."""
        token = self._curr
        here = position_in(self.sql, token.start)
        word = token.text.upper()
        refused = refused_words([tok.text.upper() for tok in self._tokens[self._index : self._index + 6]])
        if refused is not None:
            raise UnsupportedError(f"the statement {refused}", where=str(here), remedy=REFUSED[refused])
        about_jobs = self._job_statement(here)
        if about_jobs is not None:
            return about_jobs
        catalog = self.catalog_statement(here)
        if catalog is not None:
            return catalog
        match word:
            case "CREATE":
                return self._create(here)
            case "DROP":
                return self._drop(here)
            case "INSERT":
                return self._insert(here)
            case "TRUNCATE":
                self._advance()
                self._expect("TABLE")
                at = position_in(self.sql, self._curr.start) if self._curr else here
                return Insert(self._dotted("a table's name"), at, exp.Null(), truncate=True)
            case "DELETE" | "UPDATE":
                return self._change(here)
            case "CALL":
                return self._procedure_call(here)
            case "SET":
                return self._set(here)
            case "RESET":
                self._advance()
                return ResetOption(self._text("a quoted key") if self._curr else None, here)
            case "EXPLAIN":
                return self._explain(here)
            case "SHOW":
                return self._show(here)
            case "ALTER":
                return self._alter(here)
            case "DESCRIBE" | "DESC":
                self._advance()
                function = self._curr.text.upper() == "FUNCTION" and bool(self._next)
                if function:
                    self._advance()
                extended = bool(self._match_text_seq("EXTENDED"))
                return Describe(self._dotted(), here, function=function, extended=extended)
            case "COMPILE":
                return self._compile(here)
            case "EXECUTE":
                self._advance()
                if self._match_text_seq("PLAN"):
                    return ExecutePlan(self._plan_path(), here)
                executed = self.statement()
                if not isinstance(executed, (Insert, Query)):
                    self.raise_error(
                        "Expecting a query, an INSERT or a STATEMENT SET behind EXECUTE, or PLAN 'file'",
                        token,
                    )
                return executed
            case "QUIT" | "EXIT" | "CLEAR" | "HELP" if not self._next:
                self._advance()
                return ClientCommand(word, here)
            case "USE":
                self._advance()
                what = "DATABASE"
                if self._match_text_seq("CATALOG"):
                    what = "CATALOG"
                return Use(what, self._used(), here)
        if word in ("SELECT", "WITH", "VALUES", "(", "TABLE"):
            return Query(self._query(), here)
        self.raise_error(
            "Expecting a statement (SELECT, WITH, VALUES, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, SET, RESET, EXPLAIN, SHOW, "
            "DESCRIBE, USE, CALL, STOP JOB, COMPILE PLAN, EXECUTE PLAN, BEGIN STATEMENT SET)"
        )
        raise AssertionError

    def _job_statement(self, here: Position) -> JobStatement | None:
        """SHOW JOBS, DESCRIBE JOB or STOP JOB; None for another statement."""
        words = (self._curr.text.upper(), self._next.text.upper() if self._next else "")
        if words == ("SHOW", "JOBS"):
            self._advance(2)
            return JobStatement("SHOW JOBS", None, here)
        if words[1] != "JOB" or words[0] not in ("DESCRIBE", "DESC", "STOP"):
            return None
        self._advance(2)
        job_id = self._text("a job's id in quotes; SHOW JOBS lists them")
        if words[0] != "STOP":
            return JobStatement("DESCRIBE JOB", job_id, here)
        savepoint = drain = False
        while self._match_text_seq("WITH"):
            if self._match_text_seq("SAVEPOINT"):
                savepoint = True
            elif self._match_text_seq("DRAIN"):
                drain = True
            else:
                self.raise_error("Expecting SAVEPOINT or DRAIN")
        if drain and not savepoint:
            self.raise_error("Expecting WITH SAVEPOINT: only a job that stops with a savepoint can drain")
        return JobStatement("STOP JOB", job_id, here, savepoint, drain)

    def _insert(self, here: Position) -> Insert:
        self._advance()
        overwrite = bool(self._match_text_seq("OVERWRITE"))
        if not overwrite and not self._match(TokenType.INTO):
            self.raise_error("Expecting INTO or OVERWRITE after INSERT")
        self._match_text_seq("TABLE")
        table = position_in(self.sql, self._curr.start)
        name = self._dotted("a table's name")
        hint = self.options_hint()
        options = hint.meta["options"] if hint is not None else {}
        partition = self._partition() if self._match_text_seq("PARTITION") else ()
        columns: tuple[exp.Identifier, ...] = ()
        if self._match(TokenType.L_PAREN, advance=False) and self._next.text.upper() not in (
            "SELECT", "WITH", "VALUES", "(",
        ):  # fmt: skip
            self._open()
            columns = tuple(self._parse_csv(lambda: self._name("a column")))
            self._close()
        query = self._query()
        self._on_conflict()
        return Insert(name, table, query, columns, overwrite, options, partition=partition)

    def _on_conflict(self) -> None:
        """Parses ``ON CONFLICT DO DEDUPLICATE``, which is what an INSERT does without the clause, too."""
        start = self._curr
        if not self._match_text_seq("ON", "CONFLICT", "DO"):
            return
        action = self._curr.text.upper() if self._curr else ""
        if action in ("NOTHING", "ERROR"):
            raise UnsupportedError(
                f"ON CONFLICT DO {action}",
                expected="ON CONFLICT DO DEDUPLICATE, or no clause",
                where=str(position_in(self.sql, start.start)),
                remedy="leave it out: of several rows with one primary key the last is kept, and the one before "
                "comes back when it is retracted",
            )
        if not self._match_text_seq("DEDUPLICATE"):
            self.raise_error("Expecting DEDUPLICATE, NOTHING or ERROR")

    def _change(self, here: Position) -> Insert:
        """Parses ``DELETE FROM t [WHERE condition]`` or ``UPDATE t SET column = value, … [WHERE condition]``."""
        deletes = self._curr.text.upper() == "DELETE"
        self._advance()
        if deletes and not self._match(TokenType.FROM):
            self.raise_error("Expecting FROM after DELETE")
        at = position_in(self.sql, self._curr.start) if self._curr else here
        table = self._require(self._parse_table_parts(), "a table's name")
        hint = table.args.get("options_hint")
        table.set("options_hint", None)
        name = catalog_name([part.name for part in table.parts])
        if deletes or self._curr.text.upper() != "SET":
            table.set("alias", self._parse_table_alias())
        assignments: list[tuple[exp.Identifier, exp.Expression]] = []
        if not deletes:
            self._expect("SET")
            assignments = self._parse_csv(self._assignment)
        condition = self._operand() if self._match(TokenType.WHERE) else None
        change = Change("DELETE" if deletes else "UPDATE", table, condition, tuple(assignments))
        options = {} if hint is None else hint.meta["options"]
        return Insert(name, at, exp.Null(), options=options, change=change)

    def _procedure_call(self, here: Position) -> Call:
        """Parses ``CALL name(value, name => value, …)``."""
        self._advance()
        name = self._dotted("a procedure's name")
        arguments: list[tuple[str | None, exp.Expression]] = []
        self._open()
        while not self._match(TokenType.R_PAREN):
            if arguments and not self._match(TokenType.COMMA):
                self.raise_error("Expecting ',' or ')'")
            named = None
            if self._next and self._next.token_type == TokenType.FARROW:
                named = self._curr.text
                self._advance(2)
            arguments.append((named, self._operand()))
        return Call(name, tuple(arguments), here)

    def _assignment(self) -> tuple[exp.Identifier, exp.Expression]:
        column = self._name("a column")
        if not self._match(TokenType.EQ):
            self.raise_error(f"Expecting '=' and the new value of '{column.name}'")
        return column, self._operand()

    def _partition(self) -> tuple[tuple[exp.Identifier, exp.Expression], ...]:
        """Parses ``(column = value, …)``."""
        out: list[tuple[exp.Identifier, exp.Expression]] = []
        self._open()
        while not out or self._match(TokenType.COMMA):
            column = self._name("a partition column")
            if not self._match(TokenType.EQ):
                self.raise_error(
                    f"Expecting '=' and the value of '{column.name}' (a column whose value the query gives is left "
                    "out here)"
                )
            out.append((column, self._operand()))
        self._close()
        return tuple(out)

    def _compile(self, here: Position) -> CompilePlan:
        path, if_not_exists, execute = self._compile_head()
        token = self._curr
        compiled = self.statement()
        if not isinstance(compiled, Insert):
            self.raise_error(
                "Expecting an INSERT or a STATEMENT SET behind FOR: only they have a plan to keep", token
            )
            raise AssertionError
        return CompilePlan(path, replace(compiled, text=self.sql), here, if_not_exists, execute)

    def compiled_set(self, statements: StatementSet) -> CompilePlan:
        """Parses the words before a statement set: COMPILE … FOR STATEMENT SET BEGIN."""
        path, if_not_exists, execute = self._compile_head()
        while self._curr:  # [EXECUTE] STATEMENT SET BEGIN, which ``_opens_set`` has read
            self._advance()
        return CompilePlan(path, statements, statements.position, if_not_exists, execute, statements.text)

    def _compile_head(self) -> tuple[str, bool, bool]:
        """(path, IF NOT EXISTS, AND EXECUTE) of COMPILE [AND EXECUTE] PLAN 'path' [IF NOT EXISTS] FOR."""
        self._advance()
        execute = bool(self._match_text_seq("AND", "EXECUTE"))
        if not self._match_text_seq("PLAN"):
            self.raise_error("Expecting COMPILE PLAN 'file' FOR, or COMPILE AND EXECUTE PLAN 'file' FOR")
        path = self._plan_path()
        if_not_exists = bool(self._match_text_seq("IF", "NOT", "EXISTS"))
        if not self._match_text_seq("FOR"):
            self.raise_error("Expecting FOR and an INSERT or a STATEMENT SET")
        return path, if_not_exists, execute

    def _plan_path(self) -> str:
        return self._text("a plan's path in quotes, e.g. 'plans/totals.json'")

    def _used(self) -> str:
        parts = [self._name().name]
        while self._match(TokenType.DOT):
            parts.append(self._name().name)
        return ".".join(parts)

    def _set(self, here: Position) -> SetOption:
        self._advance()
        if not self._curr:
            return SetOption(None, None, here)
        key = self._text("a quoted key, e.g. SET 'parallelism.default' = '2'")
        if not self._match(TokenType.EQ):
            self.raise_error("Expecting '='")
        return SetOption(key, self._text("a quoted value"), here)

    def _explain(self, here: Position) -> Explain:
        self._advance()
        details: list[str] = []
        comma: Any = False
        if not self._match_text_seq("PLAN", "FOR"):
            while self._curr and self._curr.text.upper() in _DETAILS and not (details and not comma):
                details.append(self._curr.text.upper())
                self._advance()
                comma = self._match(TokenType.COMMA)
                if comma and (not self._curr or self._curr.text.upper() not in _DETAILS):
                    self.raise_error(f"Expecting another detail ({', '.join(_DETAILS)}) behind ','")
        if self._curr and self._curr.token_type == TokenType.STRING:
            return Explain(ExecutePlan(self._plan_path(), here, self.sql), here, details=tuple(details))
        statement = self.statement()
        if not isinstance(statement, (Insert, Query, StatementSet, ExecutePlan)):
            raise SqlError(
                "this statement has no plan",
                expected="EXPLAIN of a query, an INSERT or the file of a compiled plan",
                got=type(statement).__name__,
                where=str(statement.position),
            )
        return Explain(replace(statement, text=self.sql), here, details=tuple(details))

    def _show(self, here: Position) -> Show:
        self._advance()
        words: list[str] = []
        while self._curr and self._curr.text.upper() in _SHOW_WORDS:
            words.append(self._curr.text.upper())
            self._advance()
        what = " ".join(words)
        if what not in _SHOWN:
            self.raise_error(f"Expecting one of SHOW {', '.join(_SHOWN)}")
        name = database = None
        if what in ("CREATE TABLE", "CREATE VIEW", "CREATE CATALOG", "PARTITIONS"):
            name = self._dotted()
        elif self._match(TokenType.FROM) or self._match(TokenType.IN):
            if what == "COLUMNS":
                name = self._dotted("a table's name")
            else:
                database = self._dotted("a database's name")
        elif what == "COLUMNS":
            self.raise_error("Expecting FROM and a table's name")
        partition: tuple[tuple[exp.Identifier, exp.Expression], ...] = ()
        if what == "PARTITIONS" and self._match_text_seq("PARTITION"):
            partition = self._partition()
        return Show(what, name, self._pattern(), database, here, partition=partition)

    def _pattern(self) -> Pattern | None:
        negated = bool(self._match_text_seq("NOT"))
        ignore_case = bool(self._match_text_seq("ILIKE"))
        if not ignore_case and not self._match_text_seq("LIKE"):
            if negated:
                self.raise_error("Expecting LIKE")
            return None
        return Pattern(self._text("a pattern in quotes, e.g. 'a%'"), negated, ignore_case)
