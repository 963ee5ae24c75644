"""Cluster launch control: one queue for launches and steals, opaque responses."""

import itertools
import random

import pytest

from tlx_clc_plugin.emulator.clc import (
    RESPONSE_BYTES,
    ClusterQueue,
    encode_response,
    first_ctaid,
    is_canceled,
)
from tlx_clc_plugin.emulator.errors import ProtocolError


def test_launch_order_is_x_first():
    queue = ClusterQueue((3, 2, 2))
    assert len(queue) == 12
    launched = [queue.launch() for _ in range(12)]
    expected = [(x, y, z) for z, y, x in itertools.product(range(2), range(2), range(3))]
    assert launched == expected
    assert queue.launch() is None and len(queue) == 0


@pytest.mark.parametrize("seed", range(5))
def test_every_cta_runs_exactly_once(seed):
    rng = random.Random(seed)
    grid = tuple(rng.randrange(1, 6) for _ in range(3))
    queue = ClusterQueue(grid)
    launched, stolen = [], []
    while len(queue):
        if not launched or rng.random() < 0.4:
            launched.append(queue.launch())
        else:
            response = queue.cancel(rng.choice(launched))
            assert is_canceled(response)
            stolen.append(first_ctaid(response))
    assert sorted(launched + stolen) == sorted(itertools.product(*map(range, grid)))
    assert sorted(itertools.chain(*queue.stolen.values())) == sorted(stolen)
    assert set(queue.stolen) <= set(launched)


def test_who_stole_what():
    queue = ClusterQueue((5, 1, 1))
    a, b = queue.launch(), queue.launch()
    for thief in (b, a, b):
        queue.cancel(thief)
    assert queue.stolen == {a: [(3, 0, 0)], b: [(2, 0, 0), (4, 0, 0)]}


def test_failure():
    queue = ClusterQueue((1, 1, 1))
    thief = queue.launch()
    # Requests in flight together may all fail; only one issued after the observation is wrong.
    for _ in range(2):
        queue.check_may_cancel(thief)
    first, second = queue.cancel(thief), queue.cancel(thief)
    assert not queue.query_is_canceled(thief, first)
    assert not queue.query_is_canceled(thief, second)
    with pytest.raises(ProtocolError, match=r"\(0, 0, 0\) issued try_cancel after"):
        queue.check_may_cancel(thief)
    queue.check_may_cancel((1, 0, 0))
    with pytest.raises(ProtocolError, match="get_first_ctaid of a failed"):
        first_ctaid(first)
    assert queue.stolen == {}


def test_success_is_no_failure():
    queue = ClusterQueue((2, 1, 1))
    thief = queue.launch()
    assert queue.query_is_canceled(thief, queue.cancel(thief))
    queue.check_may_cancel(thief)


@pytest.mark.parametrize("ctaid", [(0, 0, 0), (1, 2, 3), (2**31 - 1, 65535, 65534)])
def test_response_round_trip(ctaid):
    response = encode_response(ctaid)
    assert len(response) == RESPONSE_BYTES
    assert is_canceled(response)
    assert first_ctaid(response) == ctaid


@pytest.mark.parametrize("garbage", [bytes(16), b"\xff" * 16])
def test_bytes_that_are_no_response(garbage):
    with pytest.raises(ProtocolError, match="no try_cancel response"):
        is_canceled(garbage)
    with pytest.raises(ProtocolError, match="no try_cancel response"):
        first_ctaid(garbage)
