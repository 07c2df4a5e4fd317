"""Turns the failure of a task into data: the user's part of the traceback first, then the whole one."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import penstock
from penstock.errors import FunctionError, InternalError, PenstockError
from penstock.installed import is_installed
from penstock.messages.slot import ErrorInfo
from penstock.redaction import without_credentials

_OURS = str(Path(penstock.__file__).parent)


def error_info(err: BaseException, *, task: str, operator: str | None = None) -> ErrorInfo:
    """The error as data. ``operator``: the operator that raised the error, if known."""
    details = _details(err, operator or task)
    user = details.get("user_traceback")
    full = without_credentials("".join(traceback.format_exception(err)))
    return ErrorInfo(
        error=details,
        traceback=f"{user}\n\n{full}" if user else full,
        operator=operator,
    )


def _details(err: BaseException, where: str) -> dict[str, Any]:
    if isinstance(err, PenstockError):
        out = err.to_dict()
        out.setdefault("where", where)
        return out
    if isinstance(err, SystemExit):
        return FunctionError(
            f"the job's code called sys.exit({'' if err.code is None else repr(err.code)})",
            expected="functions that return, or raise what went wrong",
            where=f"operator '{where}'",
            remedy="raise an exception instead; a job ends when its input does",
            user_traceback=user_traceback(err),
        ).to_dict()
    if _is_users(err):
        return FunctionError(
            f"the job's code raised {type(err).__name__}: {err}",
            where=f"operator '{where}'",
            remedy="correct the function",
            user_traceback=user_traceback(err),
        ).to_dict()
    wrapped = InternalError(
        f"{type(err).__name__}: {err}" if str(err) else type(err).__name__,
        where=where,
        user_traceback=user_traceback(err),
    )
    return wrapped.to_dict()


def _is_users(err: BaseException) -> bool:
    """Whether the user's code, or a library that the user's code called, raised the error."""
    names = [frame.filename for frame in traceback.extract_tb(err.__traceback__)]
    ours_or_users = [name for name in names if name.startswith(_OURS) or not is_installed(name)]
    return bool(ours_or_users) and not ours_or_users[-1].startswith(_OURS)


def user_traceback(err: BaseException) -> str | None:
    """The frames of code that belongs neither to Penstock nor to a library; None if there are no such
    frames."""
    frames = traceback.extract_tb(err.__traceback__)
    users = [f for f in frames if not is_installed(f.filename)]
    if not users:
        return None
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(users)]
    return "".join([*lines, *traceback.format_exception_only(err)]).rstrip()
