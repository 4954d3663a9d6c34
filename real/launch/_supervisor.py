"""Restarts the ranks after one of them failed: all of them, from the last complete checkpoint.

Every attempt has its own key-value store and port, so nothing is left of the failed one. Errors that would occur again
(`harness.errors.REPEATED`) are not retried: bad input, values that cannot be sent, ranks that disagree.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.errors import REPEATED
from harness.running import Job, last_epochs
from real.launch._launcher import RankFailed


def supervise(attempt: Callable[[], None], job: Job) -> list[str]:
    """Call `attempt` until it returns, once more after each failure while `restarts` last.

    Returns one line for each attempt that failed; each line is also printed on stderr when it happens.

    Raises:
        RankFailed: of the last attempt, of one that is not retried, or of one that was asked to stop meanwhile.
        InputError: raised by a rank for bad input.
    """
    options, failures = job.checkpoints, list[str]()
    while True:
        try:
            attempt()
            return failures
        except RankFailed as failure:
            if options is None or len(failures) == options.restarts or failure.kind in REPEATED or options.stop():
                raise
            failures.append(f"{failure}; resumed after {last_epochs(job)} epochs")
            left = options.restarts - len(failures)
            from harness.console import show, stderr  # here, because it would take every rank 0.1 s to import

            show([f"haloscope: {failures[-1]} ({left} restart{'' if left == 1 else 's'} left)"], stderr())
