"""Ending background asyncio tasks for certain."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Before a task that goes on is cancelled once more.
_AGAIN_S = 0.05


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they are over, whatever they raise.

    Once is not enough: ``asyncio.wait_for`` (before Python 3.12) loses a cancellation that
    comes at the moment of its result, and a task that loops goes on for ever.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_AGAIN_S)
