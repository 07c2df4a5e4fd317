"""Dead letters of jobs, and how they are given to a job to be sent again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock.errors import SpecError
from penstock.messages.layout import (
    asked_letters_prefix,
    confirmed_letters_prefix,
    dead_letters_prefix,
    replayed_prefix,
    replays_prefix,
)
from penstock_services.dispatcher.views.common import Kebab

if TYPE_CHECKING:
    from penstock.messages.cluster import JobDetails
    from penstock.ports import Store
    from penstock_services.dispatcher.directory import JobDirectory


class KeptLetters(Kebab, frozen=True, kw_only=True):
    """Letters of an operator that cannot be sent again, and why."""

    operator: str
    reason: str
    letters: int


class Replayed(Kebab, frozen=True, kw_only=True):
    """The result of a request to replay dead letters: how many were given to the job ``into``.

    ``already``: letters that were given to a job before. ``unconfirmed``: letters whose checkpoint is not complete yet.
    """

    into: str
    asked: int
    already: int
    unconfirmed: int
    kept: list[KeptLetters]


class DeadLetters:
    """The dead letters of all jobs, in the object store."""

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory

    @property
    def _store(self) -> Store:
        return self._directory.store

    async def page(self, job_id: str, after: str, limit: int) -> dict[str, Any]:
        """Records set aside by ``on-error`` = dead-letter, oldest first: at least ``limit`` of them if there
        are so many (whole objects are read). ``after``: the last ``next``.

        ``state`` of a letter: ``unconfirmed``, ``kept``, ``asked`` (given to a job that has not sent it yet, or whose
        checkpoint is not complete) or ``replayed``; ``into``: that job.
        """
        await self._directory.details(job_id)  # or it raises that there is no such job
        prefix = dead_letters_prefix(job_id)
        keys = [key for key, _ in await self._store.list(prefix) if key > after]
        marks = await self._marks(job_id) if keys else _Marks(set(), set())
        letters: list[dict[str, Any]] = []
        last = after
        for key in keys:
            if len(letters) >= limit:
                break
            place = key.removeprefix(prefix)
            state = await self._state(job_id, place, marks)
            letters += [{**letter, **state} for letter in await self._read(key)]
            last = key
        return {"dead-letters": letters, "next": last, "more": bool(keys) and last != keys[-1]}

    async def replay(self, job_id: str, into: str) -> Replayed:
        """Gives all letters of a job that were not given before to the job ``into``, which sends each once.

        Raises SpecError if that job does not run, or has no operator of a letter.
        """
        await self._directory.details(job_id)
        target = await self._directory.details(into)
        if target.status.globally_terminal:
            raise SpecError(
                f"the job is {target.status.value}: it sends no dead letters again",
                expected="a job that runs",
                got=f"job {into}",
                where="the job to replay into",
                remedy="start the corrected job, best from a savepoint, and replay the letters into it: "
                f"penstock dead-letters replay {job_id[:8]} --into JOB",
            )
        uids = _sources(target)
        marks, prefix = await self._marks(job_id), dead_letters_prefix(job_id)
        asked = already = unconfirmed = 0
        kept: dict[tuple[str, str], int] = {}
        for key, _ in await self._store.list(prefix):
            place = key.removeprefix(prefix)
            letters = await self._read(key)
            if place not in marks.confirmed:
                unconfirmed += len(letters)
                continue
            sendable = [x for x in letters if not x["kept"]]
            if sendable:
                self._check_source(place, sendable, uids, into)
            if not sendable or await self._give(job_id, into, place, key):
                asked += len(sendable)
                for x in letters:
                    if x["kept"]:
                        kept[x["operator"], x["kept"]] = kept.get((x["operator"], x["kept"]), 0) + 1
            else:
                already += len(letters)
        return Replayed(
            into=into,
            asked=asked,
            already=already,
            unconfirmed=unconfirmed,
            kept=[KeptLetters(operator=o, reason=r, letters=c) for (o, r), c in kept.items()],
        )

    def _check_source(self, place: str, letters: list[dict[str, Any]], uids: set[str], into: str) -> None:
        uid = place.partition("/")[0]
        if uid not in uids:
            raise SpecError(
                f"the job has no source that the letters of '{letters[0]['operator']}' came from",
                expected=f"a source with the uid {uid}",
                got=", ".join(sorted(uids)) or "no source",
                where=f"job {into}",
                remedy="replay into a job that reads the same table in a statement of the same name",
            )

    async def _give(self, job_id: str, into: str, place: str, key: str) -> bool:
        """Gives an object of letters to the job; False if a job has it already. The mark comes first: if this process
        dies behind it, the next request into the same job finds the mark and writes the object again."""
        mark = f"{asked_letters_prefix(job_id)}{place}"
        uid, _, name = place.partition("/")
        if not await self._store.create(mark, json.dumps({"into": into}).encode()):
            before = json.loads(await self._store.get(mark))["into"]
            if before != into:
                if not await self._never_sent(before, job_id, place):
                    return False
                await self._store.put(mark, json.dumps({"into": into}).encode())
        request = f"{replays_prefix(into, uid)}{job_id}-{name}"
        return await self._store.create(request, json.dumps({"letters": key}).encode())

    async def _never_sent(self, before: str, job_id: str, place: str) -> bool:
        """Whether the job that the letters were given to has ended without sending them."""
        if not (await self._directory.details(before)).status.globally_terminal:
            return False
        return not await self._sent(before, job_id, place)

    async def _sent(self, into: str, job_id: str, place: str) -> bool:
        uid, _, name = place.partition("/")
        mark = f"{replayed_prefix(into)}{uid}/{job_id}-{name}"
        return any(key == mark for key, _ in await self._store.list(mark))

    async def _state(self, job_id: str, place: str, marks: _Marks) -> dict[str, str]:
        if place not in marks.confirmed:
            return {"state": "unconfirmed"}
        if place not in marks.asked:
            return {"state": "kept"}
        into = json.loads(await self._store.get(f"{asked_letters_prefix(job_id)}{place}"))["into"]
        sent = await self._sent(into, job_id, place)
        return {"state": "replayed" if sent else "asked", "into": into}

    async def _marks(self, job_id: str) -> _Marks:
        confirmed, asked = confirmed_letters_prefix(job_id), asked_letters_prefix(job_id)
        return _Marks(
            {key.removeprefix(confirmed) for key, _ in await self._store.list(confirmed)},
            {key.removeprefix(asked) for key, _ in await self._store.list(asked)},
        )

    async def _read(self, key: str) -> list[dict[str, Any]]:
        lines = (await self._store.get(key)).splitlines()
        return [{"kept": "an earlier release wrote the letter", **json.loads(line)} for line in lines if line]


class _Marks:
    """Places (``uid/name``) of objects of letters that are confirmed, and that were given to a job."""

    def __init__(self, confirmed: set[str], asked: set[str]) -> None:
        self.confirmed, self.asked = confirmed, asked


def _sources(details: JobDetails) -> set[str]:
    return {o["uid"] for vertex in details.vertices for o in vertex.operators if o["kind"] == "source"}
