"""The two other machines of the authors' logs, a server each: six GPUs on PCIe 3 (Fig. 9), eight in Oregon (Fig. 2, 7).

Their rows are in `reports/published/sylvie-logs-one-server.csv`. Rank 0 scores the model on a thread of its own during
these epochs; logs of the same eight GPUs without that, which no figure shows, have shorter ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from reports.core import load
from reports.core.context import Context
from reports.core.load import select
from reports.core.predict import Fit, Testbed
from reports.sylvie._testbed import SERVER, Logged, constants, read_rows, sylvie_bed

SAR_IN_ONE_SERVER = "sar/sar_n8.csv"


@dataclass(frozen=True)
class OneServer:
    """A server of its own.

    Attributes:
        text: what it is, such as "8 GPUs in Oregon".
        folder: of its logs in the authors' repository.
        parts: ranks, one on each GPU.
        cluster: the cluster it is modelled by.
        assumed: what is assumed of it.
    """

    text: str
    folder: str
    parts: int
    cluster: str
    assumed: str

    @property
    def lines(self) -> pd.DataFrame:
        """Its lines of the logs, of every precision, and those of SAR in as many parts of one server."""
        sar = select(load.published("sylvie-logs"), source_file=lambda path: path.endswith(SAR_IN_ONE_SERVER))
        own = select(load.published("sylvie-logs-one-server"), testbed=self.folder, partitions=float(self.parts))
        return pd.concat([own, select(sar, partitions=float(self.parts))], ignore_index=True)

    def logged(self) -> tuple[Logged, ...]:
        """Rows of its logs that are systems of Table 2, by graph and model."""
        return read_rows(self.lines, self.parts, SAR_IN_ONE_SERVER)

    def anchor(self) -> Logged:
        """The row that its constant is fitted on: Yelp's fp32 GraphSAGE."""
        (found,) = [row for row in self.logged() if row.fitted]
        return found

    def bed(self, context: Context, name: str, model: str = "GraphSAGE") -> Testbed:
        """A graph and model on its GPUs."""
        return sylvie_bed(context, name, model, parts=self.parts, cluster=self.cluster)

    def fit(self, context: Context) -> Fit:
        """The constants of the testbed, and one of its own: what a process moves at most, from its anchor's epoch."""
        row = self.anchor()
        return self.bed(context, row.name, row.model).fitted(
            "vanilla", row.epoch, source=f"{row.label}, {self.text} (logs)", free="process", start=constants(context),
            testbed=self.text,
        )  # fmt: skip


_OWN_CONSTANT = (
    "One constant is fitted on it: what a process moves at most, from Yelp's fp32 epoch; device, host and messages are "
    "those of the other logs, as the computation logged here is about theirs (0.067 s on 6, 0.050 s on 8 against "
    "0.047 s on the 8 of two servers; Yelp, GraphSAGE). Rank 0 scores the model on a thread meanwhile: logs of the 8 "
    "GPUs without that have 0.33 s for Yelp's fp32 epoch and 0.066 s with one bit (0.55 and 0.10 s here)"
)
PCIE3 = OneServer(
    "6 GPUs on PCIe 3", "speed_pcie3", 6, f"{SERVER}:links.bus.bandwidth=12GB/s",
    "Fig. 9 is of 6 GPUs of one server on PCIe 3 (the authors' notebook draws speed_pcie3/yelp_n6_pcie3.csv; the paper "
    "says 8), a machine of its own, whose GPUs are not named: the bus has half the bandwidth of PCIe 4. "
    + _OWN_CONSTANT,
)  # fmt: skip
OREGON = OneServer(
    "8 GPUs in Oregon", "speed_pcie4_oregon", 8, SERVER,
    "Fig. 2 and 7 are of 8 GPUs of one server, a machine of its own (the authors' notebook draws "
    "speed_pcie4_oregon/*_n8.csv), taken as one server of the paper's. " + _OWN_CONSTANT,
)  # fmt: skip
