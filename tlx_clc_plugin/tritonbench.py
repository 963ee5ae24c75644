"""The console command ``tritonbench``: in tritonbench where it is installed, else embedded."""

from __future__ import annotations

import sys

from .harness.locate import UnusableHarness, locate
from .harness.register import register

__all__ = ["main", "register"]


def main(argv: list[str] | None = None) -> int:
    """Run ``tritonbench`` with ``argv`` (by default the process's own); returns the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        checkout = locate()
        reason = "tritonbench not installed"
    except UnusableHarness as error:
        checkout, reason = None, f"tritonbench unusable: {error}"
    if checkout is not None:
        from .harness.handover import run

        return run(checkout, argv)

    from .bench.runner import run

    return run(argv, reason)


if __name__ == "__main__":
    sys.exit(main())
