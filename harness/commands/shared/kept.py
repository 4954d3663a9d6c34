"""What code states about itself, kept in the cache folder for as long as the code stays the same.

Reading it from the code imports torch, which takes seconds; a listing is to come at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import msgspec

from harness.errors import InputError
from harness.machine import cache_root, code_version, write_atomically

S = TypeVar("S", bound=msgspec.Struct)


class _Kept(msgspec.Struct, frozen=True):
    """Content by name, and the hash of the code that it is of."""

    code: str
    stated: msgspec.Raw


def kept(name: str, kind: type[S], read: Callable[[], dict[str, S]]) -> dict[str, S]:
    """What `read` returns: kept in the file `name`, or read from the code now and kept where the cache can be written.

    Args:
        kind: the type of its values.
    """
    path, code = cache_root() / f"{name}.json", code_version("harness")
    with suppress(OSError, msgspec.MsgspecError):
        found = msgspec.json.decode(path.read_bytes(), type=_Kept)
        if found.code == code:
            return msgspec.json.decode(found.stated, type=dict[str, kind])  # type: ignore[valid-type]
    stated = read()
    with suppress(OSError, InputError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.encode(_Kept(code, msgspec.Raw(msgspec.json.encode(stated)))))
    return stated
