"""``python -m tests.simulation``: run seeds, print what they broke and how to repeat it."""

from __future__ import annotations

import argparse
import contextlib
import gc
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from penstock.testing.simulation import Violation
from tests.simulation import faults, workloads
from tests.simulation.plan import Plan, plan
from tests.simulation.scenario import Outcome, fault_free, run

#: Lines of the trace shown before what broke.
LAST_LINES = 40
#: Seeds from one word of progress to the next.
EVERY = 100
#: Seeds a worker is given at once: enough to pay for the way, few enough to share fairly.
CHUNK = 4


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="how many (default 20)")
    parser.add_argument("--from", type=int, default=1, dest="first", metavar="SEED", help="the first one")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--workload", choices=workloads.names(), help="instead of what the seed draws")
    parser.add_argument("--faults", help="comma separated, instead of what the seed draws; '' = none")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--twice", action="store_true", help="run each seed twice: the digest must be the same"
    )
    parser.add_argument("--stop", action="store_true", help="end at the first seed that breaks something")
    parser.add_argument("--list", action="store_true", help="name workloads and faults")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the whole trace")
    return parser.parse_args()


def perform(wanted: Plan, *, twice: bool = False) -> Outcome:
    outcome = run(wanted.seed, wanted.workload, list(wanted.faults))
    if twice and outcome.violation is None:
        again = run(wanted.seed, wanted.workload, list(wanted.faults))
        if again.digest != outcome.digest:
            outcome.violation = f"the same seed gave two digests: {outcome.digest} and {again.digest}"
    if outcome.violation is None:
        outcome.story = []  # not worth the way from a worker
    return outcome


def results(plans: list[Plan], jobs: int, twice: bool) -> Iterator[Outcome]:
    work = partial(perform, twice=twice)
    for name in sorted({p.workload for p in plans}):
        with contextlib.suppress(Violation):  # the runs that need it say so
            fault_free(name)  # once, before the workers are forked
    gc.collect()
    gc.freeze()  # each run ends with a full collection: of what it made only
    if jobs <= 1 or len(plans) == 1:
        yield from map(work, plans)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap_unordered(work, plans, CHUNK)


def show(outcome: Outcome) -> None:
    wanted = Plan(outcome.seed, outcome.workload, tuple(outcome.faults))
    print(f"\nseed {outcome.seed}: {outcome.workload} with {', '.join(outcome.faults) or 'no faults'}")
    for text in outcome.story[-LAST_LINES:]:
        print(f"  {text[:400]}")
    print(f"  BROKEN: {outcome.violation}")
    print(f"  repeat: {wanted.command}", flush=True)


def summary(outcomes: Iterable[Outcome], took_s: float) -> str:
    done = list(outcomes)
    befell = Counter(name for o in done for name in o.faults)
    broken = sorted(o.seed for o in done if o.violation is not None)
    totals = (
        f"{len(done)} seeds in {took_s:.0f} s: {sum(o.faults_done for o in done)} faults, "
        f"{sum(o.attempts for o in done)} attempts, {sum(o.restored for o in done)} restored from a checkpoint "
        f"({sum(o.regional for o in done)} of them regional), {sum(o.checkpoints for o in done)} checkpoints, "
        f"{sum(o.takeovers for o in done)} takeovers by another master, "
        f"{sum(o.virtual_s for o in done) / 60:.0f} virtual minutes"
    )
    kinds = ", ".join(f"{name} {n}" for name, n in sorted(befell.items()))
    verdict = f"{len(broken)} broken: {broken}" if broken else "all clean"
    return f"{totals}\nfaults by seeds: {kinds or 'none'}\n{verdict}"


def main() -> int:
    args = arguments()
    if args.list:
        print("workloads:", ", ".join(workloads.names()))
        print("faults:   ", ", ".join(faults.names()))
        return 0
    chosen = None if args.faults is None else tuple(f for f in args.faults.split(",") if f)
    seeds = [args.seed] if args.seed is not None else range(args.first, args.first + args.seeds)
    plans = [plan(seed, args.workload, chosen) for seed in seeds]
    if args.verbose:
        for wanted in plans:
            outcome = run(wanted.seed, wanted.workload, list(wanted.faults), verbose=print)
            print(f"digest {outcome.digest}; {outcome.violation or 'clean'}")
        return 0 if outcome.violation is None else 1
    started, outcomes = time.monotonic(), []
    for outcome in results(plans, args.jobs, args.twice):
        outcomes.append(outcome)
        if len(outcomes) % EVERY == 0 and len(outcomes) < len(plans):
            broken = sum(o.violation is not None for o in outcomes)
            print(f"… {len(outcomes)} of {len(plans)}, {broken} broken", file=sys.stderr, flush=True)
        if outcome.violation is not None:
            show(outcome)
            if args.stop:
                break
    print(summary(outcomes, time.monotonic() - started))
    if len(outcomes) == 1:
        print(f"digest {outcomes[0].digest}")
    return 0 if all(o.violation is None for o in outcomes) else 1


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of text is part of a run.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    sys.exit(main())
