"""RAW values between processes: classes of the script, of local scopes, of modules beside it."""

import subprocess
import sys
import textwrap
import threading

import pytest

from penstock.errors import FunctionError
from penstock.types.pickling import JobClasses, dumps, loads

#: Writes the job's class definitions and one value of each class, as a client does.
CLIENT = """
    import dataclasses, enum, pickle, sys, typing, msgspec
    sys.path.insert(0, sys.argv[1])
    import beside
    from penstock.jobgraph.artifacts import make_artifact, with_classes
    from penstock.jobgraph import CLASSES
    from penstock.types.pickling import dumps

    @dataclasses.dataclass
    class Data:
        n: int
        more: list = dataclasses.field(default_factory=list)
    @dataclasses.dataclass(slots=True, frozen=True)
    class Slotted:
        n: int
    class Struct(msgspec.Struct, kw_only=True, tag="s", rename={"n": "en"}):
        n: int
        next: "Struct | None" = None
        def total(self): return self.n + (self.next.total() if self.next else 0)
    class Ordered(msgspec.Struct, frozen=True, order=True):
        n: int = 3
        items: list[int] = msgspec.field(default_factory=list)
        def __post_init__(self):
            if not self.items: self.items.append(self.n)
    class Named(typing.NamedTuple):
        n: int
        def twice(self): return 2 * self.n
    class Color(enum.Enum):
        RED = 1
    class Plain:
        made = 0
        def __init__(self, n): self.n = n; type(self).made += 1
        def copy(self): return Plain(self.n)
    class Bare:
        __slots__ = ("n", "unset")
        def __init__(self, n): self.n = n
    class BareChild(Bare):
        __slots__ = ("m",)
        def __init__(self, n): super().__init__(n); self.m = 2 * n
    def scope():
        class Local:
            def __init__(self, n): self.n = n
        return Local
    Local = scope()

    values = [Data(1), Slotted(2), Struct(n=3, next=Struct(n=4)), Ordered(), Named(5), Color.RED, Plain(6), Bare(7),
              BareChild(8), Local(9), beside.Model(10), [Data(11), {"k": Plain(12)}]]
    if len(sys.argv) > 2:
        import pydantic
        class Py(pydantic.BaseModel):
            n: int
            tags: list[str] = []
        values.append(Py(n=13, tags=["x"]))
    artifact = make_artifact(lambda: values, "test")
    table = with_classes({"f": artifact})
    data = [dumps(v) for v in values]
    out = pickle.dumps((table["f"].data, table[CLASSES].data, data, [repr(v) for v in values]))
    sys.stdout.buffer.write(out)
"""

#: A slot: reads the values, writes them again, and looks at them with the job's function.
SLOT = """
    import pickle, sys
    from penstock.types import pickling
    function, table, data, texts = pickle.loads(sys.stdin.buffer.read())
    if sys.argv[1] == "classes":
        pickling.classes.use(lambda: pickle.loads(table))
    for _ in range(2):
        values = [pickling.loads(d) for d in data]
        data = [pickling.dumps(v) for v in values]
    made = pickle.loads(function)()
    for new, old, text in zip(values, made, texts, strict=True):
        assert type(new) is type(old), (type(new), type(old))
        if " object at " not in text:
            assert repr(new) == text, (repr(new), text)
    assert values[2].total() == 7 and values[4].twice() == 10 and values[5] is made[5]
    assert values[6].copy().n == 6 and values[8].m == 16 and not hasattr(values[7], "unset")
    assert not hasattr(values[7], "__dict__") and not hasattr(values[1], "__dict__")
    assert values[3].items == [3] and values[9].n == 9 and values[10].n == 10
    import msgspec
    assert msgspec.json.encode(values[2]) == b'{"type":"s","en":3,"next":{"type":"s","en":4,"next":null}}'
    assert max(map(len, data)) < 400, list(map(len, data))
    print("good")
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("beside")
    (folder / "beside.py").write_text("class Model:\n    def __init__(self, n):\n        self.n = n\n")
    try:
        import pydantic  # noqa: F401

        more = ["pydantic"]
    except ImportError:
        more = []
    return _run(CLIENT, str(folder), *more)


def _run(program, *args, data=b""):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *args], input=data, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_values_of_the_programs_classes_cross_processes_and_stay_small(job):
    assert _run(SLOT, "classes", data=job) == b"good\n"


def test_a_class_that_is_not_of_the_job_is_an_error_that_names_it(job):
    program = """
        import pickle, sys
        from penstock.types import pickling
        _, _, data, _ = pickle.loads(sys.stdin.buffer.read())
        try:
            pickling.loads(data[0])
        except Exception as err:
            print(type(err).__name__, err.message, err.remedy)
    """
    out = _run(program, data=job).decode()
    assert "the class '__main__.Data' of a value is not part of this job" in out
    assert "register_type" in out


def test_a_class_made_at_run_time_goes_by_value():
    class Local:
        def __init__(self):
            self.n = 1

    data = dumps(Local())
    program = "import sys; from penstock.types.pickling import loads; print(loads(sys.stdin.buffer.read()).n)"
    assert _run(program, data=data) == b"1\n"


def test_the_last_of_several_classes_of_a_name_has_it():
    known = JobClasses()

    def make():
        class Twice:
            pass

        return Twice

    first, second = make(), make()
    known.add(first)
    name = known.add(second)
    assert known.find(name) is second
    assert known.name_of(second) == name
    assert known.name_of(first) is None


def test_what_cannot_be_pickled_is_named():
    with pytest.raises(FunctionError, match="cannot be sent to another process"):
        dumps([threading.Lock()])
    assert loads(dumps({"a": (1, None)})) == {"a": (1, None)}
