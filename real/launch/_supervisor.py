"""Starts the ranks again after one of them failed: each time anew, from the last complete checkpoint.

Every attempt has its own key-value store and port, so nothing of the failed one is met again. What would fail the same
way once more is not tried again: bad input, values that cannot be sent, ranks that disagree.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.console import show, stderr
from harness.running import Job, last_epochs
from real.launch._launcher import RankFailed

HOPELESS = ("Diverged", "InputError", "ProgramError")
"""Class names of errors after which another attempt would end the same way."""


def supervise(attempt: Callable[[], None], job: Job) -> list[str]:
    """Call `attempt` until it returns, once more after each failure while `restarts` last.

    Answers what became of the attempts that failed, one line each; each is also said on stderr when it happens.

    Raises:
        RankFailed: of the last attempt, of one that is hopeless, or of one that was asked to stop meanwhile.
        InputError: what a rank found that the user can mend.
    """
    options, failures = job.checkpoints, list[str]()
    while True:
        try:
            attempt()
            return failures
        except RankFailed as failure:
            if options is None or len(failures) == options.restarts or failure.kind in HOPELESS or options.stop():
                raise
            failures.append(f"{failure}; went on after {last_epochs(job)} epochs")
            left = options.restarts - len(failures)
            show([f"haloscope: {failures[-1]} ({left} restart{'' if left == 1 else 's'} left)"], stderr())
