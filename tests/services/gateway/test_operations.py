"""Operations: pages by token, waiting for a slow client, cancelling, errors."""

import threading

import pytest

from penstock.errors import FunctionError, SpecError, SqlError
from penstock.types import logical as t
from penstock_services.gateway import operations
from penstock_services.gateway.operations import OVER, Operation, Outcome, Page

SCHEMA = t.Schema.of(("a", t.IntType()))


class Job:
    def __init__(self):
        self.cancelled = threading.Event()

    def get_job_id(self):
        return "0" * 32

    def cancel(self):
        self.cancelled.set()


def started(run):
    operation = Operation(run)
    operation.start()
    return operation


def of_rows(rows, **more):
    return lambda: Outcome(SCHEMA, "SUCCESS_WITH_CONTENT", iter(rows), **more)


def page(operation, token) -> Page:
    """The page of ``token`` when it has rows or is the last."""
    while True:
        found = operation.fetch(token)
        if found.rows or found.at_end:
            return found


def over(operation):
    """Waits for its end."""
    with operation._changed:
        operation._changed.wait_for(lambda: operation.status in OVER)


def test_a_page_is_there_again_until_the_next_is_fetched():
    go = threading.Event()

    def rows():
        yield 1
        go.wait()
        yield 2

    operation = started(of_rows(rows()))
    first = page(operation, 0)
    assert (first.rows, first.next_token) == ((1,), 1)
    assert operation.fetch(0) == first
    go.set()
    assert page(operation, 1).rows == (2,)
    with pytest.raises(SpecError, match="token"):
        operation.fetch(0)
    assert page(operation, 2) == Page(operation.fetch(2).outcome, (), None, at_end=True)
    assert operation.status == "FINISHED"


def test_a_token_that_is_not_due_is_refused():
    operation = started(of_rows([1]))
    page(operation, 0)
    with pytest.raises(SpecError, match="expected: 1 or 0"):
        operation.fetch(7)


def test_a_statement_that_is_being_planned_has_no_results_yet():
    go = threading.Event()

    def run():
        go.wait()
        return of_rows([1])()

    operation = started(run)
    assert operation.fetch(0) == Page(None, (), 0)
    go.set()
    assert page(operation, 0).rows == (1,)


def test_the_query_waits_for_a_slow_client(monkeypatch):
    monkeypatch.setattr(operations, "BUFFERED_ROWS", 3)
    made = []

    def rows():
        for number in range(10):
            made.append(number)
            yield number

    operation = started(of_rows(rows()))
    got: list[int] = []
    found = page(operation, 0)
    while not found.at_end:
        assert len(made) <= len(got) + 4 + len(found.rows)
        got += found.rows
        found = page(operation, found.next_token)
    assert got == list(range(10))


def test_the_error_of_a_statement_is_its_own():
    def run():
        raise SqlError("unknown column 'x'", where="line 1, column 8")

    operation = started(run)
    over(operation)
    with pytest.raises(SqlError, match="unknown column 'x'"):
        operation.fetch(0)
    assert operation.status == "ERROR"


def test_a_function_that_ends_the_program_fails_its_statement():
    def run():
        raise SystemExit(3)

    operation = started(run)
    over(operation)
    with pytest.raises(FunctionError, match=r"SystemExit\(3\)"):
        operation.fetch(0)


def test_rows_before_an_error_are_not_the_result():
    def rows():
        yield 1
        raise SqlError("no more")

    operation = started(of_rows(rows()))
    over(operation)
    with pytest.raises(SqlError, match="no more"):
        operation.fetch(0)


@pytest.mark.parametrize("status", ["CANCELED", "CLOSED", "TIMEOUT"])
def test_the_job_of_a_query_ends_with_its_operation(status):
    job, endless = Job(), threading.Event()

    def rows():
        yield 1
        endless.wait()

    operation = started(of_rows(rows(), is_query=True, job=job))
    page(operation, 0)
    operation.end(status)
    assert operation.status == status
    assert job.cancelled.is_set()
    with pytest.raises(SpecError, match="has no results"):
        operation.fetch(1)
    endless.set()


def test_the_job_of_an_insert_runs_on():
    job = Job()
    operation = started(of_rows(["id"], job=job))
    page(operation, 0)
    operation.end("CLOSED")
    assert not job.cancelled.is_set()


def test_a_query_cancelled_while_it_was_planned_ends_its_job():
    job, planning, planned = Job(), threading.Event(), threading.Event()

    def run():
        planning.set()
        planned.wait()
        return Outcome(SCHEMA, "SUCCESS_WITH_CONTENT", iter([1]), is_query=True, job=job)

    operation = started(run)
    planning.wait()
    operation.end("CANCELED")
    planned.set()
    assert job.cancelled.wait(60)
    assert operation.status == "CANCELED"


def test_what_is_over_is_not_cancelled():
    operation = started(of_rows([]))
    assert page(operation, 0).at_end
    over(operation)
    operation.end("CANCELED")
    assert operation.status == "FINISHED"
