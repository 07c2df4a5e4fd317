"""The planner process reads a job spec and writes a job graph.

``python -m penstock.api.planner`` reads a JobSpec (JSON) from standard input and writes, as the
last line of standard output, ``{"job_graph": …}`` or ``{"error": PenstockError.to_dict()}``. The user's
program prints to standard error.
"""

from __future__ import annotations

import contextlib
import os
import sys
import textwrap
import types
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.config import STATE_BACKEND, texts
from penstock.connectors.filesystem.paths import working_folder
from penstock.errors import FunctionError, InternalError, PenstockError, SpecError, nested_too_deeply
from penstock.jobgraph.artifacts import shipping
from penstock.jobgraph.loading import loaded
from penstock.messages.cluster import JobSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.jobgraph import JobGraph

#: File name of the user's source text in tracebacks.
PROGRAM = "<job>"
#: Installs PyFlink's module tree. Named by text, because that package imports the API and the API must not
#: import it.
_PYFLINK = "penstock.compat.pyflink:install"


def plan_spec(spec: JobSpec, folder: str | None = None) -> JobGraph:
    """Plan a spec in this process. Raises ``PenstockError`` with the user's traceback when planning fails.
    ``folder``: the folder of the spec's file, if the file is on this machine."""
    given = [k for k in ("sql", "python", "job_graph") if getattr(spec, k) is not None]
    if len(given) != 1:
        raise SpecError(
            "a job spec with nothing to run" if not given else "a job spec with several programs",
            expected="exactly one of sql, python, job_graph",
            got=", ".join(given) or "none of them",
            remedy="give the spec the program that it is to run, and only that one",
        )
    config = configuration(spec)
    if spec.sql is not None:
        from penstock.spark.support import spark_support
        from penstock.sql.scripts import plan_script

        with _on_path(spec.files):  # modules that CREATE FUNCTION names
            graph = plan_script(spec.sql, config, spark=spark_support(), folder=folder).job_graph
    elif spec.python is not None:
        graph = _plan_python(spec, config)
    else:
        graph = _decoded(spec.job_graph)
        graph = msgspec.structs.replace(graph, config={**graph.config, **config})
    if STATE_BACKEND.key in graph.config:
        from penstock.state.backends import find_backend

        with _on_path(spec.files):
            find_backend(STATE_BACKEND.read(graph.config))
    if spec.name:
        graph = msgspec.structs.replace(graph, name=spec.name)
    if spec.files:
        graph = msgspec.structs.replace(graph, python_path=(*spec.files, *graph.python_path))
    return graph


def configuration(spec: JobSpec) -> dict[str, str]:
    """The spec's configuration as text, its parallelism included."""
    config = texts(spec.config)
    if spec.parallelism is not None:
        config["parallelism.default"] = str(spec.parallelism)
    return config


def _decoded(data: Any) -> JobGraph:
    from penstock.jobgraph import JobGraph

    try:
        return msgspec.convert(data, JobGraph)
    except msgspec.ValidationError as err:
        raise SpecError("a malformed job graph", expected="what the planner made", got=str(err)) from err


# -- Python programs -------------------------------------------------------------------------------


def _plan_python(spec: JobSpec, config: dict[str, str]) -> JobGraph:
    from penstock.api import execution, settings

    graphs: list[JobGraph] = []
    execution.record_with(graphs.append)
    settings.set_defaults(config)
    loaded(_PYFLINK)()
    try:
        with _as_main(spec) as module:
            _run(spec, module)
    finally:
        execution.record_with(None)
        settings.set_defaults({})
    if len(graphs) != 1:
        raise SpecError(
            "the program executed no job" if not graphs else "the program executed several jobs",
            expected="one call of execute()",
            got=str(len(graphs)),
            where=spec.entry or "top level",
            remedy="call env.execute() once" if graphs else "call env.execute() at the end of the program",
        )
    return graphs[0]


@contextlib.contextmanager
def _on_path(files: Sequence[str]) -> Iterator[None]:
    before = list(sys.path)
    sys.path[:0] = [f for f in files if os.path.exists(f)]
    try:
        yield
    finally:
        sys.path[:] = before


@contextlib.contextmanager
def _as_main(spec: JobSpec) -> Iterator[types.ModuleType]:
    """A module that is ``__main__`` while it runs (so its functions are pickled by value)."""
    module = types.ModuleType("__main__")
    module.__dict__["__file__"] = PROGRAM
    before = sys.modules["__main__"], sys.argv, list(sys.path)
    sys.modules["__main__"] = module
    sys.argv = [spec.name or PROGRAM, *spec.args]
    sys.path[:0] = [f for f in spec.files if os.path.exists(f)]
    try:
        yield module
    finally:
        sys.modules["__main__"], sys.argv = before[0], before[1]
        sys.path[:] = before[2]


def _run(spec: JobSpec, module: types.ModuleType) -> None:
    import linecache

    assert spec.python is not None
    text = spec.python
    # Tracebacks show the user's lines only if linecache has them.
    linecache.cache[PROGRAM] = (len(text), None, text.splitlines(keepends=True), PROGRAM)
    try:
        code = compile(text, PROGRAM, "exec")
        if spec.entry is None:
            exec(code, module.__dict__)
            return
        module.__dict__["__name__"] = "__penstock_job__"
        exec(code, module.__dict__)
        module.__dict__["__name__"] = "__main__"
        entry = module.__dict__.get(spec.entry)
        if not callable(entry):
            raise SpecError(
                f"the program has no function '{spec.entry}'",
                expected="a function of that name",
                got=", ".join(k for k, v in module.__dict__.items() if callable(v) and k[0] != "_") or "none",
            )
        entry(*spec.args)
    except PenstockError as err:
        if err.user_traceback is None:
            err.user_traceback = program_lines(err, PROGRAM)
        raise
    except SystemExit as err:
        if err.code not in (None, 0):
            raise FunctionError(f"the program ended with exit code {err.code}", where=PROGRAM) from err
    except Exception as err:
        raise program_raised(err, PROGRAM) from err


def program_raised(err: BaseException, program: str) -> FunctionError:
    """The FunctionError for an exception that a user's program raised. ``program``: the program's file name
    in tracebacks."""
    remedy = None
    if isinstance(err, ModuleNotFoundError):
        remedy = f"install '{err.name}' where the program runs, or put the module beside the program"
    elif isinstance(err, (ImportError, SyntaxError)):
        remedy = "correct the program, or what it imports"
    return FunctionError(
        f"the program raised {type(err).__name__}: {err}",
        where=program,
        remedy=remedy,
        user_traceback=_traceback(err, program),
    )


def _traceback(err: BaseException, program: str) -> str:
    """The traceback from the program's first frame on; only Penstock's frames before that are left out."""
    import traceback

    tb = err.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename != program:
        tb = tb.tb_next
    return "".join(traceback.format_exception(type(err), err, tb))


def program_lines(err: PenstockError, program: str) -> str | None:
    """The traceback of the program's lines that led to an error raised by Penstock. Penstock's own frames are
    left out, because they tell the user nothing. None: no line of ``program`` is in the traceback."""
    import traceback

    frames = traceback.extract_tb(err.__traceback__)
    first = next((i for i, frame in enumerate(frames) if frame.filename == program), len(frames))
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    own = [frame for frame in frames[first:] if not frame.filename.startswith(ours)]
    return textwrap.dedent("".join(traceback.format_list(own))) or None


# -- the process --------------------------------------------------------------------------------------


def answer(data: bytes) -> dict[str, Any]:
    """The reply to a spec. Errors become part of the reply; this function raises none."""
    try:
        try:
            spec = msgspec.json.decode(data, type=JobSpec)
        except msgspec.MsgspecError as err:
            raise SpecError("a malformed job spec", expected="a JobSpec", got=str(err)) from err
        # The planner runs in the cluster, where the slots have the spec's files, too.
        with shipping(spec.files):
            graph = plan_spec(spec)
        return {"job_graph": msgspec.to_builtins(graph)}
    except PenstockError as err:
        return {"error": err.to_dict()}
    except RecursionError:
        return {"error": nested_too_deeply("program").to_dict()}
    except Exception as err:
        import traceback

        error = InternalError(
            f"planning failed: {type(err).__name__}: {err}", user_traceback=traceback.format_exc()
        )
        return {"error": error.to_dict()}


def main() -> None:
    # The reply must be the last line of standard output, so everything else goes to standard error.
    out = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    # The author of the spec works elsewhere, so relative paths must not resolve to this process's folder.
    working_folder.set(None)
    reply = answer(sys.stdin.buffer.read())
    with os.fdopen(out, "wb") as stream:
        stream.write(msgspec.json.encode(reply) + b"\n")
        stream.flush()


if __name__ == "__main__":
    main()
