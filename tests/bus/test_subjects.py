import pytest

from penstock.bus.subjects import Subjects, matches, verb_of
from penstock.errors import SpecError
from penstock.messages.job_master import SlotReport
from penstock.messages.resource_manager import DeclareSlots


def test_the_scheme():
    s = Subjects("alpha")
    assert s.jobs_submit == "alpha.jobs.submit"
    assert s.jobmanager_run == "alpha.jobmanager.run"
    assert s.job("j1", "slot-report") == "alpha.job.j1.slot-report"
    assert s.to_job("j1", SlotReport(job_id="j1", taskmanager_id="t", allocation_id="a", reports=())) == (
        "alpha.job.j1.slot-report"
    )
    assert s.to_resourcemanager(DeclareSlots) == "alpha.resourcemanager.declare-slots"
    assert s.taskmanager_all("tm-1") == "alpha.taskmanager.tm-1.*"
    assert s.event("job", "j1") == "alpha.events.job.j1"
    assert verb_of(DeclareSlots) == "declare-slots"


@pytest.mark.parametrize("bad", ["", "a.b", "a b", "*", ">", "a\r\nPUB x", "²", "a" * 5_000])
def test_ids_that_cannot_be_tokens(bad):
    with pytest.raises(SpecError):
        Subjects(bad)
    with pytest.raises(SpecError):
        Subjects().job(bad, "x")


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.*.c", "a.b.c", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("a.b", "a", False),
        ("a", "a.b", False),
    ],
)
def test_matching_is_nats(pattern, subject, expected):
    assert matches(pattern, subject) is expected
