"""Where a launcher's ranks run: on this machine as it is, or on hosts that were set up on it (`real.lab`)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

LOOPBACK = "127.0.0.1"


class HostSetup(Protocol):
    """Hosts that ranks are started on.

    Attributes:
        address: of the run's key-value store, as ranks reach it.
        listens: address that the store binds; it must also be reachable from the store's own host.
    """

    @property
    def address(self) -> str: ...

    @property
    def listens(self) -> str: ...

    def inside(self, rank: int | None) -> AbstractContextManager[None]:
        """While entered, new sockets and processes of this thread belong to a rank's host; None: to the store's."""
        ...

    def environment(self, rank: int, parts: int) -> dict[str, str]:
        """Variables with a rank's host, its local rank and size there, and its network interface."""
        ...


class ThisMachine:
    """All ranks on one host, connected over the loopback interface only."""

    address = listens = LOOPBACK

    def inside(self, rank: int | None) -> AbstractContextManager[None]:
        """Nothing to enter."""
        return nullcontext()

    def environment(self, rank: int, parts: int) -> dict[str, str]:
        """One host, its ranks in order."""
        return located(rank, parts, 0, "lo")


def located(local_rank: int, local_size: int, host: int, interface: str) -> dict[str, str]:
    """torchrun's variables of a rank's position on a host, and the interface that gloo must use."""
    return {
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(local_size),
        "GROUP_RANK": str(host),
        "GLOO_SOCKET_IFNAME": interface,
    }
