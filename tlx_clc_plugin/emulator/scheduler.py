"""Which warp or asynchronous operation goes on next."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from .decode import Program
from .errors import Deadlock, EmulationError, StepLimit
from .warp import Cta, Effect, Signal, Warp

# A warp that spins without ever blocking lets others go on after so many steps.
TIME_SLICE = 4096

Policy = Callable[[Sequence[Warp], Sequence[Effect]], int]


def eager(warps: Sequence[Warp], effects: Sequence[Effect]) -> int:
    """Asynchronous operations as early as possible."""
    return len(warps) if effects else 0


def lazy(warps: Sequence[Warp], effects: Sequence[Effect]) -> int:
    """Asynchronous operations as late as possible: when no warp can run, the newest first."""
    return 0 if warps else len(effects) - 1


def make_policy(name: str, seed: int) -> Policy:
    """The scheduling policy "eager", "lazy" or "random", the last one drawn from ``seed``.

    A policy chooses among the warps that can run and the operations that can be applied: it
    returns an index into the two lists put together. Raises ValueError for an unknown name.
    """
    if name == "random":
        generator = random.Random(seed)
        return lambda warps, effects: generator.randrange(len(warps) + len(effects))
    policies = {"eager": eager, "lazy": lazy}
    if name not in policies:
        raise ValueError(f"policy must be one of {[*policies, 'random']}, got {name!r}")
    return policies[name]


class Scheduler:
    """Runs warps and effects one at a time, in the order that the policy chooses.

    A warp runs until it blocks or has done something that others may notice: issued an
    asynchronous operation or arrived at a barrier. Every choice is made by :meth:`_choose`.
    """

    def __init__(self, program: Program, policy: Policy, max_steps: int):
        self.program = program
        self.instructions = 0
        self._policy = policy
        self._max_steps = max_steps
        self._ready: list[Warp] = []
        self._effects: list[Effect] = []

    def start(self, cta: Cta) -> None:
        """Let a CTA's warps run."""
        self._ready.extend(cta.warps)

    def issue(self, effect: Effect) -> None:
        """Take over an asynchronous operation."""
        if effect.cta is not None:
            effect.cta.effects_in_flight += 1
        if effect.queue is not None:
            effect.queue.append(effect)
            if len(effect.queue) > 1:
                return
        self._effects.append(effect)

    def run(self, retire: Callable[[Cta], None], live: list[Cta]) -> None:
        """Until nothing can go on. ``retire`` is called with a CTA once all of it is done.

        Raises Deadlock if ``live``, the CTAs launched and not retired, is not empty then,
        StepLimit after too many instructions.
        """
        while self._ready or self._effects:
            chosen = self._choose()
            if isinstance(chosen, Warp):
                self._run_warp(chosen)
            else:
                self._apply(chosen)
            cta = chosen.cta
            if cta is None:
                continue
            for peer in cta.cluster.ctas:
                if peer.blocked:
                    self._wake(peer)
            if cta.live == 0 and cta.effects_in_flight == 0:
                retire(cta)
        if live:
            raise Deadlock(self._deadlock_report(live))

    def _choose(self) -> Warp | Effect:
        """The one place where a schedule is decided."""
        index = self._policy(self._ready, self._effects)
        warps = len(self._ready)
        return self._ready[index] if index < warps else self._effects.pop(index - warps)

    def _run_warp(self, warp: Warp) -> None:
        if warp.wait is not None:
            if not warp.wait.ready():  # true when it was woken, no longer now
                self._block(warp)
                return
            warp.wait = None
        steps, counts = self.program.steps, self.program.counts
        pc, executed, outcome = warp.pc, 0, None
        try:
            for _ in range(TIME_SLICE):
                outcome = steps[pc](warp)
                executed += counts[pc]
                if outcome is None:
                    pc += 1
                elif outcome.__class__ is int:
                    pc = outcome
                else:
                    break
        except EmulationError as e:
            raise _located(e, f"{self.program.first[pc]}\n  in {warp}") from None
        warp.instructions += executed
        self.instructions += executed
        if self.instructions > self._max_steps:
            raise StepLimit(
                f"more than {self._max_steps} warp instructions executed, the last one by {warp}:"
                f"\n  {self.program.first[pc]}"
            )
        if outcome is None or outcome.__class__ is int:  # the time slice is over
            warp.pc = pc
            self._ready.remove(warp)
            self._ready.append(warp)
            return
        warp.pc = pc + 1
        if outcome is Signal.EXIT:
            self._ready.remove(warp)
            warp.cta.exit_warp(warp)
        elif outcome is not Signal.YIELD:
            warp.wait = outcome
            self._block(warp)

    def _block(self, warp: Warp) -> None:
        self._ready.remove(warp)
        warp.cta.blocked.append(warp)

    def _wake(self, cta: Cta) -> None:
        woken = [warp for warp in cta.blocked if warp.wait.ready()]
        if woken:
            cta.blocked = [warp for warp in cta.blocked if warp not in woken]
            self._ready.extend(woken)

    def _apply(self, effect: Effect) -> None:
        try:
            effect.apply()
        except EmulationError as e:
            where = f"{effect.instruction}\n  asynchronously, in CTA {effect.cta.ctaid}"
            raise _located(e, where) from None
        if effect.queue is not None:
            effect.queue.popleft()
            if effect.queue:
                self._effects.append(effect.queue[0])
        if effect.cta is not None:
            effect.cta.effects_in_flight -= 1

    def _deadlock_report(self, live: list[Cta]) -> str:
        lines = ["no warp can go on and nothing asynchronous is in flight"]
        for cta in live:
            lines.append(f"CTA {cta.ctaid} on SM {cta.sm}:")
            for warp in sorted(cta.blocked, key=lambda warp: warp.index):
                instruction = self.program.first[warp.pc - 1]
                lines.append(f"  warp {warp.index} waits for {warp.wait.describe()}")
                lines.append(f"    at {instruction}")
            exited = len(cta.warps) - len(cta.blocked)
            if exited:
                lines.append(f"  {exited} warps have exited")
        return "\n".join(lines)


def _located(error: EmulationError, where: str) -> EmulationError:
    error.args = (f"{error}\n  at {where}",)
    return error
