"""Trains candidates, most of them not to the end: successive halving with one seed, then paired seeds of the finalists.

Exact methods share one training. A candidate is dropped when it can no longer be quicker than one that has reached the
target, or when it is in the lower half of its round and far below exact training after as much predicted time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.machine import Died
from harness.numbers import count_text
from harness.running.engines import LocalProcesses
from reports.advice._candidates import EXACT
from reports.advice._cells import Training, TrainingJob, carry_out, kept_training
from reports.advice._pricing import Priced
from reports.advice._progress import AdviceProgress
from reports.advice._question import Question

EVALUATIONS = 40
"""Evaluations of a whole training, about."""

ROUNDS = (0.25, 0.5, 1.0)
"""Shares of the useful epochs that are trained in each round."""

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
    progress: AdviceProgress
    data: dict[str, Any] = field(default_factory=dict)
    reference: dict[int, Training] = field(default_factory=dict)
    spent: dict[str, list[float]] = field(default_factory=lambda: {"expected": [], "took": []})
    out_of_budget: bool = False
    final: bool = False

    def __post_init__(self) -> None:
        self.epochs = self.question.base.training.epochs
        self.every = max(1, self.epochs // EVALUATIONS)
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

    def whole(self, contender: Contender | None) -> int:
        """The epochs of a whole training: more than asked for where they are short, less where exact training is over.

        As many as fit into the time in which exact training reaches the target, but no more than twice those asked for.
        """
        return self.epochs if contender is None or contender.exact else max(self.epochs, self._useful_epochs(contender))

    def run(self) -> None:
        """Train the reference, all contenders in rounds, and the finalists with all seeds."""
        first = self.seed(0)
        self._expect(ROUNDS, self._alive())
        self._make([(None, first, self.epochs)], must=True)
        if self.reference[first].failure:
            return
        self._drop_slow_epochs()
        for number, share in enumerate(ROUNDS):
            alive = self._alive()
            self._expect(ROUNDS[number:], alive)
            self._make([(each, first, self._round(each, share)) for each in alive])
            self._drop(share)
        self._finish([each for each in self._alive() if self._reaches(each) is not None])
        finalists, self.final = self._alive(), True
        for number in range(1, self.question.seeds):
            left = (self.question.seeds - number) * sum(self.whole(each) for each in (None, *finalists))
            self.progress.ahead["training"] = left * self._pace() / self.question.jobs
            if not self._make([(each, self.seed(number), self.whole(each)) for each in (None, *finalists)]):
                break
        self.progress.ahead.clear()
        for each in self.contenders:
            if each.exact:
                each.trainings = self.reference

    def _finish(self, reached: Sequence[Contender]) -> None:
        """Train to the end what reached the target, and choose the finalists."""
        self._choose_finalists(reached)
        self._make([(each, self.seed(0), self.whole(each)) for each in self._alive()])
        for each in self._alive():
            if each.trainings[self.seed(0)].epochs < self.whole(each):
                each.dropped = BUDGET_SPENT

    def _round(self, contender: Contender, share: float) -> int:
        """The epochs of a contender in one round."""
        return max(self.every, math.ceil(self._useful_epochs(contender) * share / self.every) * self.every)

    def _reaches(self, contender: Contender) -> float | None:
        return contender.seconds_to(self.target(self.seed(0)), self.seed(0))

    def _alive(self) -> list[Contender]:
        return [each for each in self.contenders if not each.exact and not each.dropped]

    def _drop_slow_epochs(self) -> None:
        for each in self._alive():
            if each.priced.too_large:
                each.dropped = f"does not fit: {each.priced.too_large}"
            elif not each.priced.candidate.batches and each.priced.epoch >= self.quickest_exact:
                each.dropped = "its epoch is no shorter than that of an exact method"

    def _useful_epochs(self, contender: Contender) -> int:
        """The epochs after which it can no longer be quicker than the quickest exact method."""
        seed = self.seed(0)
        epochs = self.reference[seed].epochs_to(self.target(seed)) if seed in self.reference else None
        if epochs is None or math.isinf(self.quickest_exact):
            return self.epochs
        useful = math.ceil(epochs * self.quickest_exact / contender.priced.epoch / self.every) * self.every
        return max(self.every, min(2 * self.epochs, useful))

    def _drop(self, share: float) -> None:
        """Drop what can no longer be the advice after a round."""
        seed, alive = self.seed(0), []
        for each in self._alive():
            done = each.trainings.get(seed)
            if done is None or (done.epochs < self._round(each, share) and not done.failure):
                each.dropped = BUDGET_SPENT
            elif done.failure:
                each.dropped = done.failure
            elif share == 1 and self._reaches(each) is None:
                epochs = count_text(self._round(each, share), "epoch")
                each.dropped = f"does not reach the target in {epochs}, when exact training has"
            else:
                alive.append(each)
        left = sorted(alive, key=lambda each: self._lag(each, share))
        margin = FAR_BELOW * max(self.question.within, 1.0)
        for each in left[-(-len(left) // 2) :] if share < 1 else ():
            lag = self._lag(each, share)
            if lag > margin:
                epochs = count_text(self._round(each, share), "epoch")
                each.dropped = f"{lag:.1f} points below exact training in the time of {epochs}"

    def _lag(self, contender: Contender, share: float) -> float:
        """Points of validation score below the quickest exact training after the same predicted time."""
        seed, at = self.seed(0), self._round(contender, share)
        alike = at if math.isinf(self.quickest_exact) else round(at * contender.priced.epoch / self.quickest_exact)
        return self.reference[seed].best(max(alike, self.every))[0] - contender.trainings[seed].best(at)[0]

    def _choose_finalists(self, reached: Sequence[Contender]) -> None:
        ordered = sorted(reached, key=lambda each: self._reaches(each) or math.inf)
        for each in ordered[FINALISTS:]:
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
                f"[{done}/{total}] trained {name}, seed {seed}, {count_text(result.epochs, 'epoch')}: "
                + (result.failure or f"{result.best()[0]:.2f} %")
            )
        return done == total

    def _results(self, waiting: Sequence[TrainingJob], must: bool) -> Iterator[tuple[TrainingJob, Training | Died]]:
        engine = self.question.engine or LocalProcesses(self.question.jobs)
        yield from engine.map(carry_out, waiting, lambda job: must or self._affordable(job))

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
        return TrainingJob(config, question.out.absolute(), whole=epochs == self.whole(owner))

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

    def _expect(self, rounds: Sequence[float], alive: Sequence[Contender]) -> None:
        """Estimate the seconds of rounds and finals."""
        lengths = sum(self._useful_epochs(each) for each in alive)
        last = 0.0 if rounds == ROUNDS else ROUNDS[ROUNDS.index(rounds[0]) - 1]
        epochs, kept = self.epochs * float(rounds == ROUNDS), 1.0
        for share in rounds:
            epochs += kept * lengths * (share - last)
            kept, last = kept / 2, share
        finals = (self.question.seeds - 1) * (1 + min(FINALISTS, max(len(alive) // 4, 1))) * self.epochs
        self.progress.ahead["training"] = (epochs + finals) * self._pace() / self.question.jobs


def expected_training(question: Question, priced: Sequence[Priced]) -> float:
    """What all trainings on the whole graph would take here, about."""
    race = Race(question, [Contender(each) for each in priced], AdviceProgress(question.budget))
    quickest = race.quickest_exact
    for each in race.contenders:
        if not each.exact and not each.priced.candidate.batches and each.priced.epoch >= quickest:
            each.dropped = "slow"
    race._expect(ROUNDS, race._alive())
    return race.progress.ahead["training"]
