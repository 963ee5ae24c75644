"""Schedules: policies, reproducibility, deadlock and livelock, cluster launch control."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from ptx_support import kernel, run

from tlx_clc_plugin.emulator import Deadlock, ProtocolError, StepLimit

# A persistent kernel over CTAs: marks p0[ctaid] with 1 + its own %ctaid.x for its first tile and
# for every tile that it takes over. {extra} runs once the queue is seen to be empty.
STEALING = """
ld.param.b64 %d1, [p0];
mov.u32 %r1, %tid.x;  mov.u32 %r2, %ctaid.x;  add.s32 %r9, %r2, 1;
elect.sync %r3|%p1, -1;
mov.b32 %r4, smem;  add.s32 %r5, %r4, 16;
@%p1 mbarrier.init.shared::cta.b64 [%r5], 1;
mov.b32 %r6, 0;
tile:
mad.wide.u32 %d2, %r2, 4, %d1;
@%p1 ld.global.b32 %r10, [%d2];
@%p1 add.s32 %r10, %r10, %r9;
@%p1 st.global.b32 [%d2], %r10;
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 16;
@%p1 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128
  [%r4], [%r5];
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], %r6;
xor.b32 %r6, %r6, 1;
ld.shared.b128 %q1, [%r4];
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %q1;
@%p3 clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r2, %r7, %r8, _}, %q1;
fence.proxy.async.shared::cta;
@%p3 bra tile;
"""


@pytest.mark.parametrize("policy", ["eager", "lazy", "random"])
@pytest.mark.parametrize("sms", [1, 2, 3, 4, 5])
def test_every_cta_runs_once_launched_or_stolen(sms, policy):
    for seed in range(6 if policy == "random" else 1):
        marks = np.zeros(13, np.uint32)
        text = kernel(STEALING, params=["u64"])
        report = run(text, marks, grid=(13, 1, 1), sms=sms, policy=policy, seed=seed)
        tiles = collections.Counter()
        for cta in report.ctas:
            for x, y, z in (cta.ctaid, *cta.stolen):
                tiles[x] += 1
                assert (y, z) == (0, 0) and marks[x] == 1 + cta.ctaid[0]
        assert tiles == dict.fromkeys(range(13), 1)
        assert {cta.sm for cta in report.ctas} <= set(range(sms))
        assert [cta.ctaid for cta in report.ctas] == sorted(cta.ctaid for cta in report.ctas)


def test_one_sm_steals_everything_and_a_plain_grid_nothing():
    marks = np.zeros(7, np.uint32)
    report = run(kernel(STEALING, params=["u64"]), marks, grid=(7, 1, 1), sms=1)
    (cta,) = report.ctas
    assert cta.stolen == tuple((x, 0, 0) for x in range(1, 7))
    body = """
    ld.param.b64 %d1, [p0];
    mov.u32 %r1, %ctaid.z;
    mad.wide.u32 %d2, %r1, 4, %d1;
    st.global.b32 [%d2], 1;
    """
    report = run(kernel(body, params=["u64"]), marks, grid=(1, 1, 7), sms=2)
    assert [c.ctaid for c in report.ctas] == [(0, 0, z) for z in range(7)]
    assert [c.sm for c in report.ctas].count(0) in (3, 4) and not any(c.stolen for c in report.ctas)
    assert (marks == 1).all()


def test_schedules_are_reproducible_and_seeds_differ():
    def history(policy: str, seed: int):
        marks = np.zeros(40, np.uint32)
        report = run(
            kernel(STEALING, params=["u64"]), marks, grid=(40, 1, 1), policy=policy, seed=seed
        )
        assert report.policy == policy and report.seed == seed and report.sms == 4
        assert report.instructions == sum(cta.instructions for cta in report.ctas)
        return tuple(cta.stolen for cta in report.ctas)

    for policy in ("eager", "lazy"):
        assert history(policy, 0) == history(policy, 1)
    random = [history("random", seed) for seed in range(8)]
    assert random == [history("random", seed) for seed in range(8)]
    assert len(set(random)) > 4


def test_misuse_of_launch_control():
    again = STEALING + "@%p1 clusterlaunchcontrol.try_cancel.async.shared::cta"
    again += ".mbarrier::complete_tx::bytes.b128 [%r4], [%r5];"
    with pytest.raises(ProtocolError, match="after it had observed a failed response"):
        run(kernel(again, params=["u64"]), np.zeros(3, np.uint32), grid=(3, 1, 1))
    undefined = STEALING.replace("@%p3 clusterlaunch", "clusterlaunch")
    with pytest.raises(ProtocolError, match="get_first_ctaid of a failed"):
        run(kernel(undefined, params=["u64"]), np.zeros(3, np.uint32), grid=(3, 1, 1))
    early_exit = STEALING.replace("mbarrier.try_wait", "ret;\nmbarrier.try_wait")
    with pytest.raises(ProtocolError, match="exited with a try_cancel in flight"):
        run(kernel(early_exit, params=["u64"]), np.zeros(3, np.uint32), policy="lazy")


def test_deadlock_report():
    body = """
    mov.u32 %r1, %warpid;
    elect.sync %r2|%p1, -1;
    setp.eq.u32 %p2, %r1, 0;
    .loc 1 20 0
    and.pred %p3, %p1, %p2;
    @%p3 mbarrier.init.shared::cta.b64 [smem+40], 3;
    @%p3 mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem+40], 512;
    setp.eq.u32 %p4, %r1, 2;
    @%p4 bra done;
    @!%p2 bra other;
    .loc 1 30 0
    mbarrier.try_wait.parity.shared::cta.b64 %p5, [smem+40], 0;
    other:
    .loc 1 40 0
    bar.sync 5, 128;
    done:
    """
    text = kernel(body, threads=96) + '.file 1 "/x/roles.py"\n'
    with pytest.raises(Deadlock) as caught:
        run(text, grid=(2, 1, 1), sms=1)
    lines = str(caught.value).splitlines()
    assert "CTA (0, 0, 0) on SM 0:" in lines
    warp0 = next(i for i, line in enumerate(lines) if "warp 0" in line)
    assert "parity 0 of mbarrier" in lines[warp0] and "initialised at roles.py:20" in lines[warp0]
    assert "phase 0, 2 of 3 arrivals and 512 bytes pending" in lines[warp0]
    assert "shared memory offset 40" in lines[warp0]
    assert "try_wait" in lines[warp0 + 1] and "roles.py:30" in lines[warp0 + 1]
    warp1 = next(i for i, line in enumerate(lines) if "warp 1" in line)
    assert "barrier 5: 32 of 128 threads arrived" in lines[warp1]
    assert "roles.py:40" in lines[warp1 + 1]
    assert any("1 warps have exited" in line for line in lines)


def test_a_waiter_may_sleep_over_a_phase():
    """Woken by one arrival but not run before the next: the parity it waits for is gone again."""
    body = """
    mov.u32 %r1, %warpid;
    elect.sync %r2|%p1, -1;
    setp.eq.u32 %p2, %r1, 0;
    and.pred %p3, %p1, %p2;
    @%p3 mbarrier.init.shared::cta.b64 [smem], 1;
    @!%p2 bra arrive;
    bar.arrive 1, 64;
    mbarrier.try_wait.parity.shared::cta.b64 %p4, [smem], 0;
    ret;
    arrive: bar.sync 1, 64;
    @%p1 mbarrier.arrive.shared::cta.b64 _, [smem];
    """
    run(kernel(body, threads=64), policy="lazy")
    with pytest.raises(Deadlock, match="parity 0 of mbarrier .*: phase 2"):
        run(
            kernel(body + "@%p1 mbarrier.arrive.shared::cta.b64 _, [smem];", threads=64),
            policy="lazy",
        )


def test_livelock_hits_the_step_limit():
    spin = """
    elect.sync %r2|%p1, -1;
    @%p1 mbarrier.init.shared::cta.b64 [smem], 1;
    .loc 1 9 0
    again: mbarrier.test_wait.parity.shared::cta.b64 %p2, [smem], 0;
    @!%p2 bra again;
    """
    text = kernel(spin) + '.file 1 "/x/spin.py"\n'
    with pytest.raises(StepLimit, match="more than 10000 warp instructions") as caught:
        run(text, max_steps=10_000)
    assert "spin.py:9" in str(caught.value)
    pure = "again: add.s32 %r1, %r1, 1;\nbra again;"
    with pytest.raises(StepLimit):
        run(kernel(pure), max_steps=50_000)


@pytest.mark.parametrize("policy", ["eager", "lazy", "random"])
def test_spinning_on_memory_lets_other_warps_run(policy):
    """Warp 0 polls what warp 1 writes: the time slice keeps this from hanging."""
    body = """
    mov.u32 %r1, %warpid;
    st.shared.b32 [smem], 0;
    bar.sync 0;
    setp.eq.u32 %p1, %r1, 1;
    @%p1 bra writer;
    again: ld.shared.b32 %r2, [smem];
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra again;
    bra done;
    writer: st.shared.b32 [smem], 1;
    done:
    """
    run(kernel(body, threads=64), policy=policy, max_steps=100_000)


def test_leaked_tensor_memory():
    body = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [smem], 64;"
    with pytest.raises(ProtocolError, match="without freeing its tensor memory"):
        run(kernel(body))


def test_allocation_waits_for_tensor_memory_to_be_freed():
    """Warp 1 wants all 512 columns, which warp 0 holds a part of until later."""
    body = """
    mov.u32 %r1, %warpid;
    setp.eq.u32 %p1, %r1, 0;
    @!%p1 bra second;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [smem], 32;
    bar.sync 0;
    ld.shared.b32 %r2, [smem];
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;
    bra done;
    second: bar.sync 0;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [smem+8], 512;
    ld.shared.b32 %r2, [smem+8];
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 512;
    done:
    """
    for seed in range(6):
        run(kernel(body, threads=64), policy="random", seed=seed)
    with pytest.raises(Deadlock, match="512 free columns of tensor memory"):
        run(
            kernel(
                body.replace("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;", ""),
                threads=64,
            )
        )
