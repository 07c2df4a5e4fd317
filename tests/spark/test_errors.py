"""What Spark says of Python, in our words."""

from __future__ import annotations

import pytest

from penstock.errors import ConnectorError, FunctionError, SparkBusyError
from penstock.spark.errors import translated

CRASH = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times: org.apache.spark.SparkException: "
    "Python worker exited unexpectedly (crashed). Consider setting "
    "'spark.python.worker.faulthandler.enabled' configuration to 'true' for the better Python traceback.\n"
    "\tat org.apache.spark.api.python.BasePythonRunner"
)
RAISED = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/scratch/userFiles-1/session/job-bae53bcf2013cc91.zip/ranks.py", line 2, in rank
    return 1 // n
ZeroDivisionError: integer division or modulo by zero

\tat org.apache.spark.Foo"""


def test_a_python_process_that_ended() -> None:
    error = translated(RuntimeError(CRASH))
    assert isinstance(error, FunctionError)
    assert "the job's code ended its Python process" in str(error)
    assert "os._exit()" in str(error)
    assert "faulthandler" not in str(error)


def test_a_python_process_that_a_busy_machine_did_not_start_in_time() -> None:
    text = (
        "org.apache.spark.SparkException: Python worker failed to connect back.\n"
        "\tat org.apache.spark.Foo\n"
        "Caused by: java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back"
    )
    error = translated(RuntimeError(text))
    assert isinstance(error, SparkBusyError)
    assert error.retryable
    assert "10 seconds" in str(error)


def test_what_a_function_raised_in_a_worker() -> None:
    error = translated(RuntimeError(RAISED))
    assert isinstance(error, FunctionError)
    assert error.user_traceback is not None
    assert error.user_traceback.splitlines()[1] == '  File "ranks.py", line 2, in rank'
    assert error.message.endswith("raised ZeroDivisionError: integer division or modulo by zero")
    assert "org.apache" not in str(error)


@pytest.mark.parametrize(
    ("cause", "got"),
    [
        ("java.io.IOException: FAILED_TO_UNCOMPRESS(5)", "FAILED_TO_UNCOMPRESS(5)"),
        ("org.apache.parquet.io.ParquetDecodingException: no page: 3", "no page: 3"),
        ("java.io.EOFException", "java.io.EOFException"),
    ],
)
def test_a_damaged_file_is_told_without_javas_class(cause: str, got: str) -> None:
    text = (
        "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///d/part%200.parquet. "
        f"SQLSTATE: KD001\n\tat org.apache.Spark\nCaused by: {cause}\n\tat org.apache.Parquet"
    )
    error = translated(RuntimeError(text))
    assert isinstance(error, ConnectorError)
    assert error.message == "'/d/part 0.parquet' is damaged"
    assert error.got == got
