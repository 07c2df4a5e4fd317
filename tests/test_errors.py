import inspect

import pytest

from penstock import errors

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.PenstockError)]


@pytest.mark.parametrize("cls", CLASSES)
def test_errors_cross_processes(cls: type[errors.PenstockError]) -> None:
    err = cls("broken", expected="a", got="b", where="c", remedy="d", user_traceback="Traceback …")
    back = errors.error_from_dict(err.to_dict())
    assert type(back) is cls
    assert back.to_dict() == err.to_dict()


@pytest.mark.parametrize("retryable", [True, False])
def test_one_error_may_say_that_trying_again_does_not_help(retryable: bool) -> None:
    err = errors.FunctionError("map raised")
    err.retryable = retryable
    assert errors.error_from_dict(err.to_dict()).retryable is retryable
    assert errors.FunctionError("another").retryable


def test_the_users_traceback_comes_first() -> None:
    err = errors.FunctionError("map raised", user_traceback="Traceback: ValueError: x", remedy="fix it")
    lines = str(err).splitlines()
    assert lines[0] == "Traceback: ValueError: x"
    assert lines[1] == "[PS-FUNCTION] map raised"
    assert lines[2].split() == ["do:", "fix", "it"]


def test_every_class_is_in_the_tree_at_the_top() -> None:
    for cls in CLASSES:
        assert cls.__name__ in errors.__doc__


def test_an_error_of_a_class_that_is_not_known_here_keeps_its_code() -> None:
    back = errors.error_from_dict(
        {"type": "NotHereError", "code": "PS-NOT-HERE", "message": "gone", "got": "x"}
    )
    assert type(back) is errors.PenstockError
    assert str(back).splitlines()[0] == "[PS-NOT-HERE] gone"
    assert back.to_dict()["code"] == "PS-NOT-HERE"
    assert errors.error_from_dict({"message": "of nobody"}).code == errors.PenstockError.code == "PS-ERROR"


@pytest.mark.parametrize(("name", "found"), [("parallelsm", "'parallelism'"), ("zzz", None)])
def test_nearest(name: str, found: str | None) -> None:
    phrase = errors.nearest(name, ["parallelism", "name"])
    assert phrase == (f"did you mean {found}?" if found else None)
