"""Messages between a service and its template process, from which it has other processes forked.

MessagePack, one message a packet, over a SOCK_SEQPACKET socketpair. The orders are ``ForkSlot`` of a task
manager (``messages/slot.py``), ``ForkPlanner`` of a dispatcher and ``ForkService`` of an embedded cluster; the answers
are the same for all.
"""

from __future__ import annotations

from typing import Union

import msgspec

from penstock.messages.sandbox import Sandbox


class _Msg(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    pass


class ForkPlanner(_Msg, frozen=True, kw_only=True, tag="fork-planner"):
    """Fork a process that runs ``main()`` of ``module``. Three file descriptors accompany the message
    (SCM_RIGHTS): its standard input, output and error.

    ``variables``: what its environment has beside the template's. ``program``: the kind of the program that
    it plans, a key of ``planner_template.PROGRAMS``; empty: of none. ``sandbox``: what the process enters first.
    """

    order: str
    module: str
    variables: dict[str, str] = {}
    program: str = ""
    sandbox: Sandbox | None = None


class ForkService(_Msg, frozen=True, kw_only=True, tag="fork-service"):
    """Fork a process that does as ``python -m <package> <arguments>`` does, if ``main()`` of the package's
    ``__main__`` runs it and returns its exit code. Three file descriptors accompany the message (SCM_RIGHTS):
    its standard input, output and error."""

    order: str
    package: str
    arguments: list[str] = []


class TemplateReady(_Msg, frozen=True, kw_only=True, tag="template-ready"):
    """The template has imported its modules. Sent once, at its start."""

    pid: int
    import_ms: float


class Forked(_Msg, frozen=True, kw_only=True, tag="forked"):
    """The process of the order ``order`` (of a slot: its allocation's id) runs as ``pid``."""

    order: str
    pid: int


class ForkFailed(_Msg, frozen=True, kw_only=True, tag="fork-failed"):
    """The template could not fork; ``error`` is a text."""

    order: str
    error: str


class TemplateStale(_Msg, frozen=True, kw_only=True, tag="template-stale"):
    """The template did not fork, and ends: the code that it has imported has changed since, ``changed`` is
    one of the files. A new template can take the order."""

    order: str
    changed: str


class ChildExited(_Msg, frozen=True, kw_only=True, tag="child-exited"):
    """A forked process has ended. ``status`` is that of ``os.waitpid``; ``os.waitstatus_to_exitcode`` decodes
    it."""

    pid: int
    status: int


FromTemplate = Union[TemplateReady, Forked, ForkFailed, TemplateStale, ChildExited]
