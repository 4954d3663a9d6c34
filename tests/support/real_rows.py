"""One rank of several real runs, one after the other: `python -m tests.support.real_rows FOLDER`.

Starting Python for every row of the conformance suite would take longer than the rows. Configs are
`FOLDER/NUMBER.json`; rank 0 writes the result of each to `FOLDER/NUMBER`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness.config import RunConfig, from_mapping
from harness.running import finish
from harness.running.results import Result, load_result
from harness.trampoline import blame
from real.launch import ERROR_PREFIX, launch, run_rank
from real.rank.health import end_process
from tests.support.programs import share_gpus


def run_in_turn(configs: Sequence[RunConfig], folder: Path) -> list[Result]:
    """Results of configs with the same numbers of parts and threads, from one launch of that many gloo ranks."""
    for number, config in enumerate(configs):
        (folder / f"{number:03}.json").write_bytes(msgspec.json.encode(config.flat()))
    ((parts, threads),) = {(config.cut.parts, config.run.threads) for config in configs}
    arguments = ["-m", "tests.support.real_rows", str(folder)]
    launch(arguments, parts, threads=threads)
    records = [load_result(next((folder / f"{number:03}").glob("*.json"))) for number in range(len(configs))]
    return [Result(config, record["state"], record["epochs"]) for config, record in zip(configs, records, strict=True)]


def main(folder: Path) -> None:
    """Run this process's rank of every run. Each uses separate keys in the launcher's store, as a restarted run."""
    for number, file in enumerate(sorted(folder.glob("*.json"))):
        os.environ["TORCHELASTIC_RESTART_COUNT"] = str(number)
        config = from_mapping(msgspec.json.decode(file.read_bytes()))
        share_gpus(config.run.backend)
        found = run_rank(config)
        if found is not None:
            outcome, prepared = found
            finish(config, prepared, outcome.execution()).save(file.with_suffix(""))


if __name__ == "__main__":
    code = 0
    try:
        main(Path(sys.argv[1]))
    except BaseException as error:
        print(ERROR_PREFIX + " ".join(blame(error).split()), file=sys.stderr, flush=True)
        code = 1
    end_process(code)
