"""Tile schedulers: which output tile a CTA works on next.

The tile pipeline (:mod:`tlx_clc_plugin.kernels.blackwell`) runs three tasks, and each of them
walks the same sequence of tiles:

    scheduler = Scheduler(num_tiles, NUM_STAGES, counter_ptr)   # once, before the tasks begin
    tile_id = scheduler.first()
    while tile_id != -1:
        scheduler.prefetch(stage, phase, role)                  # at the start of a tile
        ...
        tile_id = scheduler.next(tile_id, stage, phase)
    scheduler.finish(role)

``stage`` and ``phase`` are slot and parity of a ring of NUM_STAGES that turns once a tile;
``role`` says which task is asking. ``counter_ptr`` is global memory for a scheduler that needs
some, else None. A scheduler of one's own needs these methods and a kernel
that names it; the pipeline stays as it is.

Methods that handle TLX's CLC responses are builtins (expanded in place), since these can't be
passed to or returned from a jit function.
"""

import inspect

import triton
import triton.language as tl
import triton.language.extra.tlx as tlx
from triton.language.core import _aggregate as aggregate
from triton.language.core import builtin

EPILOGUE = tl.constexpr(0)
MMA = tl.constexpr(1)
LOAD = tl.constexpr(2)
NUM_ROLES = 3


def tile_scheduler(cls):
    """Class decorator: a Triton aggregate whose source is part of its kernels' cache key.

    Triton hashes the jit functions that a kernel uses but not builtins; without this, an edited
    scheduler would be served from the cache of compiled kernels as it was.
    """
    scheduler = aggregate(cls)
    scheduler.__annotations__ = {**scheduler.__annotations__, "source": inspect.getsource(cls)}
    return scheduler


@tile_scheduler
class StaticPersistentScheduler:
    """CTA ``i`` of ``g`` takes the tiles ``i, i + g, i + 2g, ...``; any grid will do."""

    num_tiles: tl.tensor

    @builtin
    def __init__(self, num_tiles, NUM_STAGES, counter_ptr, _semantic=None):
        self.num_tiles = num_tiles

    @builtin
    def first(self, _semantic=None):
        return self._valid(tl.program_id(0, _semantic=_semantic), _semantic=_semantic)

    @builtin
    def prefetch(self, stage, phase, role, _semantic=None):
        """Nothing to fetch: the sequence is known."""

    @builtin
    def next(self, tile_id, stage, phase, _semantic=None):
        stride = tl.num_programs(0, _semantic=_semantic)
        return self._valid(tile_id.__add__(stride, _semantic=_semantic), _semantic=_semantic)

    @builtin
    def finish(self, role, _semantic=None):
        """Nothing to put back."""

    @builtin
    def _valid(self, tile_id, _semantic=None):
        in_range = tile_id.__lt__(self.num_tiles, _semantic=_semantic)
        return tl.where(in_range, tile_id, -1, _semantic=_semantic)


@tile_scheduler
class ClcScheduler:
    """Cluster Launch Control: a grid of one CTA per tile, where a running CTA takes over the tile
    of a CTA that has not been launched yet (PTX ISA, ``clusterlaunchcontrol``).

    The epilogue task asks for the next tile when it begins one, and all tasks read the answer
    when they end it. So a failure is always seen before another request could be made, which
    would be undefined behaviour. A failure need not mean that no tile is left (a kernel of higher
    priority may want the SM): the CTA then ends, and the other tiles' CTAs are launched later.
    """

    context: tlx.CLCPipelineContext

    @builtin
    def __init__(self, num_tiles, NUM_STAGES, counter_ptr, _semantic=None):
        # By keyword: the order of these two differs between TLX versions; swapped, they compile
        # and race.
        self.context = tlx.clc_create_context(
            num_consumers=NUM_ROLES, num_stages=NUM_STAGES, _semantic=_semantic
        )

    @builtin
    def first(self, _semantic=None):
        return tl.program_id(0, _semantic=_semantic)

    @builtin
    def prefetch(self, stage, phase, role, _semantic=None):
        if role == EPILOGUE:
            tlx.clc_producer(
                context=self.context,
                k=stage,
                p_producer=phase.__xor__(1, _semantic=_semantic),
                _semantic=_semantic,
            )

    @builtin
    def next(self, tile_id, stage, phase, _semantic=None):
        return tlx.clc_consumer(
            context=self.context, k=stage, p_consumer=phase, _semantic=_semantic
        )

    @builtin
    def finish(self, role, _semantic=None):
        """Nothing to put back."""


@tile_scheduler
class DynamicScheduler:
    """A tile counter in global memory: what Cluster Launch Control does, in software.

    A grid of at most one CTA per SM. The load task draws the next tile when it begins one and
    passes it on through a ring in shared memory, so that the draw hides behind the tile's loads.
    ``counter_ptr``: two int32 zeros, tiles drawn and CTAs done; the last CTA to end zeroes them.
    """

    num_tiles: tl.tensor
    counter_ptr: tl.tensor
    slots: tlx.buffered_tensor
    full_bars: tlx.mbarrier
    empty_bars: tlx.mbarrier

    @builtin
    def __init__(self, num_tiles, NUM_STAGES, counter_ptr, _semantic=None):
        one = tl.constexpr(1)
        self.num_tiles = num_tiles
        self.counter_ptr = counter_ptr
        self.slots = tlx.local_alloc((one,), tl.int32, NUM_STAGES, _semantic=_semantic)
        self.full_bars = tlx.alloc_barriers(NUM_STAGES, one, _semantic=_semantic)
        self.empty_bars = tlx.alloc_barriers(
            NUM_STAGES, tl.constexpr(NUM_ROLES), _semantic=_semantic
        )

    @triton.jit
    def first(self):
        return self._valid(tl.program_id(0))

    @triton.jit
    def prefetch(self, stage, phase, role: tl.constexpr):
        if role == LOAD:
            tlx.barrier_wait(self.empty_bars[stage], phase ^ 1)
            tile_id = tl.num_programs(0) + tl.atomic_add(self.counter_ptr, 1)
            tlx.local_store(self.slots[stage], tl.full((1,), tile_id, tl.int32))
            tlx.barrier_arrive(self.full_bars[stage])

    @triton.jit
    def next(self, tile_id, stage, phase):
        tlx.barrier_wait(self.full_bars[stage], phase)
        tile_id = tl.max(tlx.local_load(self.slots[stage]), axis=0)
        tlx.barrier_arrive(self.empty_bars[stage])
        return self._valid(tile_id)

    @triton.jit
    def finish(self, role: tl.constexpr):
        if role == LOAD:
            if tl.atomic_add(self.counter_ptr + 1, 1) == tl.num_programs(0) - 1:
                tl.store(self.counter_ptr, 0)
                tl.store(self.counter_ptr + 1, 0)

    @triton.jit
    def _valid(self, tile_id):
        return tl.where(tile_id < self.num_tiles, tile_id, -1)
