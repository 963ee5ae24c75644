"""Clusters: special registers, barrier.cluster, peers' barriers, multicast, launch control."""

import itertools

import numpy as np
import pytest
from ptx_support import kernel, run

from tlx_clc_plugin.emulator import Deadlock, MemoryFault, ProtocolError, UnsupportedPtx
from tlx_clc_plugin.emulator.tensormap import TensorMap

POLICIES = ["eager", "lazy", "random"]
CLUSTER = "\nbarrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
SYNC = """
setp.eq.u32 %p1, %r0, 0;
mov.u32 %r1, smem;
@%p1 mbarrier.init.shared::cta.b64 [%r1], {count};
@%p1 fence.mbarrier_init.release.cluster;
"""


def wait(parity, label):
    return (
        f"{label}:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], {parity};\n"
        f"@!%p2 bra {label};\n"
    )


def test_special_registers():
    names = ["%clusterid.x", "%clusterid.y", "%cluster_ctaid.x", "%cluster_ctaid.y"]
    names += ["%cluster_ctarank", "%cluster_nctarank", "%nclusterid.x", "%cluster_nctaid.y"]
    lines = ["mov.u32 %r1, %ctaid.x;", "mov.u32 %r2, %ctaid.y;", "ld.param.b64 %d1, [p0];"]
    lines += ["mad.lo.u32 %r3, %r2, 6, %r1;", "mad.wide.u32 %d2, %r3, 32, %d1;"]
    for i, name in enumerate(names):
        lines += [f"mov.u32 %r4, {name};", f"st.global.b32 [%d2+{4 * i}], %r4;"]
    out = np.zeros((4, 6, 8), np.uint32)
    ptx = kernel("\n".join(lines), params=["u64"])
    report = run(ptx, out, grid=(6, 4, 1), cluster=(3, 2, 1), sms=13)
    for y, x in itertools.product(range(4), range(6)):
        want = [x // 3, y // 2, x % 3, y % 2, y % 2 * 3 + x % 3, 6, 2, 2]
        assert out[y, x].tolist() == want
    assert {cta.sm for cta in report.ctas} == set(range(12))  # two clusters of six fit


@pytest.mark.parametrize("policy", POLICIES)
def test_arrivals_at_a_peer(policy):
    """Rank 1 arrives at rank 0's barrier, which without it would wait forever."""
    body = "mov.u32 %r0, %tid.x;\nmov.u32 %r5, %cluster_ctarank;" + SYNC.format(count=2) + CLUSTER
    body += "mapa.shared::cluster.u32 %r2, %r1, 0;\n"
    body += "@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2];\n"
    body += "setp.ne.u32 %p3, %r5, 0;\n@%p3 bra end;\n" + wait(0, "w")
    body += "ld.param.b64 %d1, [p0];\nst.global.b32 [%d1], 7;\nend:\n" + CLUSTER
    out = np.zeros(1, np.uint32)
    run(kernel(body, params=["u64"]), out, grid=(2, 1, 1), cluster=(2, 1, 1), policy=policy)
    assert out[0] == 7
    with pytest.raises(Deadlock, match="1 of 2 arrivals"):
        run(kernel(body, params=["u64"]), out, grid=(1, 1, 1), policy=policy)


def test_an_exited_warp_is_not_waited_for():
    body = "mov.u32 %r0, %tid.x;\nsetp.ge.u32 %p1, %r0, 32;\n@%p1 bra end;\n" + CLUSTER + "end:"
    run(kernel(body, threads=64), grid=(4, 1, 1), cluster=(4, 1, 1))


@pytest.mark.parametrize(
    "body,error,message",
    [
        ("barrier.cluster.wait.aligned;", ProtocolError, "without an arrival"),
        (
            "mov.u32 %r1, %cluster_ctarank;\nsetp.eq.u32 %p1, %r1, 0;\n"
            "@%p1 barrier.cluster.arrive.aligned;\n@%p1 barrier.cluster.arrive.aligned;\n"
            + CLUSTER,
            ProtocolError,
            "arrive twice",
        ),
        (
            "mov.u32 %r1, smem;\nmapa.shared::cluster.u32 %r2, %r1, 2;\n"
            "mbarrier.arrive.shared::cluster.b64 _, [%r2];",
            MemoryFault,
            "CTA rank 2 in a cluster of 2",
        ),
        (
            "mov.u32 %r3, %cluster_ctarank;\nsetp.eq.u32 %p1, %r3, 1;\n@%p1 bra end;\n"
            "nanosleep.u32 100;\nmov.u32 %r1, smem;\nmapa.shared::cluster.u32 %r2, %r1, 1;\n"
            "bar.sync 0;\nmbarrier.arrive.shared::cluster.b64 _, [%r2];\nend:",
            ProtocolError,
            "has exited|no mbarrier",
        ),
    ],
)
def test_misuse(body, error, message):
    with pytest.raises(error, match=message):
        run(kernel(body), grid=(2, 1, 1), cluster=(2, 1, 1))


def test_launch_arguments():
    ptx = kernel("").replace(".reqntid 32", ".reqntid 32\n.reqnctapercluster 2, 1, 1")
    assert len(run(ptx, grid=(4, 1, 1)).ctas) == 4
    for options, message in (
        ({"grid": (3, 1, 1)}, "not a multiple"),
        ({"grid": (4, 1, 1), "sms": 1}, "needs as many SMs"),
        ({"grid": (4, 1, 1), "cluster": (4, 1, 1)}, "as the kernel says"),
        ({"grid": (32, 1, 1), "cluster": (32, 1, 1), "sms": 32}, "at most 16"),
    ):
        with pytest.raises(ValueError, match=message):
            run(ptx, **options)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("mask", [0b01, 0b10, 0b11])
def test_multicast_load(mask, policy):
    """Rank 0 loads a row for the CTAs in the mask, each of which waits at its own barrier."""
    x = np.arange(32, dtype=np.uint32)
    tensor = TensorMap(x.ctypes.data, 4, (32,), (), (32,))
    body = "mov.u32 %r0, %tid.x;\nmov.u32 %r5, %cluster_ctarank;" + SYNC.format(count=1)
    body += f"""
shr.u32 %r6, {mask}, %r5;
and.b32 %r6, %r6, 1;
setp.eq.u32 %p4, %r6, 1;
@%p1 mbarrier.arrive.shared::cta.b64 _, [%r1];
{wait(0, "first")}
setp.eq.and.u32 %p5, %r0, 0, %p4;
@%p5 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 128;
{CLUSTER}
setp.eq.u32 %p6, %r5, 0;
setp.eq.and.u32 %p6, %r0, 0, %p6;
add.u32 %r7, %r1, 128;
mov.b64 %d3, p1;
cvta.param.u64 %d3, %d3;
mov.b16 %h1, {mask};
@%p6 cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes\
.multicast::cluster [%r7], [%d3, {{0}}], [%r1], %h1;
@!%p4 bra loaded;
{wait(1, "second")}
loaded:
{CLUSTER}
shl.b32 %r8, %r0, 2;
add.u32 %r8, %r8, %r7;
ld.shared.b32 %r9, [%r8];
mad.lo.u32 %r10, %r5, 32, %r0;
ld.param.b64 %d1, [p0];
mad.wide.u32 %d2, %r10, 4, %d1;
st.global.b32 [%d2], %r9;
"""
    out = np.zeros((2, 32), np.uint32)
    ptx = kernel(body, params=["u64", "map"])
    run(ptx, out, tensor, arrays=(x,), grid=(2, 1, 1), cluster=(2, 1, 1), policy=policy, seed=1)
    for rank in range(2):
        assert (out[rank] == (x if mask >> rank & 1 else 0xFFFFFFFF)).all()


@pytest.mark.parametrize("seed", range(6))
def test_launch_control_of_clusters(seed):
    """Every CTA writes its index for each tile; rank 0 of each cluster of two steals for both."""
    body = "mov.u32 %r0, %tid.x;\nmov.u32 %r5, %cluster_ctarank;" + SYNC.format(count=1)
    body += f"""
ld.param.b64 %d1, [p0];
add.u32 %r7, %r1, 16;
mov.u32 %r11, %ctaid.x;
setp.eq.u32 %p6, %r5, 0;
setp.eq.and.u32 %p6, %r0, 0, %p6;
mov.u32 %r12, 0;
{CLUSTER}
tile:
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;
{CLUSTER}
@%p6 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes\
.multicast::cluster::all.b128 [%r7], [%r1];
mad.wide.u32 %d2, %r11, 4, %d1;
red.global.add.u32 [%d2], 1;
w:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], %r12;
@!%p2 bra w;
xor.b32 %r12, %r12, 1;
ld.shared.b128 %q1, [%r7];
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %q1;
@!%p3 bra done;
clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {{%r13, %r14, %r15, _}}, %q1;
add.u32 %r11, %r13, %r5;
bra tile;
done:
{CLUSTER}
"""
    out = np.zeros(14, np.uint32)
    ptx = kernel(body, params=["u64"])
    options = {"grid": (14, 1, 1), "cluster": (2, 1, 1), "sms": 4, "policy": "random"}
    report = run(ptx, out, seed=seed, **options)
    assert (out == 32).all()
    stolen = [first for cta in report.ctas for first in cta.stolen]
    assert len(report.ctas) + 2 * len(stolen) == 14
    assert all(x % 2 == 0 for x, _, _ in stolen)


def test_pair_without_a_peer():
    body = """
mov.u32 %r0, %tid.x;
setp.eq.u32 %p1, %r0, 0;
@%p1 tcgen05.mma.cta_group::2.kind::f16 [%r1], %d1, %d2, %r2, %p2;
"""
    with pytest.raises(MemoryFault, match="CTA rank 1 in a cluster of 1"):
        run(kernel(body))
    with pytest.raises(UnsupportedPtx, match="none of .shared::cluster"):
        run(kernel("mapa.u64 %d1, %d2, %r1;"))
