"""Records of the ranks that torchrun starts, kept in files beside the result until the run has ended.

There is no launcher that could collect what the ranks of a failed run had recorded. Each rank therefore appends its
records to a file of its own, and rank 0 reads all of them when the run fails. Where the hosts do not share the folder
of results, rank 0 finds too few files and its result has no epochs.
"""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from harness.config import RunConfig
from harness.errors import Diverged, InputError
from harness.running import Prepared, RecordedEpochs, cut_short, leave_result
from harness.running.results import RankEpoch, ResultFile, load_result
from real.rank.health import RankLost

WRITE_S = 5.0
"""How often a rank appends its records: a rank that is killed loses those of as many seconds."""

LATE_S = 3.0
"""How long rank 0 waits for the last records of ranks that a failure or a signal ends at the same time."""


class KeptRecords:
    """One rank's records of its run, and on rank 0 those of all.

    Args:
        result: path of the run's result file, on every rank.

    Attributes:
        prepared: set once the data are known, for the result of a run that fails.
    """

    def __init__(self, config: RunConfig, result: Path, rank: int) -> None:
        self.config, self.rank = config, rank
        self.folder = result.with_suffix(".ranks")
        self.prepared: Prepared | None = None
        self._lines: list[bytes] = []
        self._begun, self._count, self._written_at = False, 0, time.monotonic()
        if rank == 0:
            self.remove()  # of a run that was killed

    def prepare(self, prepared: Prepared) -> None:
        """Take note of the data."""
        self.prepared = prepared

    def keep(self, rank: int, record: RankEpoch) -> None:
        """Keep the record of an epoch of this rank; bytes to other ranks, which failed runs do not show, are left out.

        Raises:
            OSError: the folder cannot be written to.
        """
        self._lines.append(msgspec.json.encode(msgspec.structs.replace(record, to=b"")) + b"\n")
        self._count += 1
        if time.monotonic() - self._written_at > WRITE_S:
            self.write()

    def write(self) -> None:
        """Append what is not in the file yet."""
        if not self._lines:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / str(self.rank)).open("ab" if self._begun else "wb") as stream:
            stream.write(b"".join(self._lines))
        self._lines, self._begun, self._written_at = [], True, time.monotonic()

    def remove(self) -> None:
        """Remove the files of all ranks."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def leave(self, file: ResultFile | None, error: BaseException, inputs: dict[str, str]) -> None:
        """Write the result of a run that has ended early, and remove the files of all ranks.

        A failure without an epoch does not replace a result that is done.

        Args:
            file: the run's result on rank 0; None on other ranks, which only write their last records.
            inputs: see `Result`.

        Raises:
            InputError: the disk refuses the result.
        """
        with suppress(OSError):
            self.write()
        if file is None:
            return
        if isinstance(error, RankLost) and error.kind == Diverged.__name__:
            error = Diverged(str(error))
        result = replace(cut_short(error, self.config, self._gathered(), self.prepared), inputs=inputs)
        self.remove()
        if result.epochs or not _done(file.path):
            leave_result(file, result, error)

    def _gathered(self) -> RecordedEpochs:
        """The records of all ranks, which may be about to write their last ones."""
        found, deadline = self._read(), time.monotonic() + LATE_S
        while self._count and min(map(len, found)) < self._count and time.monotonic() < deadline:
            time.sleep(0.1)
            found = self._read()
        recorded = RecordedEpochs(len(found))
        for rank, records in enumerate(found):
            for record in records:
                recorded.add(rank, record)
        return recorded

    def _read(self) -> list[list[RankEpoch]]:
        """Rank -> its records so far; a line that was being written is left out."""
        found: list[list[RankEpoch]] = [[] for _ in range(self.config.cut.parts)]
        for rank, records in enumerate(found):
            with suppress(OSError):
                lines = (self.folder / str(rank)).read_bytes().split(b"\n")[:-1]
                records += [msgspec.json.decode(line, type=RankEpoch) for line in lines]
        return found


def _done(path: Path) -> bool:
    """Whether there is the result of a run that reached its end."""
    try:
        return bool(load_result(path)["state"] == "done")
    except InputError:
        return False
