"""The mbarrier state machine against hand-worked sequences of the PTX ISA's rules."""

import random

import pytest

from tlx_clc_plugin.emulator.errors import MemoryFault, ProtocolError
from tlx_clc_plugin.emulator.mbarrier import Mbarrier, MbarrierTable


def test_phases_and_parity():
    barrier = Mbarrier(0x400, count=2)
    # Before the first phase completes, the phase "before" it has parity 1.
    assert barrier.test_parity(1) and not barrier.test_parity(0)
    assert not barrier.arrive()
    assert not barrier.test_parity(0)
    assert barrier.arrive()
    assert barrier.test_parity(0) and not barrier.test_parity(1)
    assert barrier.pending == 2  # reloaded
    assert barrier.arrive(2)
    assert barrier.test_parity(1) and not barrier.test_parity(0)


def test_bytes_hold_a_phase_open():
    barrier = Mbarrier(0x400, count=1)
    barrier.expect_tx(96)
    assert not barrier.arrive()
    assert not barrier.complete_tx(64)
    assert not barrier.test_parity(0)
    assert barrier.complete_tx(32)
    assert barrier.test_parity(0)
    assert (barrier.phase, barrier.pending, barrier.tx) == (1, 1, 0)


def test_bytes_may_come_before_they_are_expected():
    barrier = Mbarrier(0x400, count=1)
    assert not barrier.complete_tx(16)
    barrier.expect_tx(16)
    assert not barrier.test_parity(0)
    assert barrier.arrive()


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_a_phase_completes_at_its_last_event(seed):
    rng = random.Random(seed)
    count = rng.randrange(1, 6)
    barrier = Mbarrier(0, count)
    for phase in range(4):
        sizes = [16 * rng.randrange(1, 100) for _ in range(rng.randrange(4))]
        events = [(barrier.complete_tx, size) for size in sizes] + [(barrier.arrive, 1)] * count
        rng.shuffle(events)
        # All bytes are expected before the last arrival, as mbarrier.arrive.expect_tx does.
        barrier.expect_tx(sum(sizes))
        for i, (event, argument) in enumerate(events):
            assert barrier.phase == phase
            assert event(argument) == (i == len(events) - 1)
    assert barrier.phase == 4


def test_too_many_arrivals():
    barrier = Mbarrier(0x400, count=2)
    with pytest.raises(ProtocolError, match="arrival of 3 .*2 of 2 arrivals"):
        barrier.arrive(3)
    barrier.expect_tx(8)
    barrier.arrive(2)
    with pytest.raises(ProtocolError, match="arrival of 1 .*0 of 2 arrivals and 8 bytes pending"):
        barrier.arrive()
    with pytest.raises(ProtocolError, match="arrival of 0"):
        Mbarrier(0, 1).arrive(0)


@pytest.mark.parametrize("count", [0, -1, 2**20])
def test_count_out_of_range(count):
    with pytest.raises(ProtocolError, match=f"got {count}"):
        Mbarrier(0x400, count)


def test_transaction_count_out_of_range():
    limit = 2**20 - 1
    Mbarrier(0, 1).expect_tx(limit)
    Mbarrier(0, 1).complete_tx(limit)
    for sign in (1, -1):
        barrier = Mbarrier(0x400, 1)
        change = barrier.expect_tx if sign > 0 else barrier.complete_tx
        change(limit)
        with pytest.raises(ProtocolError, match="0x400"):
            change(1)


def test_parity_must_be_a_bit():
    with pytest.raises(ProtocolError, match="got 2"):
        Mbarrier(0, 1).test_parity(2)


def test_describe():
    barrier = Mbarrier(0x2A8, 3, origin="kernel.py:12")
    barrier.expect_tx(512)
    barrier.arrive()
    text = barrier.describe()
    for part in ("0x2a8", "kernel.py:12", "phase 0", "2 of 3", "512 bytes"):
        assert part in text


def test_table():
    table = MbarrierTable()
    with pytest.raises(ProtocolError, match="no mbarrier.*0x408"):
        table.at(0x408)
    barrier = table.init(0x408, 1)
    assert table.at(0x408) is barrier and list(table) == [barrier]
    with pytest.raises(ProtocolError, match="over the live mbarrier 0x408"):
        table.init(0x408, 1)
    table.inval(0x408)
    assert not list(table)
    with pytest.raises(ProtocolError, match="no mbarrier"):
        table.inval(0x408)
    assert table.init(0x408, 1) is not barrier
    with pytest.raises(MemoryFault, match="0x40c"):
        table.init(0x40C, 1)
