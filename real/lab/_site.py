"""Where a launcher's ranks run: on this machine as it is, or on hosts that were set up on it (`real.lab`)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

LOOPBACK = "127.0.0.1"


class HostSetup(Protocol):
    """Hosts that ranks are started on.

    Attributes:
        address: where ranks find the key-value store that they meet at.
        listens: where the store listens; it must take the store's host to itself too.
    """

    @property
    def address(self) -> str: ...

    @property
    def listens(self) -> str: ...

    def inside(self, rank: int | None) -> AbstractContextManager[None]:
        """Within it, sockets and processes of the calling thread belong to a rank's host; None: to the store's."""
        ...

    def environment(self, rank: int, parts: int) -> dict[str, str]:
        """Variables that tell a rank its host, its neighbours there and its network interface."""
        ...


class ThisMachine:
    """All ranks on one host, talking over the loopback interface only."""

    address = listens = LOOPBACK

    def inside(self, rank: int | None) -> AbstractContextManager[None]:
        """Nothing to enter."""
        return nullcontext()

    def environment(self, rank: int, parts: int) -> dict[str, str]:
        """One host, its ranks in order."""
        return located(rank, parts, 0, "lo")


def located(local_rank: int, local_size: int, host: int, interface: str) -> dict[str, str]:
    """torchrun's variables for a place on a host, and the interface that gloo must use."""
    return {
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(local_size),
        "GROUP_RANK": str(host),
        "GLOO_SOCKET_IFNAME": interface,
    }
