"""Started receives that are checked first: their header is compared with the sender's in a thread.

The header of a message must be read before the buffer for its payload is allocated, since a wrong payload would end the
process inside the library. Waiting for the header where the receive is started could deadlock with a sender that waits
for this rank; so a thread waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from real.rank._transport import Pending, Silence


class Receives:
    """The started receives of one rank, per source in the order of their messages."""

    def __init__(self) -> None:
        self._latest: dict[int, _Receive] = {}

    def start(self, source: int, check: Callable[[], None], begin: Callable[[], Pending], patience_s: float) -> Pending:
        """Run `check`, then `begin` and its wait, in a thread, once the earlier receives from `source` have begun."""
        receive = _Receive(self._latest.get(source), check, begin, patience_s)
        self._latest[source] = receive
        return Pending(receive.received, receive.join)

    def under_way(self, source: int) -> bool:
        """Whether a started receive from `source` has not begun yet, so that the next one must queue behind it."""
        latest = self._latest.get(source)
        return latest is not None and not latest.begun.is_set()

    def settle(self, source: int) -> None:
        """Wait until the started receives from `source` have begun, so that the next one follows them."""
        earlier = self._latest.pop(source, None)
        if earlier is not None:
            earlier.begun.wait(earlier.patience_s)


class _Receive:
    """One receive and its thread.

    Attributes:
        begun: set once its payload's receive is posted, or has failed.
    """

    def __init__(
        self, earlier: _Receive | None, check: Callable[[], None], begin: Callable[[], Pending], patience_s: float
    ) -> None:
        self.begun, self.patience_s = threading.Event(), patience_s
        self._result: Any = None
        self._error: BaseException | None = None

        def run() -> None:
            try:
                if earlier is not None:
                    earlier.begun.wait(patience_s)
                check()
                payload = begin()
                self.begun.set()
                self._result = payload.result()
            except BaseException as error:  # raised where the program waits
                self._error = error
            finally:
                self.begun.set()

        self._thread = threading.Thread(target=run, daemon=True, name="started-receive")
        self._thread.start()

    def join(self) -> None:
        """Wait for the message. Raises Silence when it takes too long."""
        self._thread.join(3 * self.patience_s)  # for those before it, its header and its payload
        if self._thread.is_alive():
            raise Silence(f"had no answer within {3 * self.patience_s:g} s")

    def received(self) -> Any:
        """What was received; raises the error of the thread if there was one. Call once."""
        if self._error is not None:
            raise self._error
        result, self._result = self._result, None  # the latest receive of a source is kept, to queue the next one
        return result
