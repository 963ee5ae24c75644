"""Kernels that run on an H200 and in the emulator, for the comparison of their outputs.

Every case is bare PTX for sm_90a. Its inputs come from a seed, so that only outputs are recorded.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np

THREADS = 128
LOAD = {2: "h", 4: "r", 8: "d"}


@dataclass(frozen=True)
class Map:
    """A tensor map over array ``array``: as TensorMap, base and element bytes left out."""

    array: int
    dims: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0  # CUtensorMapSwizzle


@dataclass
class Case:
    """``parameters``: an array's index as ("array", i) or a Map, in order.

    ``arrays``: input and output buffers; the last one is the output, of ``view`` as dtype.
    ``rounding``: type of the operands if the hardware may round sums otherwise than we do.
    """

    name: str
    ptx: str
    arrays: list[np.ndarray]
    parameters: list = field(default_factory=list)
    grid: int = 1
    shared_bytes: int = 0
    view: str = "u4"
    rounding: str = ""


def module(body: str, params: list[str], threads: int = THREADS) -> str:
    declared = ", ".join(
        f".param .align 64 .b8 p{i}[128]" if kind == "map" else f".param .{kind} p{i}"
        for i, kind in enumerate(params)
    )
    return f"""
.version 8.3
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k({declared})
.reqntid {threads}
{{
.reg .pred %p<20>;
.reg .b16 %h<20>;
.reg .b32 %r<400>;
.reg .b64 %d<40>;
mov.u32 %r0, %tid.x;
mov.u32 %r1, %ctaid.x;
mad.lo.u32 %r2, %r1, {threads}, %r0;
{body}
ret;
}}
"""


def rng_of(name: str) -> np.random.Generator:
    """The random numbers of a case."""
    return np.random.default_rng(zlib.crc32(name.encode()))


# Arithmetic: one instruction over edge values, every pair of them for two operands

_F32 = [
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x80800000,
    0x3F800000, 0xBF800000, 0x3F800001, 0x3FC00000, 0x40200000, 0xC0200000, 0x3F000000,
    0xBF000000, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000,
    0xFF800000, 0x7FC00000, 0x7F800001, 0xFFC12345, 0x4F000000, 0xCF000000, 0x4F800000,
    0x5F000000, 0x33000000, 0x33000001, 0x33C00000, 0x387FC000, 0x38800000, 0x3F808000,
    0x3F818000, 0x3F808001, 0x40490FDB, 0x7F7F8000, 0x7F7F7FFF, 0x4B000001, 0x4AFFFFFF,
]  # fmt: skip
_F16 = [
    0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x8400, 0x3C00, 0xBC00, 0x3C01, 0x3BFF, 0x7BFF,
    0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7D01, 0xFE55, 0x3555, 0x4248, 0x1400, 0x0200, 0x6400, 0x6401,
]  # fmt: skip
_BF16 = [
    0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x0080, 0x3F80, 0xBF80, 0x3F81, 0x3F7F, 0x7F7F, 0xFF7F,
    0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0xFFD5, 0x3EAB, 0x4049, 0x2000, 0x0040, 0x4300, 0x4301, 0x5F80,
]  # fmt: skip
_INTS = [0, 1, 2, 3, 7, 15, 16, 31, 32, 33, 63, 64, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF]


def _edges(kind: str, rng: np.random.Generator) -> np.ndarray:
    """64 values as bits, of the type's width (halves of packed types are drawn apart)."""
    if kind == "f32":
        known, width = _F32, 4
    elif kind in ("f16", "f16x2", "bf16", "bf16x2"):
        known, width = (_BF16 if kind.startswith("b") else _F16), 2
    elif kind == "f64":
        known = [int(np.float64(np.uint32(x).view("f4")).view("u8")) for x in _F32]
        known = [x for x in known if x & 0x7FF0 << 48 != 0x7FF0 << 48 or not x & (1 << 52) - 1]
        width = 8
    else:
        bits = int(kind[1:])
        width, top = bits // 8, 1 << bits - 1
        known = [x for x in _INTS if x < 2 * top]
        known += [top - 1, top, top + 1, 2 * top - 1, 2 * top - 2, top >> 1]
    random = rng.integers(0, 1 << 8 * width - 1, 64, np.uint64) * np.uint64(2) + np.uint64(1)
    if kind == "f64":
        random = rng.standard_normal(64).view("u8")
    values = np.concatenate([np.array(known, np.uint64), random])[:64].astype(f"u{width}")
    if not kind.endswith("x2"):
        return values
    return np.stack([values, rng.permutation(values)], 1).copy().view("u4")[:, 0]


def _alu(text: str, kinds: str, result: str) -> Case:
    rng = rng_of(text)
    edges = [_edges(kind, rng) for kind in kinds.split()]
    if len(edges) == 1:
        columns = [np.concatenate([edges[0], _more(kinds, rng)])]
    else:
        first, second = (x.ravel() for x in np.meshgrid(*edges[:2], indexing="ij"))
        columns = [first, second] + [rng.choice(x, len(first)) for x in edges[2:]]
    lines, names = [], []
    for i, column in enumerate(columns):
        size = column.dtype.itemsize
        names.append(f"%{LOAD[size]}{i + 10}")
        lines += [
            f"ld.param.u64 %d1, [p{i}];",
            f"mad.wide.u32 %d2, %r2, {size}, %d1;",
            f"ld.global.b{8 * size} {names[-1]}, [%d2];",
        ]
    size = 2 if result == "pred" else int(result[1:])
    stored = f"%{LOAD[size]}9"
    lines.append(text.format(*names, d="%p9" if result == "pred" else stored) + ";")
    if result == "pred":
        lines.append(f"selp.b16 {stored}, 1, 0, %p9;")
    n = len(columns)
    lines += [
        f"ld.param.u64 %d1, [p{n}];",
        f"mad.wide.u32 %d2, %r2, {size}, %d1;",
        f"st.global.b{8 * size} [%d2], {stored};",
    ]
    out = np.zeros(len(columns[0]), f"u{size}")
    arrays = [*columns, out]
    return Case(
        f"alu {text.split()[0]}",
        module("\n".join(lines), ["u64"] * (n + 1)),
        arrays,
        [("array", i) for i in range(n + 1)],
        grid=len(out) // THREADS,
        view=f"u{size}",
    )


def _more(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Values in the range where rounding to half precision and to integers happens."""
    if kind == "f32":
        return (
            (rng.standard_normal(4032) * 2.0 ** rng.integers(-30, 34, 4032)).astype("f4").view("u4")
        )
    if kind == "f64":
        return (rng.standard_normal(4032) * 2.0 ** rng.integers(-60, 60, 4032)).view("u8")
    width = 2 if kind in ("f16", "bf16") else int(kind[1:]) // 8
    return rng.integers(0, 1 << min(63, 8 * width), 4032, np.uint64).astype(f"u{width}")


_ARITHMETIC = [
    *((f"{op}.f32 {{d}}, {{0}}, {{1}}", "f32 f32", "u4") for op in ("add", "sub", "mul", "min")),
    *((f"{op}.f32 {{d}}, {{0}}, {{1}}", "f32 f32", "u4") for op in ("max", "max.NaN", "div.rn")),
    ("fma.rn.f32 {d}, {0}, {1}, {2}", "f32 f32 f32", "u4"),
    *((f"{op}.f64 {{d}}, {{0}}, {{1}}", "f64 f64", "u8") for op in ("add", "mul", "div.rn")),
    *(
        (f"{op}.{t}x2 {{d}}, {{0}}, {{1}}", f"{t}x2 {t}x2", "u4")
        for t in ("f16", "bf16")
        for op in ("add", "mul", "min", "max.NaN")
    ),
    ("fma.rn.f16x2 {d}, {0}, {1}, {2}", "f16x2 f16x2 f16x2", "u4"),
    ("fma.rn.bf16x2 {d}, {0}, {1}, {2}", "bf16x2 bf16x2 bf16x2", "u4"),
    ("neg.f32 {d}, {0}", "f32", "u4"),
    ("abs.f32 {d}, {0}", "f32", "u4"),
    ("cvt.rn.f16.f32 {d}, {0}", "f32", "u2"),
    ("cvt.rz.f16.f32 {d}, {0}", "f32", "u2"),
    ("cvt.rn.bf16.f32 {d}, {0}", "f32", "u2"),
    ("cvt.rz.bf16.f32 {d}, {0}", "f32", "u2"),
    ("cvt.rn.f16x2.f32 {d}, {0}, {1}", "f32 f32", "u4"),
    ("cvt.rn.bf16x2.f32 {d}, {0}, {1}", "f32 f32", "u4"),
    ("cvt.f32.f16 {d}, {0}", "f16", "u4"),
    ("cvt.f32.bf16 {d}, {0}", "bf16", "u4"),
    ("cvt.rn.f32.f64 {d}, {0}", "f64", "u4"),
    *((f"cvt.{r}.s32.f32 {{d}}, {{0}}", "f32", "u4") for r in ("rni", "rzi", "rmi", "rpi")),
    ("cvt.rzi.u32.f32 {d}, {0}", "f32", "u4"),
    ("cvt.rni.s64.f32 {d}, {0}", "f32", "u8"),
    ("cvt.rzi.s32.f16 {d}, {0}", "f16", "u4"),
    ("cvt.rn.f32.s32 {d}, {0}", "s32", "u4"),
    ("cvt.rn.f32.u32 {d}, {0}", "u32", "u4"),
    ("cvt.rn.f32.s64 {d}, {0}", "s64", "u4"),
    ("cvt.rn.f16.s32 {d}, {0}", "s32", "u2"),
    *(
        (f"{op}.{t} {{d}}, {{0}}, {{1}}", f"{t} {t}", "u4")
        for t in ("s32", "u32")
        for op in ("div", "rem", "mul.hi", "min")
    ),
    ("mul.hi.s64 {d}, {0}, {1}", "s64 s64", "u8"),
    ("mad.wide.s32 {d}, {0}, {1}, {2}", "s32 s32 s64", "u8"),
    ("shl.b32 {d}, {0}, {1}", "u32 u32", "u4"),
    ("shr.s32 {d}, {0}, {1}", "s32 u32", "u4"),
    ("shr.u64 {d}, {0}, {1}", "u64 u32", "u8"),
    *(
        (f"shf.{d}.{mode}.b32 {{d}}, {{0}}, {{1}}, {{2}}", "u32 u32 u32", "u4")
        for d in "lr"
        for mode in ("wrap", "clamp")
    ),
    *((f"bfe.{t} {{d}}, {{0}}, {{1}}, {{2}}", f"{t} u32 u32", "u4") for t in ("u32", "s32")),
    ("bfi.b32 {d}, {0}, {1}, {2}, 11", "u32 u32 u32", "u4"),
    ("prmt.b32 {d}, {0}, {1}, {2}", "u32 u32 u32", "u4"),
    ("lop3.b32 {d}, {0}, {1}, {2}, 0xCA", "u32 u32 u32", "u4"),
    *(
        (f"setp.{c}.f32 {{d}}, {{0}}, {{1}}", "f32 f32", "pred")
        for c in ("lt", "ne", "neu", "geu", "num")
    ),
    ("setp.hi.u32 {d}, {0}, {1}", "u32 u32", "pred"),
    ("setp.le.s64 {d}, {0}, {1}", "s64 s64", "pred"),
    ("shfl.sync.up.b32 {d}, {0}, {1}, 0x0, 0xffffffff", "u32 u32", "u4"),
    ("shfl.sync.down.b32 {d}, {0}, {1}, 0x1f, 0xffffffff", "u32 u32", "u4"),
    ("shfl.sync.bfly.b32 {d}, {0}, {1}, 0x181f, 0xffffffff", "u32 u32", "u4"),
    ("shfl.sync.idx.b32 {d}, {0}, {1}, 0x1c0f, 0xffffffff", "u32 u32", "u4"),
]


# Shared memory

_COPY_IN = """
ld.param.u64 %d1, [p0];
mov.u32 %r10, smem;
mov.u32 %r12, %r0;
in:
shl.b32 %r13, %r12, 2;
cvt.u64.u32 %d3, %r13;
add.u64 %d2, %d1, %d3;
ld.global.b32 %r14, [%d2];
add.u32 %r15, %r10, %r13;
st.shared.b32 [%r15], %r14;
add.u32 %r12, %r12, {threads};
setp.lt.u32 %p1, %r12, {words};
@%p1 bra in;
fence.proxy.async.shared::cta;
bar.sync 0;
"""
_COPY_OUT = """
bar.sync 0;
ld.param.u64 %d1, [p{last}];
mov.u32 %r10, smem;
mov.u32 %r12, %r0;
out:
shl.b32 %r13, %r12, 2;
add.u32 %r15, %r10, %r13;
ld.shared.b32 %r14, [%r15];
cvt.u64.u32 %d3, %r13;
add.u64 %d2, %d1, %d3;
st.global.b32 [%d2], %r14;
add.u32 %r12, %r12, {threads};
setp.lt.u32 %p1, %r12, {words};
@%p1 bra out;
"""


def _image(rng: np.random.Generator, nbytes: int) -> np.ndarray:
    return rng.integers(0, 1 << 32, nbytes // 4, np.uint64).astype(np.uint32)


_CODES = {"none": (0, 16), "32B": (1, 32), "64B": (2, 64), "128B": (3, 128)}


def _tma(load: bool, swizzle: str, element: int, outer: tuple[int, ...], shift: int) -> Case:
    """A box of rows of the swizzle's width at coordinates moved by ``shift``: out of bounds."""
    code, width = _CODES[swizzle]
    box = (width // element, *outer)
    dims = tuple(16 // element * 7 if i == 0 else n + 3 for i, n in enumerate(box))
    coords = [shift] * len(box)
    name = f"tma {'load' if load else 'store'} {swizzle} {element}-byte {len(box)}d at {coords}"
    rng = rng_of(name)
    nbytes = int(np.prod(box)) * element
    tensor = _image(rng, int(np.prod(dims)) * element)
    coordinates = "{" + ", ".join(str(c) for c in coords) + "}"
    padded = -(-nbytes // 1024) * 1024
    issue = f"""
mov.u64 %d8, p1;
cvta.param.u64 %d8, %d8;
mov.u32 %r20, smem;
mov.u32 %r21, smem;
add.u32 %r21, %r21, {padded};
setp.eq.u32 %p2, %r0, 0;
"""
    rank = len(box)
    if load:
        body = (
            _COPY_IN.format(threads=THREADS, words=padded // 4)
            + issue
            + f"""
@%p2 mbarrier.init.shared::cta.b64 [%r21], 1;
@%p2 fence.mbarrier_init.release.cluster;
bar.sync 0;
@%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], {nbytes};
@%p2 cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes \
[%r20], [%d8, {coordinates}], [%r21];
wait:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r21], 0;
@!%p3 bra wait;
"""
            + _COPY_OUT.format(threads=THREADS, words=padded // 4, last=2)
        )
        arrays = [_image(rng, padded), tensor, np.zeros(padded // 4, np.uint32)]
        parameters = [("array", 0), Map(1, dims, box, code), ("array", 2)]
        kinds = ["u64", "map", "u64"]
    else:
        body = (
            _COPY_IN.format(threads=THREADS, words=padded // 4)
            + issue
            + f"""
@%p2 cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [%d8, {coordinates}], [%r20];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
"""
        )
        arrays = [_image(rng, padded), tensor]
        parameters = [("array", 0), Map(1, dims, box, code)]
        kinds = ["u64", "map"]
    ptx = module(body, kinds)
    case = Case(name, ptx, arrays, parameters, shared_bytes=padded + 64)
    case.view = f"u{element}"
    return case


def _matrix(load: bool, count: int, trans: bool) -> Case:
    name = f"{'ld' if load else 'st'}matrix x{count}{' trans' if trans else ''}"
    rng = rng_of(name)
    registers = ", ".join(f"%r{100 + i}" for i in range(count))
    vector = f"{{{registers}}}"
    opcode = f"matrix.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}.shared.b16"
    rows = rng.permutation(128)[:32].astype(np.uint32) * np.uint32(16)
    address = """
ld.param.u64 %d1, [p1];
and.b32 %r30, %r0, 31;
mad.wide.u32 %d2, %r30, 4, %d1;
ld.global.b32 %r31, [%d2];
add.u32 %r31, %r31, %r10;
"""
    if load:
        # Every warp reads the same; all 128 threads write what they hold.
        body = _COPY_IN.format(threads=THREADS, words=512) + address
        body += f"ld{opcode} {vector}, [%r31];\nld.param.u64 %d1, [p2];\n"
        body += f"mad.wide.u32 %d2, %r2, {4 * count}, %d1;\n"
        body += "".join(f"st.global.b32 [%d2+{4 * i}], %r{100 + i};\n" for i in range(count))
        out = np.zeros(THREADS * count, np.uint32)
        return Case(
            name,
            module(body, ["u64"] * 3),
            [_image(rng, 2048), rows, out],
            [("array", i) for i in range(3)],
            shared_bytes=2048,
        )
    body = _COPY_IN.format(threads=32, words=512) + address
    body += "".join(f"mad.lo.u32 %r{100 + i}, %r0, 77777, {i * 1234567};\n" for i in range(count))
    body += f"st{opcode} [%r31], {vector};\n"
    body += _COPY_OUT.format(threads=32, words=512, last=2)
    return Case(
        name,
        module(body, ["u64"] * 3, threads=32),
        [_image(rng, 2048), rows, np.zeros(512, np.uint32)],
        [("array", i) for i in range(3)],
        shared_bytes=2048,
    )


# mbarrier protocols: one thread notes test_wait of both parities after every step

_PROTOCOLS = {
    "count of 3": (3, ["arrive", "arrive", "arrive", "arrive", "arrive", "arrive"]),
    "several arrivals at once": (5, ["arrive 2", "arrive 3", "arrive 5", "arrive 4", "arrive 1"]),
    "expect_tx before arrival": (2, ["expect 64", "arrive", "arrive", "copy 64", "arrive 2"]),
    "arrive.expect_tx": (1, ["arrive_expect 32", "copy 16", "copy 16", "arrive", "arrive"]),
    "bytes before expectation": (1, ["copy 32", "arrive_expect 32", "arrive", "arrive"]),
    "two phases of copies": (1, ["arrive_expect 48", "copy 48", "arrive_expect 16", "copy 16"]),
}


def _protocol(name: str) -> Case:
    count, steps = _PROTOCOLS[name]
    lines = [
        "ld.param.u64 %d1, [p0];",
        "ld.param.u64 %d3, [p1];",
        "mov.u32 %r10, smem;",
        "add.u32 %r11, %r10, 128;",
        "setp.eq.u32 %p1, %r0, 0;",
        f"@%p1 mbarrier.init.shared::cta.b64 [%r10], {count};",
        "fence.proxy.async.shared::cta;",
        "bar.warp.sync 0xffffffff;",
    ]
    for i, step in enumerate(["nothing", *steps]):
        verb, amount = (step.split() + ["1"])[:2]
        if verb == "arrive":
            lines.append(f"@%p1 mbarrier.arrive.shared::cta.b64 _, [%r10], {amount};")
        elif verb == "arrive_expect":
            lines.append(f"@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], {amount};")
        elif verb == "expect":
            lines.append(f"@%p1 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r10], {amount};")
        elif verb == "copy":
            # Long enough for the copy to have taken place.
            lines += [
                "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                f"[%r11], [%d3], {amount}, [%r10];",
                *["nanosleep.u32 1000000;"] * 8,
            ]
        lines.append("bar.warp.sync 0xffffffff;")
        for parity in (0, 1):
            lines += [
                f"mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r10], {parity};",
                "selp.b32 %r20, 1, 0, %p2;",
                f"st.global.b32 [%d1+{8 * i + 4 * parity}], %r20;",
            ]
    return Case(
        f"mbarrier {name}",
        module("\n".join(lines), ["u64", "u64"], threads=32),
        [_image(rng_of(name), 256), np.zeros(2 * len(steps) + 2, np.uint32)],
        [("array", 1), ("array", 0)],
        shared_bytes=512,
    )


def _ping_pong() -> Case:
    """Two warps hand a word back and forth through shared memory, 50 times."""
    body = """
ld.param.u64 %d1, [p0];
mov.u32 %r10, smem;
shr.u32 %r3, %r0, 5;
and.b32 %r4, %r0, 31;
setp.eq.u32 %p1, %r0, 0;
@%p1 mbarrier.init.shared::cta.b64 [%r10], 32;
@%p1 mbarrier.init.shared::cta.b64 [%r10+8], 32;
bar.sync 0;
shl.b32 %r5, %r4, 2;
add.u32 %r5, %r5, %r10;
mov.u32 %r20, 0;
mov.u32 %r21, %r4;
setp.eq.u32 %p5, %r3, 1;
setp.eq.u32 %p6, %r3, 0;
loop:
and.b32 %r22, %r20, 1;
@%p6 bra first;
w1:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], %r22;
@!%p3 bra w1;
ld.shared.b32 %r21, [%r5+128];
mad.lo.u32 %r21, %r21, 3, %r20;
st.shared.b32 [%r5+128], %r21;
mbarrier.arrive.shared::cta.b64 _, [%r10+8];
bra next;
first:
add.u32 %r21, %r21, 7;
st.shared.b32 [%r5+128], %r21;
mbarrier.arrive.shared::cta.b64 _, [%r10];
w2:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10+8], %r22;
@!%p3 bra w2;
ld.shared.b32 %r21, [%r5+128];
next:
add.u32 %r20, %r20, 1;
setp.lt.u32 %p2, %r20, 50;
@%p2 bra loop;
mad.wide.u32 %d2, %r0, 4, %d1;
st.global.b32 [%d2], %r21;
"""
    ptx = module(body, ["u64"], threads=64)
    out = np.zeros(64, np.uint32)
    return Case("mbarrier ping-pong", ptx, [out], [("array", 0)], shared_bytes=512)


# wgmma: descriptors over random bytes, so that no layout of ours is involved

_TYPES = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32}
_SWIZZLE_FIELD = {"none": 0, "32B": 3, "64B": 2, "128B": 1}
_B_OFFSET, _IMAGE = 16384, 65536


def _elements(rng: np.random.Generator, kind: str, exact: bool, nbytes: int) -> np.ndarray:
    """Elements as bytes: small integers, whose sums are exact in any order, or normal deviates."""
    count = nbytes * _TYPES[kind] // 32
    values = rng.integers(-4, 5, count) if exact else rng.standard_normal(count)
    values = values.astype(np.float32)
    if kind == "f16":
        raw = values.astype(np.float16)
    elif kind == "bf16":
        raw = (values.view(np.uint32) >> 16).astype(np.uint16)
    elif kind == "tf32":
        raw = values.view(np.uint32) & np.uint32(0xFFFFE000)
    else:
        import torch

        dtype = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[kind]
        raw = torch.from_numpy(values).to(dtype).view(torch.uint8).numpy()
    return raw.view(np.uint32)


def _wgmma(
    kind: str,
    n: int,
    swizzles: str = "128B 128B",
    major: str = "kk",
    *,
    exact: bool = True,
    registers: bool = False,
    signs: tuple[int, int] = (1, 1),
    steps: int = 2,
) -> Case:
    name = f"wgmma m64n{n} {kind} {swizzles} {major}" + (" A in registers" if registers else "")
    name += "" if signs == (1, 1) else f" signs {signs}"
    name += "" if exact else f" normal x{steps}"
    rng = rng_of(name)
    d = ", ".join(f"%r{100 + i}" for i in range(n // 2))
    a_swizzle, b_swizzle = swizzles.split()
    a_desc = _descriptor(a_swizzle, major[0], 0)
    b_desc = _descriptor(b_swizzle, major[1], _B_OFFSET)
    constants = f"{signs[0]}, {signs[1]}"
    if _TYPES[kind] == 16:
        constants += "" if registers else f", {int(major[0] == 'm')}"
        constants += f", {int(major[1] == 'm')}"
    shape = f"m64n{n}k{_TYPES[kind]}"
    body = _COPY_IN.format(threads=THREADS, words=_IMAGE // 4)
    if registers:
        body += "shl.b32 %r20, %r0, 4;\nadd.u32 %r20, %r20, %r10;\n"
        body += "ld.shared.v4.b32 {%r30, %r31, %r32, %r33}, [%r20];\n"
    body += f"""
bfe.u32 %r21, %r10, 4, 14;
cvt.u64.u32 %d10, %r21;
add.u64 %d11, %d10, {a_desc};
add.u64 %d12, %d10, {b_desc};
setp.ne.u32 %p4, %r0, 9999;
"""
    body += "".join(f"mov.b32 %r{100 + i}, 0f3F800000;\n" for i in range(n // 2))
    body += "wgmma.fence.sync.aligned;\n"
    a = "{%r30, %r31, %r32, %r33}" if registers else "%d11"
    for step in range(steps):
        if step:
            # Other rows of the same bytes: whatever the layout, both sides read the same.
            body += "add.u64 %d11, %d11, 256;\nadd.u64 %d12, %d12, 320;\n"
        body += (
            f"wgmma.mma_async.sync.aligned.{shape}.f32.{kind}.{kind} "
            f"{{{d}}}, {a}, %d12, %p4, {constants};\n"
        )
    body += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"
    body += f"ld.param.u64 %d1, [p1];\nmad.wide.u32 %d2, %r0, {2 * n}, %d1;\n"
    body += "".join(f"st.global.b32 [%d2+{4 * i}], %r{100 + i};\n" for i in range(n // 2))
    return Case(
        name,
        module(body, ["u64", "u64"]),
        [_elements(rng, kind, exact, _IMAGE), np.zeros(64 * n, np.uint32)],
        [("array", 0), ("array", 1)],
        shared_bytes=_IMAGE,
        view="f4",
        rounding="" if exact else kind,
    )


def _descriptor(swizzle: str, major: str, offset: int) -> int:
    """Layouts as CUTLASS's canonical ones, with gaps between the atoms."""
    width = _CODES[swizzle][1]
    if swizzle == "none":
        leading, stride = (128, 384) if major == "k" else (4224, 128)
    elif major == "k":
        leading, stride = 16, 8 * width
    else:
        leading, stride = 16 * width, 8 * width
    return offset >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | _SWIZZLE_FIELD[swizzle] << 62


def cases() -> list[Case]:
    """All of them, with distinct names."""
    result = [_alu(*row) for row in _ARITHMETIC]
    for swizzle in _CODES:
        for load in (True, False):
            result += [
                _tma(load, swizzle, 2, (8,), 0),
                _tma(load, swizzle, 4, (16,), 2),
                _tma(load, swizzle, 2, (16, 3), -2),
            ]
    for load in (True, False):
        result += [
            _tma(load, "none", 4, (), 1),
            _tma(load, "64B", 1, (4, 3, 2), -1),
            _tma(load, "32B", 8, (4, 2, 3, 2), 1),
        ]
    for trans in (False, True):
        result += [_matrix(load, n, trans) for load in (True, False) for n in (1, 2, 4)]
    result += [*map(_protocol, _PROTOCOLS), _ping_pong()]
    result += [_wgmma("f16", n) for n in (8, 24, 136, 256)]
    for swizzle in _CODES:
        result.append(_wgmma("f16", 64, f"{swizzle} {swizzle}"))
        for kind in ("f16", "bf16"):
            result += [_wgmma(kind, 64, f"{swizzle} {swizzle}", m) for m in ("km", "mk", "mm")]
    for kind in ("bf16", "tf32", "e4m3", "e5m2"):
        result += [_wgmma(kind, 32, "64B 128B"), _wgmma(kind, 16, registers=True)]
    result += [_wgmma("f16", 32, registers=True, major="km")]
    result += [_wgmma("f16", 32, signs=s) for s in ((-1, 1), (1, -1), (-1, -1))]
    for kind in _TYPES:
        result += [_wgmma(kind, 32, exact=False, steps=n) for n in (1, 4)]
    names = [case.name for case in result]
    assert len(set(names)) == len(names), sorted(n for n in names if names.count(n) > 1)
    return result
