"""RAW values as bytes, with the classes of the user's program.

A class that every process can import is written as its name, as pickle does. A class of the program itself (of
the script, of a module beside it, of a function's local scope) is written as a name of the *job*: the job graph
contains its definition once, and every process looks it up there. So a record is small, and restored state uses
the class of the program that restores it. Any other class (one that a function makes while it runs) is written
by value.
"""

from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING, Any

from penstock.errors import FunctionError
from penstock.types import user_classes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: Values of these types contain no classes of the job.
_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})

#: (module, qualified name).
ClassName = tuple[str, str]


class JobClasses:
    """The classes of the program in this process.

    Of several classes with one name (a cell of a notebook that ran again, a local class of a function that was
    called twice) the last one has the name; the others are written by value.
    """

    def __init__(self) -> None:
        self._by_name: dict[ClassName, type] = {}
        self._load: Callable[[], Mapping[ClassName, type]] | None = None

    def __bool__(self) -> bool:
        return bool(self._by_name) or self._load is not None

    def use(self, load: Callable[[], Mapping[ClassName, type]] | None) -> None:
        """Set the function that loads the classes of the job in this process; it is called when one is first
        needed."""
        self._load = load

    def add(self, cls: type) -> ClassName:
        """Register a class of this program under its (module, qualified name); return that name."""
        name = (cls.__module__, cls.__qualname__)
        self._by_name[name] = cls
        return name

    def load(self) -> None:
        """Load the job's classes now, unless they are loaded already.

        They must be loaded before the job's functions: a class that comes with a function has lost its
        qualified name, which is part of a key.
        """
        load, self._load = self._load, None
        if load is not None:
            for name, cls in load().items():
                cls.__qualname__ = name[1]
                self._by_name[name] = cls

    def name_of(self, cls: type) -> ClassName | None:
        """The name of a class of the job; None if ``cls`` is no such class."""
        self.load()
        name = (cls.__module__, cls.__qualname__)
        return name if self._by_name.get(name) is cls else None

    def find(self, name: ClassName) -> type | None:
        """The class of the job with this name; None if there is none."""
        self.load()
        return self._by_name.get(name)


#: The classes of the one job that this process runs (a slot), or of its program (a client).
classes = JobClasses()


def job_class(module: str, qualname: str) -> type:
    """The class of the job with this name. Pickled values refer to this function.

    Raises:
        FunctionError: the job has no such class.
    """
    found = classes.find((module, qualname))
    if found is None:
        found = _imported(module, qualname)
    if found is None:
        raise FunctionError(
            f"the class '{module}.{qualname}' of a value is not part of this job",
            expected="a class that the job's functions use, or that can be imported in the cluster",
            got=f"'{qualname}' of module '{module}'",
            remedy="use the class in one of the job's functions, or call env.register_type(…) with it; "
            "for values of a savepoint under the name that it had there",
        )
    return found


def _imported(module: str, qualname: str) -> type | None:
    import importlib

    try:
        found: Any = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found if isinstance(found, type) else None


class _ByName(pickle.Pickler):
    """Writes classes of the job as names; pickle writes all other values."""

    def reducer_override(self, obj: Any) -> Any:
        if issubclass(type(obj), type):  # isinstance() would also accept ``list[int]``, which is no class
            name = classes.name_of(obj)
            if name is not None:
                return job_class, name
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            return job_class(module, name)


def dumps(value: Any) -> bytes:
    """A RAW value as bytes.

    Raises:
        FunctionError: the value cannot be pickled.
    """
    if type(value) in _PLAIN:
        return pickle.dumps(value, 5)
    out = io.BytesIO()
    try:
        if not classes:
            return pickle.dumps(value, 5)
        _ByName(out, 5).dump(value)
        return out.getvalue()
    except (pickle.PicklingError, AttributeError, TypeError):
        return _by_value(value)


def _by_value(value: Any) -> bytes:
    from cloudpickle import Pickler

    class ByValue(Pickler):  # type: ignore[misc]  # cloudpickle has no types
        def reducer_override(self, obj: Any) -> Any:
            found = _ByName.reducer_override(self, obj)
            if found is not NotImplemented:
                return found
            found = super().reducer_override(obj)
            if not issubclass(type(obj), type) or found is NotImplemented or len(found) == 2:
                return found
            return user_classes.reduced(obj) or found

    out = io.BytesIO()
    try:
        ByValue(out, 5).dump(value)
    except Exception as err:
        raise FunctionError(
            f"a value cannot be sent to another process or kept in state: {type(err).__name__}: {err}",
            expected="values that can be pickled",
            got=f"{type(value).__module__}.{type(value).__qualname__}",
            remedy="leave connections, files, locks and generators out of records and state",
        ) from err
    return out.getvalue()


def loads(data: bytes) -> Any:
    """The value of ``dumps``.

    Raises:
        FunctionError: the value has a class of the job that is unknown here.
    """
    try:
        return pickle.loads(data)
    except (ImportError, AttributeError):
        # A class that cannot be imported may be a class of the job.
        return _Unpickler(io.BytesIO(data)).load()


def names_of(found: Sequence[type]) -> tuple[ClassName, ...]:
    """Register classes of this program, in the order in which they were found; return their names.

    Of two classes with one name the first has it (a dataclass with slots refers to the class that it was made
    from).
    """
    return tuple(dict.fromkeys(classes.add(cls) for cls in reversed(found)))
