"""The user functions that a session knows: SQL calls them, and jobs ship them."""

from __future__ import annotations

import importlib
import linecache
import sys
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import FunctionError, PenstockError, SqlError, nearest
from penstock.plugins import Register
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import ModuleType

    from penstock.jobgraph.graph import FunctionArtifact
    from penstock.types.logical import LogicalType, RowType

FunctionKind = Literal["scalar", "table", "aggregate"]


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A user's function as SQL calls it.

    ``arguments``: the declared types; None if the function takes arguments of any types. ``result``: the
    value's type; for a table function, a ROW of its columns.
    """

    name: str
    kind: FunctionKind
    result: LogicalType | RowType
    artifact: FunctionArtifact
    arguments: tuple[LogicalType, ...] | None = None
    per: Literal["record", "batch"] = "record"
    asynchronous: bool = False
    deterministic: bool = True


class UserFunctions:
    """Functions by name, case-insensitively as in Flink."""

    def __init__(self) -> None:
        self._by_name: dict[str, UserFunction] = {}
        #: Functions of installed packages that the session has asked for.
        self._from_packages: dict[str, UserFunction] = {}

    def add(self, function: UserFunction) -> None:
        """Declare a function. It replaces a function of the same name."""
        self._by_name[function.name.lower()] = function

    def remove(self, name: str) -> bool:
        """Remove a declared function. Returns whether there was one."""
        return self._by_name.pop(name.lower(), None) is not None

    def names(self) -> list[str]:
        """The names of the declared functions and of those of installed packages, sorted."""
        return sorted({*(f.name for f in self._by_name.values()), *INSTALLED.names()})

    def scalar(self, name: str) -> UserFunction | None:
        """The scalar function of this name; None if there is none."""
        return self._of_kind(name, "scalar")

    def table(self, name: str) -> UserFunction | None:
        """The table function of this name; None if there is none."""
        return self._of_kind(name, "table")

    def aggregate(self, name: str) -> UserFunction | None:
        """The aggregate function of this name; None if there is none."""
        return self._of_kind(name, "aggregate")

    def has(self, name: str) -> bool:
        """Whether the session declared this function. It hides a package's function of the same name."""
        return name.lower() in self._by_name

    def artifacts(self, names: Sequence[str]) -> dict[str, FunctionArtifact]:
        """The entries of a job's function table, and the program's own classes that occur in them."""
        known = {**self._from_packages, **self._by_name}
        found = {f.name: f.artifact for f in known.values() if f.name in names}
        if not found:
            return found
        # This import stands here, so that SQL without functions never loads cloudpickle.
        from penstock.jobgraph.artifacts import with_classes

        return with_classes(found)

    def _of_kind(self, name: str, kind: FunctionKind) -> UserFunction | None:
        found = self._by_name.get(name.lower()) or self._installed(name)
        return found if found is not None and found.kind == kind else None

    def _installed(self, name: str) -> UserFunction | None:
        """A function of an installed package; it is imported when it is first asked for."""
        if name.lower() not in self._from_packages:
            known = next((n for n in INSTALLED.names() if n.lower() == name.lower()), None)
            if known is None:
                return None
            where = f"entry point '{INSTALLED.group}'"
            value = INSTALLED.find(known, where=where)
            what = INSTALLED.providers(known)[0].target
            self._from_packages[name.lower()] = user_function(known, value, what=what, where=where)
        return self._from_packages[name.lower()]


#: SQL functions of installed packages: name → the function or class that ``@udf``, ``@udtf`` or ``@udaf``
#: decorates.
INSTALLED: Register[Any] = Register(
    "function",
    "penstock.functions",
    builtin={},
    make=lambda value: value,
    expected="a function decorated with @udf, @udtf or @udaf",
    error=SqlError,
)

#: The attribute in which a decorator of ``penstock.api`` puts the declaration of a function.
MARK = "penstock_function"


def load_function(name: str, target: str, *, where: str) -> UserFunction:
    """Loads the function ``target`` (``module.attribute``), which ``@udf``, ``@udtf`` or ``@udaf`` has
    declared. The function is pickled, so that a slot on another machine needs none of the user's files."""
    module_name, _, attribute = target.rpartition(".")
    if not module_name:
        raise SqlError(
            "a Python function is named 'module.function'",
            got=repr(target),
            expected="a dotted name",
            where=where,
        )
    module = _import(module_name, target, where)
    if not hasattr(module, attribute):
        declared = [k for k, _ in _declared(module)]
        raise SqlError(
            f"module '{module_name}' has no '{attribute}'",
            expected="one of its functions: " + (", ".join(declared) or "(it declares none)"),
            got=repr(target),
            where=where,
            remedy=nearest(attribute, declared or dir(module)),
        )
    return user_function(name, getattr(module, attribute), what=target, where=where)


def user_function(name: str, value: Any, *, what: str, where: str) -> UserFunction:
    """The decorated function or class ``value`` as SQL calls it. Raises SqlError if it is not decorated."""
    from penstock.jobgraph.artifacts import make_artifact

    declared = getattr(value, MARK, None)
    if declared is None:
        raise SqlError(
            f"'{what}' does not say what it takes and gives",
            expected="a function decorated with @udf, @udtf or @udaf (result_type=…)",
            got=type(value).__name__,
            where=where,
            remedy="from penstock.api import udf, and write @udf(result_type='BIGINT') above it",
        )
    kind = declared["kind"]
    try:
        result = _table_type(declared["result"]) if kind == "table" else _type(declared["result"])
        arguments = declared["arguments"]
        arguments = None if arguments is None else tuple(map(_type, arguments))
    except SqlError as err:
        err.where = f"{where}: the types of '{what}'" + (f", {err.where}" if err.where else "")
        raise
    if isinstance(value, type):
        value = _instance(value, what, where)
    return UserFunction(
        name=name,
        kind=kind,
        result=result,
        artifact=make_artifact(value, f"function '{what}'"),
        arguments=arguments,
        per=declared["per"],
        asynchronous=declared.get("asynchronous", False),
        deterministic=declared.get("deterministic", True),
    )


def register_module(functions: UserFunctions, path: Path) -> list[str]:
    """Adds every decorated function of a module file under its own name, and returns these names. The module's
    folder goes to the front of ``sys.path``. Raises SqlError if the file does not exist or declares no
    function, and FunctionError if the module's code fails."""
    if not path.is_file():
        raise SqlError(
            "the module is not there",
            expected="a Python file",
            got="a folder" if path.is_dir() else "nothing there",
            where=str(path),
            remedy="check the path given with -py",
        )
    folder, module_name = str(path.absolute().parent), path.stem
    if folder not in sys.path:
        sys.path.insert(0, folder)
    # The import would return another loaded module of the same name.
    known = sys.modules.get(module_name)
    if known is not None and getattr(known, "__file__", None) != str(path.absolute()):
        raise SqlError(
            f"a module named '{module_name}' is loaded already",
            expected="a name of its own",
            got=str(getattr(known, "__file__", None) or "a built-in module"),
            where=str(path),
            remedy="rename the file",
        )
    module = _import(module_name, str(path), str(path))
    names: list[str] = []
    for attribute, value in _declared(module):
        name = getattr(value, MARK).get("name") or attribute
        functions.add(user_function(name, value, what=f"{module_name}.{attribute}", where=str(path)))
        names.append(name)
    if not names:
        raise SqlError(
            "the module declares no function",
            expected="functions decorated with @udf, @udtf or @udaf",
            where=str(path),
            remedy="from penstock.api import udf, and write @udf(result_type='BIGINT') above a function",
        )
    return names


def _declared(module: ModuleType) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in vars(module).items() if hasattr(value, MARK))


def _import(module_name: str, target: str, where: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except PenstockError as err:
        # A decorator refused a declaration. Its error does not know the place.
        err.where = f"{where}: {err.where}" if err.where else where
        raise
    except ModuleNotFoundError as err:
        if err.name is not None and module_name.split(".")[0] == err.name.split(".")[0]:
            raise SqlError(
                f"module '{module_name}' cannot be imported: {err}",
                expected="an importable module",
                got=repr(target),
                where=where,
                remedy="give the file with -py (its folder is searched, too), or put its folder on PYTHONPATH",
            ) from None
        raise _failed(module_name, where, err) from err
    except (Exception, SystemExit) as err:
        raise _failed(module_name, where, err) from err


def _failed(module_name: str, where: str, err: BaseException) -> FunctionError:
    """The error that the module raised, with the traceback from the module's first line on."""
    linecache.checkcache()
    tb = err.__traceback__
    while tb is not None and (
        "importlib" in tb.tb_frame.f_code.co_filename or tb.tb_frame.f_code.co_filename == __file__
    ):
        tb = tb.tb_next
    return FunctionError(
        f"module '{module_name}' cannot be imported: {type(err).__name__}: {err}",
        where=where,
        remedy="correct it; what it imports must be installed here and in the cluster",
        user_traceback="".join(traceback.format_exception(type(err), err, tb)),
    )


def _instance(cls: type, what: str, where: str) -> Any:
    try:
        return cls()
    except Exception as err:
        raise FunctionError(
            f"'{what}' cannot be made: {type(err).__name__}: {err}",
            expected="a class that takes no arguments, or an object: f = udf(Made(5), result_type=…)",
            where=where,
            user_traceback=traceback.format_exc(),
        ) from err


def _type(declared: Any) -> LogicalType:
    if isinstance(declared, str):
        from penstock.sql.parsing import parse_type

        return parse_type(declared)
    if isinstance(declared, t.LOGICAL_TYPES):
        return declared
    raise SqlError(
        "not a type",
        expected="SQL's, such as 'BIGINT' or 'DECIMAL(10, 2)', or Types.LONG()",
        got=repr(declared),
    )


def _table_type(declared: Any) -> RowType:
    """A ROW of the function's columns. Columns without a name are called f0, f1 …"""
    if isinstance(declared, (list, tuple)):
        return t.RowType(tuple(t.Field(f"f{i}", _type(d)) for i, d in enumerate(declared)))
    type_ = _type(declared)
    return type_ if isinstance(type_, t.RowType) else t.RowType((t.Field("f0", type_),))
