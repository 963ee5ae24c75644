"""Tile schedulers: which output tile a CTA works on next.

The tile pipeline (:mod:`tlx_clc_plugin.kernels.blackwell`) runs three tasks, and each of them
walks the same sequence of tiles:

    scheduler = Scheduler(num_tiles, NUM_STAGES)      # once, before the tasks begin
    tile_id = scheduler.first()
    while tile_id != -1:
        scheduler.prefetch(stage, phase, role)        # at the start of a tile
        ...
        tile_id = scheduler.next(tile_id, stage, phase)

``stage`` and ``phase`` are slot and parity of a ring of NUM_STAGES that turns once a tile;
``role`` says which task is asking. A scheduler of one's own needs these methods and a kernel
that names it; the pipeline stays as it is.

The methods are builtins (expanded in place) since TLX's CLC responses can't be passed to or
returned from a jit function.
"""

import inspect

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
    def __init__(self, num_tiles, NUM_STAGES, _semantic=None):
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
    def __init__(self, num_tiles, NUM_STAGES, _semantic=None):
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
