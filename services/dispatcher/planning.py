"""Planning in a separate process, because user code never runs in a service.

``penstock.api.planner`` reads the spec from stdin and writes ``{"job_graph": …}`` or ``{"error": …}`` as the
last line of stdout. Output of the user's code goes to stderr. Each planner is forked from a template
(``planner_processes``).
"""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import secrets
from penstock.errors import FunctionError, InternalError, SpecError, error_from_dict
from penstock_services.dispatcher.planner_processes import PlannerProcesses
from penstock_services.dispatcher.spec import graph_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.jobgraph import JobGraph
    from penstock.messages.cluster import JobSpec
    from penstock.messages.sandbox import Sandbox

PLANNING_LIMIT_S = 60.0
#: How many planners run at the same time. Each is a process with NumPy and Arrow.
PLANNERS = 2
_STDERR_KEPT = 4_000
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)
CHECK_MODULE = "penstock.api.restore_check"


class Planner:
    """Runs planner processes. ``limit_s``: the time limit of each. ``module``: the module whose
    ``main()`` it runs. ``sandbox``: what confines them."""

    def __init__(
        self,
        *,
        limit_s: float = PLANNING_LIMIT_S,
        module: str = "penstock.api.planner",
        sandbox: Sandbox | None = None,
    ) -> None:
        self._limit_s = limit_s
        self._module = module
        self._free = asyncio.Semaphore(PLANNERS)
        self._processes = PlannerProcesses(sandbox)

    async def plan(self, spec: JobSpec, allowed: Sequence[str] = ("*",)) -> JobGraph:
        """The job graph. ``allowed``: patterns of the secrets that planning may look up. Raises the user's error, SpecError when the time limit passes, and FunctionError or
        InternalError if the planner ends without an answer."""
        if spec.job_graph is not None:
            return await asyncio.to_thread(graph_of, spec.job_graph)
        async with self._free:
            program = "python" if spec.python is not None else "sql"
            code, out, err = await self._run(
                msgspec.json.encode(spec), self._module, program, allowed=allowed
            )
        return await asyncio.to_thread(_graph, code, out, err)

    async def state_problems(self, graph: JobGraph, states: dict[str, dict[str, Any]]) -> list[str]:
        """Why states that the program's functions declare cannot be read from a savepoint.

        ``states``: operator uid → state name → its schema there. Raises InternalError if the process ends
        without an answer.
        """
        request = msgspec.json.encode({"job_graph": graph, "states": states})
        async with self._free:
            code, out, err = await self._run(request, CHECK_MODULE, "states")
        lines = out.rstrip().rsplit(b"\n", 1)
        try:
            problems: list[str] = json.loads(lines[-1])["problems"]
        except (ValueError, LookupError, TypeError):
            raise InternalError(
                "the check of a program's states ended without an answer",
                got=f"exit code {code}; {err.decode(errors='replace')[-_STDERR_KEPT:].strip()}",
            ) from None
        return problems

    async def close(self) -> None:
        """Ends all planners and what they are forked from."""
        await self._processes.close()

    async def _run(
        self, spec: bytes, module: str, program: str, *, allowed: Sequence[str] = ("*",)
    ) -> tuple[int, bytes, bytes]:
        try:
            return await self._processes.run(
                spec,
                module=module,
                program=program,
                variables={secrets.ALLOWED_VARIABLE: ",".join(allowed)},
                limit_s=self._limit_s,
            )
        except TimeoutError:
            raise SpecError(
                f"planning the job took longer than {self._limit_s:g} s",
                expected="a program that only builds the job",
                remedy="check whether it waits for something, or reads much data, while it builds the job",
            ) from None


def _graph(code: int, out: bytes, err: bytes) -> JobGraph:
    """The job graph in the planner's answer. Raises the error in it."""
    lines = out.rstrip().rsplit(b"\n", 1)
    try:
        answer = json.loads(lines[-1]) if lines[-1] else None
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or not {"job_graph", "error"} & answer.keys():
        words = err.decode(errors="replace")[-_STDERR_KEPT:].strip()
        # An exit code or a crash is caused by the program; another signal more often comes from outside.
        kind = FunctionError if code > 0 or -code in _CRASHES else InternalError
        raise kind(
            "the planner process ended without an answer",
            expected="a program that builds a job and returns",
            got=f"exit code {code}; its last words: {words or '(none)'}",
            remedy="does the program end the process (os._exit, out of memory), or is it nested thousands of levels deep?",
        )
    if "error" in answer:
        raise error_from_dict(answer["error"])
    return graph_of(answer["job_graph"])
