"""atom and red against a sequential fold in numpy."""

import numpy as np
import pytest
from ptx_support import kernel, run

FOLDS = {
    "add.u32": lambda old, x: (old + x) & 0xFFFFFFFF,
    "min.s32": lambda old, x: min(old, x),
    "max.u32": lambda old, x: max(old, x),
    "inc.u32": lambda old, x: 0 if old >= x else old + 1,
    "dec.u32": lambda old, x: x if old == 0 or old > x else old - 1,
    "and.b32": lambda old, x: old & x,
    "or.b32": lambda old, x: old | x,
    "xor.b32": lambda old, x: old ^ x,
    "exch.b32": lambda old, x: x,
}


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("name", FOLDS)
def test_integers(name, space):
    signed = ".s32" in name
    seed = np.random.SeedSequence().entropy
    print("seed", seed)
    x = np.random.default_rng(seed).integers(0, 2**32, 32, np.uint64).astype(np.uint32)
    body = """
mov.u32 %r0, %tid.x;
ld.param.b64 %d1, [p0]; ld.param.b64 %d2, [p1]; ld.param.b64 %d3, [p2];
mad.wide.u32 %d4, %r0, 4, %d1;
ld.global.b32 %r1, [%d4];
mov.u32 %r2, smem;
ld.global.b32 %r3, [%d3];
st.shared.b32 [%r2], %r3;
"""
    if space == "global":
        body += f"atom.global.gpu.acq_rel.{name} %r4, [%d3], %r1;\n"
    else:
        body += f"atom.shared.{name} %r4, [%r2], %r1;\nld.shared.b32 %r5, [%r2];\n"
        body += "st.global.b32 [%d3], %r5;\n"
    body += "mad.wide.u32 %d5, %r0, 4, %d2;\nst.global.b32 [%d5], %r4;\n"
    out, word = np.zeros(32, np.uint32), np.array([7], np.uint32)
    run(kernel(body, params=["u64"] * 3), x, out, word)
    view = np.int32 if signed else np.uint32
    old, want = 7, []
    for value in x.view(view).tolist():
        want.append(old)
        old = FOLDS[name](old, value)
    assert out.view(view).tolist() == want and word.view(view)[0] == old


def test_compare_and_swap_and_reductions_of_halves():
    body = """
mov.u32 %r0, %laneid;
ld.param.b64 %d1, [p0];
setp.lt.u32 %p1, %r0, 3;
add.u32 %r1, %r0, 1;
@%p1 atom.global.cas.b32 %r2, [%d1], %r0, %r1;
mov.b32 %r3, 0x3c004000;
@%p1 red.global.add.noftz.f16x2 [%d1+4], %r3;
mov.b32 %r4, 0f3FC00000;
red.global.add.f32 [%d1+8], %r4;
mov.b32 %r5, 0x3f804000;
red.relaxed.global.add.noftz.bf16x2 [%d1+12], %r5;
"""
    memory = np.zeros(4, np.uint32)
    run(kernel(body, params=["u64"]), memory)
    assert memory[0] == 3  # 0 -> 1 -> 2 -> 3
    assert memory[1:2].view(np.float16).tolist() == [6, 3]
    assert memory[2:3].view(np.float32) == 48
    assert memory[3] == 0x42004280  # 32 and 64


@pytest.mark.parametrize("name,want", [("inc", [0, 1, 2, 3]), ("dec", [0, 3, 2, 1])])
def test_wrap_around(name, want):
    body = f"""
mov.u32 %r0, %laneid;
ld.param.b64 %d1, [p0]; ld.param.b64 %d2, [p1];
atom.global.{name}.u32 %r1, [%d1], 3;
mad.wide.u32 %d3, %r0, 4, %d2;
st.global.b32 [%d3], %r1;
"""
    out = np.zeros(32, np.uint32)
    run(kernel(body, params=["u64", "u64"]), np.zeros(1, np.uint32), out)
    assert out.tolist() == want * 8
