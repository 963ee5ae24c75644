"""Memory, barriers and control flow of hand-written PTX."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_support import kernel, run

from tlx_clc_plugin.emulator import MemoryFault, ProtocolError, UnsupportedPtx
from tlx_clc_plugin.emulator.decode import Program
from tlx_clc_plugin.emulator.parse import parse
from tlx_clc_plugin.emulator.swizzle import Swizzle
from tlx_clc_plugin.emulator.tensormap import TensorMap

# Every thread's global address p0 + 4 * tid in %d2; tid in %r1.
THREAD = """
ld.param.b64 %d1, [p0];
mov.u32 %r1, %tid.x;
mad.wide.u32 %d2, %r1, 4, %d1;
"""


def test_vectors_and_widths_of_loads_and_stores():
    out = np.zeros((32, 8), np.uint32)
    body = """
    ld.param.b64 %d1, [p0];
    mov.u32 %r1, %tid.x;
    mad.wide.u32 %d2, %r1, 32, %d1;
    shl.b32 %r2, %r1, 4;
    mov.b32 %r3, smem;
    add.s32 %r3, %r3, %r2;
    add.s32 %r4, %r1, 0x80F0;
    st.shared.v4.b32 [%r3], {%r1, 7, %r4, 0xFFFFFFFF};
    ld.shared.v2.b32 {%r5, %r6}, [%r3+8];
    ld.shared.u8 %r7, [%r3+8];
    ld.shared.s8 %r8, [%r3+8];
    ld.shared.s16 %r9, [%r3+8];
    ld.shared.b64 %d3, [%r3];
    st.global.v4.b32 [%d2], {%r5, %r6, %r7, %r8};
    st.global.b32 [%d2+16], %r9;
    st.global.b64 [%d2+24], %d3;
    """
    run(kernel(body, params=["u64"]), out)
    lane = np.arange(32)
    third = lane + 0x80F0
    assert (out[:, 0] == third).all() and (out[:, 1] == 2**32 - 1).all()
    assert (out[:, 2] == third % 256).all()
    assert (out[:, 3].view(np.int32) == (third % 256).astype(np.uint8).view(np.int8)).all()
    assert (out[:, 4].view(np.int32) == third.astype(np.uint16).view(np.int16)).all()
    assert (out[:, 6] == lane).all() and (out[:, 7] == 7).all()


def test_guards_mask_the_lanes_of_memory_accesses():
    a, out = np.arange(32, dtype=np.uint32) + 100, np.full(32, 9, np.uint32)
    body = """
    ld.param.b64 %d1, [p0];  ld.param.b64 %d3, [p1];
    mov.u32 %r1, %tid.x;
    mad.wide.u32 %d2, %r1, 4, %d1;  mad.wide.u32 %d4, %r1, 4, %d3;
    setp.lt.u32 %p1, %r1, 20;
    mov.b32 %r2, 5;
    @!%p1 mov.b64 %d2, 64;  // nothing is there
    @%p1 ld.global.b32 %r2, [%d2];
    setp.ge.u32 %p2, %r1, 4;
    @%p2 st.global.b32 [%d4], %r2;
    """
    run(kernel(body, params=["u64", "u64"]), a, out)
    assert (out[:4] == 9).all() and (out[4:20] == a[4:20]).all() and (out[20:] == 5).all()


def test_registers_and_shared_memory_start_poisoned():
    out = np.zeros((2, 32), np.uint32)
    body = THREAD + "st.global.b32 [%d2], %r99; ld.shared.b32 %r98, [smem+64];"
    run(kernel(body + "st.global.b32 [%d2+128], %r98;", params=["u64"]), out)
    assert np.isnan(out.view(np.float16).astype(np.float32)).all()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrix_loads_and_stores(count, transposed):
    """Fragments by the ISA's picture: lane t has elements 2 (t % 4) and + 1 of row t / 4."""
    rng = np.random.default_rng(count)
    matrices = rng.integers(0, 1 << 16, (count, 8, 8), dtype=np.uint16)
    out, back = np.zeros((count, 32), np.uint32), np.zeros((count, 8, 8), np.uint16)
    registers = ", ".join(f"%r{10 + i}" for i in range(count))
    trans = ".trans" if transposed else ""
    rows = count * 8
    body = f"""
    ld.param.b64 %d1, [p0];  ld.param.b64 %d3, [p1];  ld.param.b64 %d5, [p2];
    mov.u32 %r1, %tid.x;
    mad.wide.u32 %d2, %r1, 16, %d1;  mad.wide.u32 %d4, %r1, 4, %d3;  mad.wide.u32 %d6, %r1, 16, %d5;
    setp.lt.u32 %p1, %r1, {rows};
    // Rows lie 48 bytes apart, in reverse order.
    sub.s32 %r2, {rows - 1}, %r1;
    mov.b32 %r3, smem;
    mad.lo.s32 %r3, %r2, 48, %r3;
    @!%p1 mov.b32 %r3, 3;  // not looked at
    @%p1 ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%d2];
    @%p1 st.shared.v4.b32 [%r3], {{%r4, %r5, %r6, %r7}};
    ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{registers}}}, [%r3];
    """
    body += "\n".join(f"st.global.b32 [%d4+{128 * i}], %r{10 + i};" for i in range(count))
    body += f"""
    @%p1 add.s32 %r3, %r3, 16;
    stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r3], {{{registers}}};
    @%p1 ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r3];
    @%p1 st.global.v4.b32 [%d6], {{%r4, %r5, %r6, %r7}};
    """
    run(kernel(body, params=["u64"] * 3), matrices, out, back)
    for i, t in np.ndindex(count, 32):
        m = matrices[i].T if transposed else matrices[i]
        assert out[i, t] == int(m[t // 4, t % 4 * 2]) | int(m[t // 4, t % 4 * 2 + 1]) << 16
    assert (back == matrices).all()


@pytest.mark.parametrize("policy", ["eager", "lazy"])
def test_async_copies_fill_with_zero(policy):
    """cp.async: lane t copies t % 17 of 16 bytes, clamped; the rest is zero."""
    rng = np.random.default_rng(2)
    source, out = rng.integers(0, 256, (32, 16), dtype=np.uint8), np.zeros((32, 16), np.uint8)
    body = """
    ld.param.b64 %d1, [p0];  ld.param.b64 %d3, [p1];
    mov.u32 %r1, %tid.x;
    mad.wide.u32 %d2, %r1, 16, %d1;  mad.wide.u32 %d4, %r1, 16, %d3;
    mov.b32 %r2, smem;
    mad.lo.s32 %r2, %r1, 16, %r2;
    rem.u32 %r3, %r1, 17;
    setp.eq.u32 %p1, %r3, 0;
    @%p1 mov.b64 %d2, 16;  // nothing is read there
    cp.async.cg.shared.global [%r2], [%d2], 0x10, %r3;
    cp.async.commit_group;
    cp.async.wait_group 0;
    bar.sync 0;
    ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r2];
    st.global.v4.b32 [%d4], {%r4, %r5, %r6, %r7};
    """
    run(kernel(body, params=["u64", "u64"]), source, out, policy=policy)
    for t in range(32):
        kept = t % 17
        assert (out[t, :kept] == source[t, :kept]).all() and not out[t, kept:].any()


def test_async_copies_are_ordered_by_groups_only():
    """wait_group 1 leaves the newest group in flight, as the lazy policy shows."""
    source, out = np.arange(64, dtype=np.uint32), np.zeros((2, 32), np.uint32)
    body = """
    ld.param.b64 %d1, [p0];  ld.param.b64 %d3, [p1];
    mov.u32 %r1, %tid.x;
    mad.wide.u32 %d2, %r1, 4, %d1;  mad.wide.u32 %d4, %r1, 4, %d3;
    mov.b32 %r2, smem;
    mad.lo.s32 %r2, %r1, 4, %r2;
    cp.async.ca.shared.global [%r2], [%d2], 4;
    cp.async.commit_group;
    cp.async.ca.shared.global [%r2+128], [%d2+128], 4;
    cp.async.commit_group;
    cp.async.wait_group 1;
    ld.shared.b32 %r3, [%r2];  ld.shared.b32 %r4, [%r2+128];
    st.global.b32 [%d4], %r3;  st.global.b32 [%d4+128], %r4;
    """
    second_was_late = set()
    for seed in range(30):
        run(kernel(body, params=["u64", "u64"]), source, out, policy="random", seed=seed)
        assert (out[0] == source[:32]).all()
        second_was_late.add((out[1] == 2**32 - 1).all())
    assert second_was_late == {True, False}
    run(kernel(body, params=["u64", "u64"]), source, out, policy="eager")
    assert (out.ravel() == source).all()


def test_barriers_order_warps():
    """Each warp reads what the next one wrote: wrong without the barrier of all four."""
    out = np.zeros(128, np.uint32)
    body = (
        THREAD
        + """
    mov.b32 %r2, smem;
    mad.lo.s32 %r3, %r1, 4, %r2;
    st.shared.b32 [%r3], %r1;
    BARRIER
    add.s32 %r4, %r1, 32;
    and.b32 %r4, %r4, 127;
    mad.lo.s32 %r4, %r4, 4, %r2;
    ld.shared.b32 %r5, [%r4];
    st.global.b32 [%d2], %r5;
    """
    )
    want = (np.arange(128) + 32) % 128
    for barrier in ("bar.sync 0;", "barrier.sync 3, 128;"):
        text = kernel(body.replace("BARRIER", barrier), params=["u64"], threads=128)
        for seed in range(4):
            run(text, out, policy="random", seed=seed)
            assert (out == want).all()
    run(kernel(body.replace("BARRIER", ""), params=["u64"], threads=128), out)
    assert not (out == want).all()


def test_barrier_of_some_warps_with_arrival_only():
    """Warps 0 and 1 wait for each other; warp 2 arrives without waiting; warp 3 is not in it."""
    out = np.zeros(128, np.uint32)
    body = (
        THREAD
        + """
    mov.u32 %r2, %warpid;
    setp.eq.u32 %p1, %r2, 3;
    @%p1 bra done;
    setp.eq.u32 %p2, %r2, 2;
    @%p2 bra arrive;
    mov.b32 %r5, 1;
    bar.sync 1, 96;
    bra done;
    arrive: bar.arrive 1, 96;
    done: st.global.b32 [%d2], %r2;
    """
    )
    run(kernel(body, params=["u64"], threads=128), out)
    assert (out == np.arange(128) // 32).all()


def test_barriers_that_disagree_on_their_threads():
    body = """
    mov.u32 %r1, %warpid;
    setp.eq.u32 %p1, %r1, 0;
    mov.b32 %r2, 64;
    @%p1 mov.b32 %r2, 96;
    bar.sync 0, %r2;
    """
    with pytest.raises(ProtocolError, match="barrier 0 with 64 threads while 32 of 96"):
        run(kernel(body, threads=96))


def test_indexed_branches():
    out = np.zeros(96, np.uint32)
    body = (
        THREAD
        + """
    mov.u32 %r2, %warpid;
    table: .branchtargets a, b, c;
    brx.idx %r2, table;
    a: mov.b32 %r3, 10; bra end;
    b: mov.b32 %r3, 20; bra end;
    c: mov.b32 %r3, 30;
    end: st.global.b32 [%d2], %r3;
    """
    )
    run(kernel(body, params=["u64"], threads=96), out)
    assert (out == np.repeat([10, 20, 30], 32)).all()
    with pytest.raises(ProtocolError, match="index 3 into 3 targets"):
        run(kernel(body, params=["u64"], threads=128), np.zeros(128, np.uint32))


def test_divergence_is_refused_with_its_place():
    body = "mov.u32 %r1, %tid.x;\n.loc 1 77 3\nsetp.lt.u32 %p1, %r1, 5;\n@%p1 bra end;\nend: ret;"
    text = kernel(body) + '.file 1 "/somewhere/mine.py"\n'
    with pytest.raises(UnsupportedPtx, match="5 lanes of 32") as caught:
        run(text)
    line = 1 + text.split("@%p1 bra")[0].count("\n")
    assert f"PTX line {line}: @%p1 bra end (mine.py:77)" in str(caught.value)
    assert "warp 0 of CTA (0, 0, 0)" in str(caught.value)


@pytest.mark.parametrize(
    "text,message",
    [
        ("st.async.shared::cluster.b32 [%r1], %r2", "none of .shared"),
        ("ld.local.b32 %r1, [%r1]", "none of .shared"),
        ("ld.shared.v4.b32 {%r1, %r2}, [%r3]", "2 destinations of a load of 4"),
        ("st.shared.b32 [%r1], 1.0", "is no register"),
        ("cp.async.cg.shared.global [%r1], [%d1], 12", "cp.async"),
        ("tcgen05.ld.sync.aligned.16x64b.x1.b32 {%r1}, [%r2]", "none of .32x32b"),
        ("tcgen05.mma.cta_group::1.kind::i8 [%r1], %d1, %d2, %r2, %p1", "none of .kind"),
        ("tcgen05.mma.cta_group::1.kind::f16 [%r1], [%r3], %d2, %r2, %p1", "A in tensor memory"),
        ("mbarrier.arrive.shared::cta.b64 %d1, [%r1]", "returns a state"),
        ("mbarrier.try_wait.shared::cta.b64 %p1, [%r1], %d1", "none of .parity"),
        (
            "cp.async.bulk.tensor.2d.shared::cta.global.im2col [%r1], [%d1, {%r1, %r2}], [%r3]",
            "none",
        ),
        ("fence.bogus", "bogus"),
        ("bar.red.popc.u32 %r1, 0, %p1", "none of .sync"),
    ],
)
def test_unknown_instructions_are_refused_at_decoding(text, message):
    body = f".loc 1 5 0\n{text};"
    with pytest.raises(UnsupportedPtx, match=message) as caught:
        Program(parse(kernel(body) + '.file 1 "f.py"\n'))
    assert "PTX line" in str(caught.value) and "f.py:5" in str(caught.value)
    assert text.split()[0] in str(caught.value)


def test_memory_faults_name_address_instruction_and_allocation():
    out = np.zeros(31, np.uint32)
    with pytest.raises(MemoryFault, match="array 0") as caught:
        run(kernel(THREAD + "st.global.b32 [%d2], %r1;", params=["u64"]), out)
    assert hex(out.ctypes.data + 31 * 4) in str(caught.value)
    assert "st.global.b32 [%d2], %r1" in str(caught.value)
    with pytest.raises(MemoryFault, match="shared memory"):
        run(kernel("mov.u32 %r1, smem; ld.shared.b32 %r2, [%r1+4096];"), shared_bytes=4096)
    with pytest.raises(MemoryFault, match="misaligned"):
        run(kernel("mov.u32 %r1, smem; ld.shared.b32 %r2, [%r1+2];"))


def test_an_operand_that_must_be_uniform():
    body = "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 3; add.s32 %r2, %r2, 1024;"
    with pytest.raises(UnsupportedPtx, match="differs between the lanes"):
        run(kernel(body + "mbarrier.init.shared::cta.b64 [%r2], 1;"))


def test_mbarrier_phases_with_arrivals_by_lanes():
    """32 lanes of warp 1 arrive one by one, plus one with 16 bytes expected that never come."""
    out = np.zeros(64, np.uint32)
    body = (
        THREAD
        + """
    mov.u32 %r2, %warpid;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared::cta.b64 [smem], 32;
    bar.sync 0;
    setp.eq.u32 %p2, %r2, 1;
    @%p2 bra arrive;
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [smem], 0;
    ld.shared.b32 %r3, [smem+64];
    mbarrier.test_wait.parity.shared::cta.b64 %p4, [smem], 1;
    selp.b32 %r4, 1000, 0, %p3;
    @%p4 add.s32 %r4, %r4, 500;
    add.s32 %r3, %r3, %r4;
    bra done;
    arrive:
    mov.b32 %r3, 7;
    st.shared.b32 [smem+64], %r3;
    mbarrier.arrive.shared::cta.b64 _, [smem];
    done: st.global.b32 [%d2], %r3;
    """
    )
    for seed in range(5):
        run(kernel(body, params=["u64"], threads=64), out, policy="random", seed=seed)
        assert (out[:32] == 1007).all() and (out[32:] == 7).all()
    too_many = body.replace("smem], 32;", "smem], 31;")
    # 31 arrivals complete the phase and the last one counts for the next.
    run(kernel(too_many, params=["u64"], threads=64), out)
    with pytest.raises(ProtocolError, match="no mbarrier was initialised"):
        run(kernel("mbarrier.arrive.shared::cta.b64 _, [smem];"))


def tma_copy(policy: str, wait: str) -> np.ndarray:
    """Load a 4 x 8 box, then store it while a later write to its buffer races with the store."""
    source = np.arange(64, dtype=np.uint16).reshape(8, 8)
    target = np.zeros((8, 8), np.uint16)
    maps = [
        TensorMap(t.ctypes.data, 2, (8, 8), (16,), (8, 4), Swizzle.NONE) for t in (source, target)
    ]
    body = f"""
    mov.b64 %d1, p0;  cvta.param.u64 %d2, %d1;
    mov.b64 %d3, p1;  cvta.param.u64 %d4, %d3;
    mov.u32 %r1, %tid.x;
    elect.sync %r2|%p1, -1;
    mov.b32 %r3, 0;  mov.b32 %r4, 6;  mov.b32 %r5, -1;
    mov.b32 %r6, smem;  add.s32 %r7, %r6, 128;
    @%p1 mbarrier.init.shared::cta.b64 [%r6], 1;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 64;
    @%p1 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes
      [%r7], [%d2, {{%r3, %r4}}], [%r6];
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r6], 0;
    @%p1 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d4, {{%r3, %r5}}], [%r7];
    cp.async.bulk.commit_group;
    {wait}
    @%p1 st.shared.v4.b32 [%r7+16], {{%r1, %r1, %r1, %r1}};
    """
    report = run(kernel(body, params=["map", "map"]), *maps, arrays=(source, target), policy=policy)
    (store,) = report.ctas[0].tma_stores
    assert (store.base, store.coords, store.box) == (target.ctypes.data, (0, -1), (8, 4))
    return target


@pytest.mark.parametrize("policy", ["eager", "lazy"])
def test_tensor_copies_clip_and_fill(policy):
    """Rows 6, 7 and two beyond the tensor (zero) go to rows -1 (dropped), 0, 1, 2."""
    want = np.zeros((8, 8), np.uint16)
    want[0] = np.arange(56, 64)
    for wait in ("cp.async.bulk.wait_group.read 0;", "cp.async.bulk.wait_group 0;"):
        assert (tma_copy(policy, wait) == want).all()


def test_a_missing_wait_for_a_store_shows():
    with pytest.raises(ProtocolError, match="exited before its bulk copies had read"):
        tma_copy("lazy", "")
    assert tma_copy("eager", "")[0].any()


@pytest.mark.parametrize("policy", ["eager", "lazy", "random"])
def test_a_wait_counts_groups_that_finished_out_of_order(policy):
    """wait_group.read 1 waits for the first of two groups, though the second may be done."""
    body = """
    mov.u32 %r1, %tid.x;
    setp.eq.u32 %p1, %r1, 0;
    mov.b32 %r2, smem;  mad.lo.u32 %r3, %r1, 4, %r2;  add.u32 %r4, %r2, 128;
    st.shared.b32 [%r3], 1;
    st.shared.b32 [%r3+128], 2;
    mov.b64 %d1, p0;  cvta.param.u64 %d1, %d1;
    @%p1 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d1, {0, 0}], [%r2];
    cp.async.bulk.commit_group;
    @%p1 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d1, {0, 1}], [%r4];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 1;
    st.shared.b32 [%r3], 9;
    cp.async.bulk.wait_group 0;
    """
    for seed in range(50 if policy == "random" else 1):
        out = np.zeros((2, 32), np.uint32)
        rows = TensorMap(out.ctypes.data, 4, (32, 2), (128,), (32, 1), Swizzle.NONE)
        run(kernel(body, params=["map"]), rows, arrays=(out,), policy=policy, seed=seed)
        assert (out[0] == 1).all() and (out[1] == 2).all(), seed


def test_integers_are_decimal_octal_or_hexadecimal():
    out = np.zeros(32, np.uint32)
    body = """
    ld.param.u64 %d1, [p0];
    mov.u32 %r1, 010;  add.u32 %r1, %r1, 0x10;  add.u32 %r1, %r1, 100;  add.u32 %r1, %r1, 0;
    st.global.b32 [%d1], %r1;
    """
    run(kernel(body, params=["u64"]), out)
    assert out[0] == 8 + 16 + 100


def test_moves_hoisted_above_the_wait_for_tensor_memory():
    """The compiler packs registers of a tcgen05.ld before its wait; other early uses see poison."""
    out = np.zeros((2, 32), np.uint64)
    body = """
    ld.param.b64 %d1, [p0];
    mov.u32 %r1, %tid.x;
    mad.wide.u32 %d2, %r1, 8, %d1;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [smem], 32;
    ld.shared.b32 %r2, [smem];
    add.s32 %r3, %r1, 50;
    tcgen05.st.sync.aligned.32x32b.x2.b32 [%r2], {%r1, %r3};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r4, %r5}, [%r2 + 0];
    mov.b64 %d3, {%r4, %r5};
    add.s32 %r6, %r4, 0;
    tcgen05.wait::ld.sync.aligned;
    cvt.u64.u32 %d4, %r6;
    st.global.b64 [%d2], %d3;
    st.global.b64 [%d2+256], %d4;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;
    """
    run(kernel(body, params=["u64"]), out, policy="lazy")
    lane = np.arange(32, dtype=np.uint64)
    assert (out[0] == lane | (lane + np.uint64(50)) << np.uint64(32)).all()
    assert (out[1] == 2**32 - 1).all()


def test_arguments_are_checked():
    text = kernel("", params=["u64", "map"])
    some_map = TensorMap(16, 2, (8, 8), (16,), (8, 4), Swizzle.NONE)
    with pytest.raises(ValueError, match="takes 2 parameters, got 1"):
        run(text, 1)
    with pytest.raises(ValueError, match="p1 of 128 bytes can't be 2"):
        run(text, 1, 2)
    with pytest.raises(ValueError, match="p0 of 8 bytes"):
        run(text, some_map, some_map)
    with pytest.raises(ValueError, match="grid"):
        run(text, 1, some_map, grid=(0, 1, 1))
    with pytest.raises(ValueError, match="sms must be at least 1, got 0"):
        run(text, 1, some_map, sms=0)
    with pytest.raises(ValueError, match="'fifo'"):
        run(text, 1, some_map, policy="fifo")
    with pytest.raises(ValueError, match="shared_bytes"):
        run(text, 1, some_map, shared_bytes=300_000)
