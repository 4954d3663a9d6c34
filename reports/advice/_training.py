"""Trains candidates, most of them not to the end: successive halving with one seed, then paired seeds of the finalists.

Exact methods share one training. A candidate is dropped when it can no longer be quicker than one that has reached the
target, or when it is in the lower half of its round and far below exact training after as much predicted time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.machine import Died, map_on_processes
from reports.advice._candidates import EXACT
from reports.advice._cells import Training, TrainingJob, kept_training, train
from reports.advice._pricing import Priced
from reports.advice._progress import Progress
from reports.advice._question import Question

EVALUATIONS = 40
"""Evaluations of a whole training, about."""

FINALISTS = 4
"""Inexact candidates that are trained with all seeds."""

FAR_BELOW = 4.0
"""How many times `within` (at least one point) a candidate of the lower half may be below exact training."""

FINAL_SHARE = 0.25
"""Share of the budget that is kept for the finalists."""

BUDGET_SPENT = "the budget is spent"


@dataclass
class Contender:
    """A candidate that is trained.

    Attributes:
        trainings: by seed.
        dropped: why no more is trained; empty for a finalist.
    """

    priced: Priced
    trainings: dict[int, Training] = field(default_factory=dict)
    dropped: str = ""

    @property
    def exact(self) -> bool:
        """Whether the training of the reference is its own."""
        return self.priced.candidate.exact

    def seconds_to(self, target: float, seed: int) -> float | None:
        """Modelled seconds until a seed's training reaches a validation score."""
        done = self.trainings.get(seed)
        epochs = done.epochs_to(target) if done is not None else None
        return None if epochs is None else epochs * self.priced.epoch


@dataclass
class Race:
    """The trainings of one question.

    Attributes:
        data: settings of the graph that is trained on, where it is a sample.
        reference: trainings of the exact method, by seed.
        spent: expected and real seconds of trainings so far.
        out_of_budget: some training was not begun, because it would have ended too late.
        final: the finalists are being trained.
    """

    question: Question
    contenders: list[Contender]
    progress: Progress
    data: dict[str, Any] = field(default_factory=dict)
    reference: dict[int, Training] = field(default_factory=dict)
    spent: dict[str, list[float]] = field(default_factory=lambda: {"expected": [], "took": []})
    out_of_budget: bool = False
    final: bool = False

    def __post_init__(self) -> None:
        whole = self.question.base.training.epochs
        self.every = max(1, whole // EVALUATIONS)
        rungs = [math.ceil(whole * share / self.every) * self.every for share in (0.25, 0.5)]
        self.rungs = [rung for rung in dict.fromkeys(rungs) if rung < whole] + [whole]
        exact = [each.priced for each in self.contenders if each.exact]
        self.exact = min(
            (each for each in exact if each.candidate.method == EXACT), key=lambda each: each.candidate.parts
        )
        fitting = [each.epoch for each in exact if not each.too_large]
        self.quickest_exact = min(fitting, default=math.inf)

    def seed(self, number: int) -> int:
        """The seed of the run number `number`."""
        return self.question.base.training.seed + number

    def target(self, seed: int) -> float:
        """The validation score that counts as reached: the best of exact training less what may be lost."""
        return self.reference[seed].best()[0] - self.question.within

    def run(self) -> None:
        """Train the reference, all contenders in rounds, and the finalists with all seeds."""
        first, whole = self.seed(0), self.rungs[-1]
        self._expect(self.rungs, self._alive())
        self._make([(None, first, whole)], must=True)
        self._drop_slow_epochs()
        for number, rung in enumerate(self.rungs):
            alive = self._alive()
            self._expect(self.rungs[number:], alive)
            self._make([(each, first, min(rung, self._useful_epochs(each))) for each in alive], rung=rung)
            self._drop(rung, last=rung == whole)
        finalists, self.final = self._alive(), True
        for number in range(1, self.question.seeds):
            left = self.question.seeds - number
            self.progress.ahead["training"] = left * (1 + len(finalists)) * whole * self._pace() / self.question.jobs
            if not self._make([(each, self.seed(number), whole) for each in (None, *finalists)]):
                break
        self.progress.ahead.clear()
        for each in self.contenders:
            if each.exact:
                each.trainings = self.reference

    def _alive(self) -> list[Contender]:
        return [each for each in self.contenders if not each.exact and not each.dropped]

    def _drop_slow_epochs(self) -> None:
        for each in self._alive():
            if each.priced.too_large:
                each.dropped = f"does not fit: {each.priced.too_large}"
            elif not each.priced.candidate.batches and each.priced.epoch >= self.quickest_exact:
                each.dropped = "its epoch is no shorter than that of an exact method"

    def _useful_epochs(self, contender: Contender) -> int:
        """The epochs after which it can no longer be quicker than the quickest exact method; all where that is open."""
        whole, exact = self.rungs[-1], self._exact_seconds()
        if exact is None or contender.seconds_to(self.target(self.seed(0)), self.seed(0)) is not None:
            return whole
        useful = math.ceil(exact / contender.priced.epoch / self.every) * self.every
        return max(self.every, min(whole, useful))

    def _exact_seconds(self) -> float | None:
        seed = self.seed(0)
        epochs = self.reference[seed].epochs_to(self.target(seed))
        return None if epochs is None or math.isinf(self.quickest_exact) else epochs * self.quickest_exact

    def _drop(self, rung: int, last: bool) -> None:
        """Drop what can no longer be the advice after a round of so many epochs."""
        seed, alive = self.seed(0), []
        for each in self._alive():
            done = each.trainings.get(seed)
            if done is None:
                each.dropped = BUDGET_SPENT
            elif done.failure:
                each.dropped = done.failure
            else:
                alive.append(each)
        exact = self._exact_seconds()
        for each in alive:
            reached = each.seconds_to(self.target(seed), seed)
            if (
                (
                    exact is not None
                    and reached is None
                    and min(rung, each.trainings[seed].epochs) * each.priced.epoch >= exact
                )
                or exact is not None
                and reached is not None
                and reached >= exact
            ):
                each.dropped = "exact training reaches the target sooner"
        left = sorted((each for each in alive if not each.dropped), key=lambda each: self._lag(each, rung))
        margin = FAR_BELOW * max(self.question.within, 1.0)
        for each in left[-(-len(left) // 2) :]:
            if self._lag(each, rung) > margin:
                each.dropped = f"{self._lag(each, rung):.1f} points below exact training in the time of {rung} epochs"
        if last:
            self._choose_finalists([each for each in left if not each.dropped])

    def _lag(self, contender: Contender, rung: int) -> float:
        """Points of validation score below the quickest exact training after the same predicted time."""
        seed = self.seed(0)
        done = contender.trainings[seed]
        at = min(rung, done.epochs)
        alike = at if math.isinf(self.quickest_exact) else round(at * contender.priced.epoch / self.quickest_exact)
        return self.reference[seed].best(max(alike, self.every))[0] - done.best(at)[0]

    def _choose_finalists(self, left: Sequence[Contender]) -> None:
        seed = self.seed(0)
        for each in left:
            if each.seconds_to(self.target(seed), seed) is None:
                each.dropped = f"does not reach the target in {self.rungs[-1]} epochs"
        reached = [each for each in left if not each.dropped]
        reached.sort(key=lambda each: each.seconds_to(self.target(seed), seed) or math.inf)
        for each in reached[FINALISTS:]:
            each.dropped = f"{FINALISTS} others reach the target sooner"

    def _make(self, todo: Sequence[tuple[Contender | None, int, int]], rung: int = 0, must: bool = False) -> bool:
        """Carry out trainings (None is the reference); returns whether all are there."""
        owners = {self._job(owner, seed, epochs): (owner, seed) for owner, seed, epochs in todo}
        waiting: list[TrainingJob] = []
        for job, (owner, seed) in owners.items():
            found = kept_training(job)
            if found is None:
                waiting.append(job)
            else:
                self._take(owner, seed, found)
        total = len(waiting)
        done = 0
        for job, made in self._results(waiting, must):
            owner, seed = owners[job]
            done += 1
            lost = Training(0, [], 0.0, "its process died, perhaps for lack of memory")
            result = lost if isinstance(made, Died) else made
            self._take(owner, seed, result)
            self.spent["expected"].append(job.config.training.epochs * self._work(owner))
            self.spent["took"].append(result.seconds)
            ahead = self.progress.ahead
            ahead["training"] = max(0.0, ahead.get("training", 0.0) - result.seconds / self.question.jobs)
            name = owner.priced.candidate.title if owner is not None else "exact training"
            self.progress.say(
                f"[{done}/{total}] trained {name}, seed {seed}, {result.epochs} epochs: "
                + (result.failure or f"{result.best()[0]:.2f} %")
            )
        if must and self.reference[self.seed(0)].failure:
            return False
        return done == total

    def _results(self, waiting: Sequence[TrainingJob], must: bool) -> Iterator[tuple[TrainingJob, Training | Died]]:
        if self.question.jobs == 1 or len(waiting) < 2:
            yield from ((job, train(job)) for job in waiting if must or self._affordable(job))
        else:
            yield from map_on_processes(train, waiting, self.question.jobs, lambda job: must or self._affordable(job))

    def _affordable(self, job: TrainingJob) -> bool:
        seconds = job.config.training.epochs * self._pace()
        kept = 0.0 if self.final else FINAL_SHARE * self.progress.budget
        if seconds <= self.progress.remaining() - kept:
            return True
        self.out_of_budget = True
        return False

    def _take(self, owner: Contender | None, seed: int, found: Training) -> None:
        (self.reference if owner is None else owner.trainings)[seed] = found

    def _job(self, owner: Contender | None, seed: int, epochs: int) -> TrainingJob:
        question = self.question
        config = (self.exact if owner is None else owner.priced).candidate.config.changed(
            mode="loopback", cluster="local", seed=seed, epochs=epochs, eval_every=self.every, **self.data
        )
        if question.jobs > 1:
            config = config.changed(threads=1)
        return TrainingJob(config, question.out, whole=epochs == self.rungs[-1])

    def _work(self, owner: Contender | None) -> float:
        """Seconds of an epoch here, by formula."""
        return (self.exact if owner is None else owner.priced).work

    def _pace(self) -> float:
        """Mean seconds of an epoch of the trainings that are left, as those so far took."""
        works = [self._work(each) for each in (None, *self._alive())]
        return sum(works) / len(works) * self._correction()

    def _correction(self) -> float:
        expected = sum(self.spent["expected"])
        return sum(self.spent["took"]) / expected if expected and self.spent["took"] else 1.0

    def _expect(self, rungs: Sequence[int], alive: Sequence[Contender]) -> None:
        """Estimate the seconds of rounds and finals."""
        before, count, epochs = self.rungs[-1] * (rungs == self.rungs), len(alive), 0.0
        last = 0 if rungs == self.rungs else self.rungs[self.rungs.index(rungs[0]) - 1]
        for rung in rungs:
            epochs += count * (rung - last)
            count, last = -(-count // 2), rung
        finals = (self.question.seeds - 1) * (1 + min(FINALISTS, max(count, 1))) * self.rungs[-1]
        self.progress.ahead["training"] = (before + epochs + finals) * self._pace() / self.question.jobs


def expected_seconds(question: Question, priced: Sequence[Priced]) -> float:
    """What all trainings on the whole graph would take here, about."""
    race = Race(question, [Contender(each) for each in priced], Progress(question.budget))
    quickest = race.quickest_exact
    for each in race.contenders:
        if not each.exact and not each.priced.candidate.batches and each.priced.epoch >= quickest:
            each.dropped = "slow"
    race._expect(race.rungs, race._alive())
    return race.progress.ahead["training"]
