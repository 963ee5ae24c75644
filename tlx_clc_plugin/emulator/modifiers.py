"""The modifiers of an opcode, taken off one by one so that none is overlooked."""

from __future__ import annotations

from collections.abc import Iterable

from .errors import UnsupportedPtx

# Cache and eviction hints, which change nothing that a program can observe.
CACHE_HINTS = (
    *("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "weak"),
    *(f"L1::{x}" for x in ("evict_normal", "evict_first", "evict_last", "no_allocate")),
    *(f"L2::{x}" for x in ("evict_normal", "evict_first", "evict_last", "64B", "128B", "256B")),
)


class Modifiers:
    """The dot-separated parts of an opcode behind its name, such as ("lo", "s32") of mul.lo.s32.

    Every decoder takes off those that it models and ends with :meth:`end`.
    """

    def __init__(self, parts: Iterable[str]):
        self._left = list(parts)

    def take(self, choices: Iterable[str], default: str | None = None) -> str:
        """Take off the one modifier among ``choices``; UnsupportedPtx without it or a default."""
        choices = tuple(choices)
        for part in self._left:
            if part in choices:
                self._left.remove(part)
                return part
        if default is None:
            raise UnsupportedPtx(f"none of {', '.join('.' + c for c in choices)} in the opcode")
        return default

    def flag(self, *parts: str) -> bool:
        """Take off all of ``parts`` that are there; whether any was."""
        found = [part for part in parts if part in self._left]
        for part in found:
            self._left.remove(part)
        return bool(found)

    def end(self) -> None:
        """Raise UnsupportedPtx if any modifier is left."""
        if self._left:
            raise UnsupportedPtx(f"modifier {', '.join('.' + m for m in self._left)}")
