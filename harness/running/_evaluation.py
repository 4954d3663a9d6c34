"""Evaluation off the clock, with exact boundary rows and without dropout for every method.

Either the ranks evaluate together (`Judge`), in the precision of training, while training waits; or a spare process
evaluates on the whole graph while training continues (`SpareJudge`). Neither is part of an epoch's time.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.config import RunConfig
from harness.graphs import Part
from harness.methods.bases.base import Method
from harness.methods.bases.edge_cut import EdgeCutState
from harness.methods.vanilla import Vanilla
from harness.nn import GNN, counts
from harness.rank import Rank
from harness.running._job import Job, Spare
from harness.running.results import RankEpoch
from harness.tape import Tape

PATIENCE_S = 1.0
"""Seconds that rank 0 waits for the spare process between synchronisations with the other ranks."""


def due(epoch: int, config: RunConfig) -> bool:
    """Whether a run evaluates after this epoch: every `eval_every` epochs, and after the last one."""
    last = epoch == config.training.epochs - 1
    return last or (config.run.eval_every > 0 and (epoch + 1) % config.run.eval_every == 0)


def whole_graph(config: RunConfig) -> RunConfig:
    """The config of one process with the whole graph on which `config` evaluates, in the order of vanilla."""
    order = "aggregate-first" if config.model.order == "method" else config.model.order
    return config.changed(
        method="single", order=order, layer0="auto", parts=1, hosts=1, partitioner="auto", protocol="transductive",
        mode="loopback", device="cpu", backend="auto", evaluate="ranks",
    )  # fmt: skip


async def make_judge(rank: Rank, job: Job, part: Part, model: GNN, state: Any) -> Judge | SpareJudge | None:
    """One rank's judge; None without evaluation (`eval_every` < 0, or shapes only).

    Overlapping parts are not used for evaluation, because copies of nodes would count twice.
    """
    if rank.shapes_only or job.config.run.eval_every < 0:
        return None
    if job.config.run.evaluate == "spare":
        limits = job.config.run.prepare_timeout, job.config.run.startup_timeout
        return SpareJudge(job.spare, limits)
    method = job.method.exact() or Vanilla(layer0="auto")
    if job.config.data.protocol == "transductive" and job.method.facts.cut != "overlap":
        if isinstance(state, EdgeCutState) and (state.z0 is not None or state.halo_x is not None):
            return Judge(part, method, state)
        return Judge(part, method, await method.setup(rank, part, model))
    whole = job.parts.evaluation(rank.index).to(rank.device)
    return Judge(whole, method, await method.setup(rank, whole, model))


@dataclass(frozen=True)
class Judge:
    """Evaluates on one rank.

    Attributes:
        part: the part for evaluation.
        method: an exact method for this kind of part.
        state: the result of its `setup`.
    """

    part: Part
    method: Method
    state: Any

    async def judge(self, rank: Rank, model: GNN) -> list[list[float]]:
        """Counts of train, val and test over all ranks: `harness.nn.counts`."""
        model.eval()
        with torch.no_grad():
            memory = self.method.remember(rank, self.part, model, self.state)
            logits = await self.method.forward(rank, self.part, model, self.state, memory, Tape(rank))
        table = await rank.all_reduce(counts(logits, self.part), label="evaluation", direction="other")
        return [[float(v) for v in row] for row in table]

    async def settle(self, rank: Rank, records: list[RankEpoch]) -> None:
        """Do nothing: no evaluation is pending."""


@dataclass
class SpareJudge:
    """Submits evaluations to the spare process of rank 0; the other ranks only synchronise with rank 0.

    Attributes:
        submitted: epochs whose counts are in no record yet.
        limits: seconds that the process may take for its first evaluation, for which it loads the graph, and for each
            later one.
        found: the first evaluation is there.
        given_up: an evaluation took longer; nothing is submitted any more.
        missing: epochs that stay without counts.
    """

    spare: Spare | None
    limits: tuple[float, float]
    submitted: list[int] = field(default_factory=list)
    found: bool = False
    given_up: bool = False
    missing: list[int] = field(default_factory=list)

    async def judge(self, rank: Rank, model: GNN) -> None:
        """Submit the model; its counts are recorded by `settle`."""
        if self.given_up:
            self.missing.append(rank.epoch)
        elif self.spare is not None:
            self.spare.submit(rank.epoch, model.state_dict())
            self.submitted.append(rank.epoch)

    async def settle(self, rank: Rank, records: list[RankEpoch]) -> None:
        """Wait until all submitted evaluations are in rank 0's records of these epochs.

        The ranks synchronise about once a second, so that a long evaluation is not mistaken for a lost rank. Epochs
        whose evaluation takes too long stay without scores: the epochs themselves are not lost for that.

        Raises:
            HaloscopeError: the process ended.
        """
        by_epoch, begun = {record.epoch: record for record in records}, time.monotonic()
        under_way = True
        while under_way:
            if self.submitted and self.spare is not None:
                scores = self.spare.counts(self.submitted[0], PATIENCE_S)
                if scores is not None:
                    by_epoch[self.submitted.pop(0)].counts, begun = scores, time.monotonic()
                    self.found = True
                elif time.monotonic() - begun > self.limits[self.found]:
                    self._give_up()
            left = torch.tensor([len(self.submitted)], dtype=torch.float32, device=rank.device)
            under_way = bool(await rank.all_reduce(left, label="evaluations under way", direction="other") > 0)

    def _give_up(self) -> None:
        """Leave the submitted epochs without scores, and say so."""
        flag = "--startup-timeout" if self.found else "--prepare-timeout"
        logging.getLogger("haloscope").warning(
            "the evaluation of epoch %d takes longer than %g s (%s): %d epochs get no scores, nor do later ones",
            self.submitted[0], self.limits[self.found], flag, len(self.submitted),
        )  # fmt: skip
        self.missing += self.submitted
        self.submitted.clear()
        self.given_up = True
