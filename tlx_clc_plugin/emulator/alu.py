"""Instructions that touch nothing but what is the warp's own, as lines of Python."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import lanes
from .cluster import WINDOW_SHIFT
from .codegen import BITS, DTYPES, FLOATS, INTEGERS, Code
from .errors import UnsupportedPtx
from .modifiers import CACHE_HINTS, Modifiers
from .ptx import Address, Immediate, Instruction, Operand, Pair, Register, Sink, Symbol, Vector

# Emitters, by instruction name: emit(code, modifiers, *operands)

_EMITTERS: dict[str, tuple[Callable, int, int]] = {}  # and how many operands they take
HELPERS = {
    name: getattr(lanes, name)
    for name in (
        "div rem mul_hi shl shr funnel bfe bfi prmt lop3 shuffle widen_bf16 round_bf16 "
        "truncate_bf16 truncate_f16 canonical extremum float_to_int int_to_int fma pack unpack "
        "pack_f16 LEADER"
    ).split()
} | {"where": np.where, "np": np}


def _emitter(name: str):
    def register(emit):
        most = emit.__code__.co_argcount - 2
        _EMITTERS[name] = emit, most - len(emit.__defaults__ or ()), most
        return emit

    return register


def is_fusible(instruction: Instruction) -> bool:
    """Whether the instruction touches nothing but what is the warp's own."""
    name, *parts = instruction.opcode.split(".")
    if name == "ld":
        return parts[0] == "param"
    if name == "cp":
        return parts[0] == "async" and parts[1] in ("ca", "cg", "shared", "shared::cta")
    return name in _EMITTERS


def emit(code: Code, instruction: Instruction) -> None:
    """Append the lines of one instruction. Raises UnsupportedPtx if it is not modelled."""
    name, *parts = instruction.opcode.split(".")
    modifiers = Modifiers(parts)
    emitter, fewest, most = _EMITTERS[name]
    if not fewest <= len(instruction.operands) <= most:
        raise UnsupportedPtx(f"{len(instruction.operands)} operands")
    code.begin(instruction.guard)
    emitter(code, modifiers, *instruction.operands)
    modifiers.end()


def _bitwise_kind(kind: str) -> str:
    """The unsigned type of an integer type's width: wrapping arithmetic is the same for both."""
    return f"b{BITS[kind]}" if kind in INTEGERS else kind


def _float_modifiers(m: Modifiers, kind: str) -> None:
    if kind in FLOATS:
        m.flag("rn")


def _canonical(kind: str, expression: str) -> str:
    """The expression of arithmetic in ``kind`` with the hardware's NaN."""
    return f"canonical({expression})" if kind in ("f32", "f32x2", "f16", "f16x2") else expression


def _widened(code, m, a: Operand) -> str:
    """An fp32 operand, or one of half precision if the opcode names that type as well."""
    kind = m.take(("f16", "bf16"), default="f32")
    return f"{code.value(a, kind)}" + (".astype('f4')" if kind == "f16" else "")


def _binary(name: str, operator: str, kinds: tuple[str, ...]):
    @_emitter(name)
    def emit(code, m, d, a, b):
        kind = _bitwise_kind(m.take(kinds))
        _float_modifiers(m, kind)
        first = _widened(code, m, a) if kind == "f32" else code.value(a, kind)
        code.assign(d, kind, _canonical(kind, f"{first} {operator} {code.value(b, kind)}"))


_binary("add", "+", (*INTEGERS, *FLOATS))
_binary("sub", "-", (*INTEGERS, *FLOATS))
_binary("and", "&", (*INTEGERS, "pred"))
_binary("or", "|", (*INTEGERS, "pred"))
_binary("xor", "^", (*INTEGERS, "pred"))


@_emitter("not")
def _not(code, m, d, a):
    kind = m.take(("pred", *INTEGERS))
    code.assign(d, kind, f"~{code.value(a, kind)}")


@_emitter("neg")
def _neg(code, m, d, a):
    kind = m.take((*INTEGERS, *FLOATS))
    code.assign(d, kind, f"-{code.value(a, kind)}")


@_emitter("abs")
def _abs(code, m, d, a):
    kind = m.take((*INTEGERS, *FLOATS))
    code.assign(d, kind, f"np.abs({code.value(a, kind)})")


def _extremum(name: str):
    @_emitter(name)
    def emit(code, m, d, a, b):
        kind = m.take((*INTEGERS, *FLOATS))
        first, second = code.value(a, kind), code.value(b, kind)
        if kind in INTEGERS:
            code.assign(d, kind, f"np.{name}imum({first}, {second})")
        else:
            value = f"extremum('{name}', {m.flag('NaN')}, {first}, {second})"
            code.assign(d, kind, _canonical(kind, value))


_extremum("min")
_extremum("max")


@_emitter("mul")
def _mul(code, m, d, a, b):
    kind = m.take((*INTEGERS, *FLOATS))
    if kind in FLOATS:
        _float_modifiers(m, kind)
        code.assign(d, kind, _canonical(kind, f"{code.value(a, kind)} * {code.value(b, kind)}"))
        return
    part = m.take(("lo", "hi", "wide"))
    if part == "hi":
        code.assign(d, kind, f"mul_hi({code.value(a, kind)}, {code.value(b, kind)})")
    else:
        _product(code, d, kind, part, a, b, "")


@_emitter("mad")
def _mad(code, m, d, a, b, c):
    kind, part = m.take(INTEGERS), m.take(("lo", "wide"))
    wide = kind if part == "lo" else _double(kind)
    _product(code, d, kind, part, a, b, f" + {code.value(c, _bitwise_kind(wide))}")


def _double(kind: str) -> str:
    return f"{kind[0]}{2 * BITS[kind]}"


def _product(code, d, kind, part, a, b, addend):
    if part == "lo":
        kind = _bitwise_kind(kind)
        code.assign(d, kind, f"{code.value(a, kind)} * {code.value(b, kind)}{addend}")
        return
    wide = _double(kind)
    factors = [
        code.value(x, wide)
        if isinstance(x, Immediate)
        else f"{code.value(x, kind)}.astype('{DTYPES[wide]}')"
        for x in (a, b)
    ]
    unsigned = _bitwise_kind(wide)
    code.assign(d, unsigned, f"({factors[0]} * {factors[1]}).view('{DTYPES[unsigned]}'){addend}")


@_emitter("div")
def _div(code, m, d, a, b):
    kind = m.take((*INTEGERS, "f32", "f64"))
    if kind in INTEGERS:
        code.assign(d, kind, f"div({code.value(a, kind)}, {code.value(b, kind)})")
        return
    m.flag("rn", "full", "approx")  # the latter two may be less exact than ours
    code.assign(d, kind, _canonical(kind, f"{code.value(a, kind)} / {code.value(b, kind)}"))


@_emitter("rem")
def _rem(code, m, d, a, b):
    kind = m.take(INTEGERS)
    code.assign(d, kind, f"rem({code.value(a, kind)}, {code.value(b, kind)})")


@_emitter("fma")
def _fma(code, m, d, a, b, c):
    m.take(("rn",))
    kind = m.take([kind for kind in FLOATS if kind != "f64"])
    a, b, c = (code.value(x, kind) for x in (a, b, c))
    dtype = "f2" if DTYPES[kind] == "f2" else "f4"
    code.assign(d, kind, _canonical(kind, f"fma({a}, {b}, {c}).astype('{dtype}')"))


def _shift(name: str, operator: str):
    @_emitter(name)
    def emit(code, m, d, a, b):
        kind = m.take(INTEGERS)
        value = code.value(a, kind)
        if isinstance(b, Immediate) and 0 <= b.value < BITS[kind]:
            code.assign(d, kind, f"{value} {operator} {code.value(b, kind)}")
        else:
            code.assign(d, kind, f"{name}({value}, {code.value(b, 'u32')})")


_shift("shl", "<<")
_shift("shr", ">>")


@_emitter("shf")
def _shf(code, m, d, a, b, c):
    m.take(("b32",))
    left, clamp = m.take(("l", "r")) == "l", m.take(("clamp", "wrap")) == "clamp"
    a, b, c = (code.value(x, "u32") for x in (a, b, c))
    code.assign(d, "u32", f"funnel({a}, {b}, {c}, {left}, {clamp})")


@_emitter("bfe")
def _bfe(code, m, d, a, b, c):
    kind = m.take(("u32", "s32", "u64", "s64"))
    value = code.value(a, kind)
    if kind[0] == "u" and all(isinstance(x, Immediate) for x in (b, c)) and c.value < 64:
        if b.value < BITS[kind]:
            mask = code.value(Immediate((1 << c.value) - 1), kind)
            code.assign(d, kind, f"{value} >> {code.value(b, kind)} & {mask}")
            return
    code.assign(d, kind, f"bfe({value}, {code.value(b, 'u32')}, {code.value(c, 'u32')})")


@_emitter("bfi")
def _bfi(code, m, f, a, b, c, d):
    kind = m.take(("b32", "b64"))
    a, b = code.value(a, kind), code.value(b, kind)
    code.assign(f, kind, f"bfi({a}, {b}, {code.value(c, 'u32')}, {code.value(d, 'u32')})")


@_emitter("prmt")
def _prmt(code, m, d, a, b, c):
    m.take(("b32",))
    a, b, c = (code.value(x, "u32") for x in (a, b, c))
    code.assign(d, "u32", f"prmt({a}, {b}, {c})")


@_emitter("lop3")
def _lop3(code, m, d, a, b, c, table):
    m.take(("b32",))
    if not isinstance(table, Immediate):
        raise UnsupportedPtx("lop3 whose table is no constant")
    a, b, c = (code.value(x, "u32") for x in (a, b, c))
    code.assign(d, "u32", f"lop3({a}, {b}, {c}, {table.value})")


@_emitter("selp")
def _selp(code, m, d, a, b, p):
    kind = _bitwise_kind(m.take(INTEGERS + FLOATS))
    kind = {"f16": "b16", "f32": "b32", "f64": "b64"}.get(kind, kind)
    a, b = code.value(a, kind), code.value(b, kind)
    code.assign(d, kind, f"where({code.value(p, 'pred')}, {a}, {b})")


_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_UNORDERED = {"equ": "ne", "neu": "eq", "ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}


@_emitter("setp")
def _setp(code, m, d, a, b, c=None):
    kind = m.take((*INTEGERS, *FLOATS))
    comparison = m.take((*_COMPARISONS, *_UNSIGNED, *_UNORDERED, "num", "nan"))
    combine = m.take(("and", "or", "xor"), default="") if c is not None else ""
    a, b = code.value(a, kind), code.value(b, kind)
    result = _compare(comparison, a, b, kind)
    destinations = (d.first, d.second) if isinstance(d, Pair) else (d,)
    for destination, negate in zip(destinations, (False, True), strict=False):
        term = f"~({result})" if negate else f"({result})"
        if combine:
            operator = {"and": "&", "or": "|", "xor": "^"}[combine]
            term = f"{term} {operator} {code.value(c, 'pred')}"
        code.assign(destination, "pred", term)


def _compare(comparison: str, a: str, b: str, kind: str) -> str:
    if kind in INTEGERS:
        operator = _COMPARISONS.get(_UNSIGNED.get(comparison, comparison))
        if operator is None:
            raise UnsupportedPtx(f"comparison .{comparison} of integers")
        return f"{a} {operator} {b}"
    # Ordered comparisons are false for NaN, also ne; the unordered ones are their opposites.
    if comparison in _UNORDERED:
        return f"~({_compare(_UNORDERED[comparison], a, b, kind)})"
    if comparison in ("num", "nan"):
        return f"{'~' if comparison == 'num' else ''}(np.isnan({a}) | np.isnan({b}))"
    if comparison == "ne":
        return f"({a} < {b}) | ({a} > {b})"
    if comparison in _UNSIGNED:
        raise UnsupportedPtx(f"comparison .{comparison} of floating point")
    return f"{a} {_COMPARISONS[comparison]} {b}"


@_emitter("mov")
def _mov(code, m, d, a):
    kind = _bitwise_kind(m.take((*INTEGERS, "f32", "f64", "pred")))
    kind = {"f32": "b32", "f64": "b64"}.get(kind, kind)
    if isinstance(d, Vector):
        code.unpack(d.elements, kind, a)
    elif isinstance(a, Vector):
        code.pack(d, kind, a.elements)
    else:
        code.assign(d, kind, code.value(a, kind))


@_emitter("mapa")
def _mapa(code, m, d, a, rank):
    """The address of a shared variable in the CTA of a rank: see cluster.py."""
    m.take(("shared::cluster",))
    m.take(("u32",))
    window = f"{code.value(rank, 'u32')} + np.uint32(1) << np.uint32({WINDOW_SHIFT})"
    code.assign(d, "u32", f"{code.value(a, 'u32')} | ({window})")


@_emitter("cvta")
def _cvta(code, m, d, a):
    m.flag("to")
    m.take(("global", "param", "shared"))
    m.flag("cta")
    kind = m.take(("u64", "u32"))
    code.assign(d, kind, code.value(a, kind))


@_emitter("ld")
def _ld_param(code, m, d, address):
    m.take(("param",))
    kind = m.take(("b8", "b16", "b32", "b64", "u32", "s32", "u64", "s64", "f32", "f64"))
    kind = f"b{BITS[kind]}"
    if not (
        isinstance(address, Address)
        and isinstance(address.base, Symbol)
        and address.offset == 0
        and code.parameters.get(address.base.name) == BITS[kind] // 8
    ):
        raise UnsupportedPtx("ld.param of anything but a whole scalar parameter")
    code.assign(d, kind, f"E[{address.base.name!r}]")


@_emitter("cp")
def _cp_async(code, m, target, source, size, kept=None):
    """cp.async only notes what to copy: a group is copied as a whole, see memory_ops."""
    m.take(("async",))
    m.take(("shared", "shared::cta"))
    m.take(("global",))
    m.take(("ca", "cg"))
    m.flag(*CACHE_HINTS)
    if not (isinstance(size, Immediate) and size.value in (4, 8, 16)):
        raise UnsupportedPtx(f"cp.async of {size}")
    parts = code.address(target), code.address(source), code.value(kept or size, "u32")
    code.lines.append(f"warp.noted_copies.append(({size.value}, {code.guard}, {', '.join(parts)}))")


@_emitter("createpolicy")
def _createpolicy(code, m, d, fraction=None):
    """A cache policy only makes hints; zero will do."""
    m.take(("fractional",))
    m.flag(*CACHE_HINTS)
    m.take(("b64",))
    code.assign(d, "b64", code.value(Immediate(0), "b64"))


_ROUNDINGS = ("rn", "rz", "rni", "rzi", "rmi", "rpi")


@_emitter("cvt")
def _cvt(code, m, d, a, b=None):
    rounding = m.take(_ROUNDINGS, default="-")
    saturate = m.flag("sat")
    kinds = (*INTEGERS, *FLOATS)
    to, source = m.take(kinds), m.take(kinds)
    if b is not None:
        if (to, source) not in (("f16x2", "f32"), ("bf16x2", "f32")) or saturate:
            raise UnsupportedPtx("conversion of two values")
        high, low = code.value(a, "f32"), code.value(b, "f32")
        if (to, rounding) == ("f16x2", "rn"):
            code.assign(d, "b32", f"pack_f16({high}, {low})")
        else:
            halves = (_narrow(x, to[:-2], rounding) + ".view('u2')" for x in (low, high))
            code.assign(d, "b32", f"pack({', '.join(halves)})")
        return
    value = _converted(code, to, source, rounding, saturate, a)
    if to in INTEGERS:  # the destination may be wider: extended by sign
        held = d.type if isinstance(d, Register) else to
        value = f"{value}.astype('{to[0].replace('b', 'u').replace('s', 'i')}{BITS[held] // 8}')"
        to = f"{to[0]}{BITS[held]}"
    elif to == "bf16":
        to = "b16"
    code.assign(d, to, value)


def _converted(code, to, source, rounding, saturate, a) -> str:
    """Expression of ``a`` converted, as the dtype of ``to`` (bf16 as uint16)."""
    if source in INTEGERS:
        # The source may be a wider register: its low bits count.
        held = a.type if isinstance(a, Register) else source
        value = code.value(a, f"b{BITS[held]}")
        if BITS[held] != BITS[source]:
            value = f"{value}.astype('u{BITS[source] // 8}')"
        value = f"{value}.view('{DTYPES[source]}')"
        if to in INTEGERS and rounding == "-":
            return f"int_to_int({value}, '{DTYPES[to]}', {saturate})"
        if to in ("f16", "f32", "f64") and rounding == "rn" and not saturate:
            return f"{value}.astype('{DTYPES[to]}')"
    elif saturate:
        raise UnsupportedPtx("conversion with .sat from floating point")
    else:
        value = code.value(a, source)
        if to in INTEGERS and rounding in ("rni", "rzi", "rmi", "rpi"):
            return f"float_to_int({value}, '{rounding}', '{DTYPES[to]}')"
        exact = ("f16", "bf16", "f32", "f64").index
        if to in ("f32", "f64") and rounding == "-" and exact(source) < exact(to):
            widened = f"{value}.astype('{DTYPES[to]}')"
            return f"canonical({widened})" if (to, source) == ("f32", "f16") else widened
        if source == "f32" and to in ("f16", "bf16") and rounding in ("rn", "rz"):
            return _narrow(value, to, rounding)
        if (to, source, rounding) == ("f32", "f64", "rn"):
            return f"{value}.astype('f4')"
    raise UnsupportedPtx(f"conversion from .{source} to .{to} with rounding {rounding}")


def _narrow(value: str, to: str, rounding: str) -> str:
    if to == "bf16":
        return f"{'round' if rounding == 'rn' else 'truncate'}_bf16({value})"
    return f"canonical({value}.astype('f2'))" if rounding == "rn" else f"truncate_f16({value})"


@_emitter("shfl")
def _shfl(code, m, d, a, b, c, mask):
    m.take(("sync",))
    mode = m.take(("idx", "up", "down", "bfly"))
    m.take(("b32",))
    _require_full(mask)
    a, b, c = (code.value(x, "u32") for x in (a, b, c))
    code.lines.append(f"value, inside = shuffle('{mode}', {a}, {b}, {c})")
    first, second = (d.first, d.second) if isinstance(d, Pair) else (d, Sink())
    code.assign(first, "u32", "value")
    code.assign(second, "pred", "inside")


@_emitter("elect")
def _elect(code, m, d, mask):
    m.take(("sync",))
    _require_full(mask)
    if not isinstance(d, Pair):
        raise UnsupportedPtx("elect.sync without a predicate")
    code.assign(d.first, "u32", code.value(Immediate(0), "u32"))
    code.assign(d.second, "pred", "LEADER")


@_emitter("vote")
def _vote(code, m, d, p, mask):
    m.take(("sync",))
    mode, kind = m.take(("any", "all", "uni", "ballot")), m.take(("pred", "b32"))
    _require_full(mask)
    p = code.value(p, "pred")
    if mode == "ballot":
        code.assign(d, kind, f"np.full(32, np.packbits({p}, bitorder='little').view('u4')[0])")
    else:
        test = {"any": "{}.any()", "all": "{}.all()", "uni": "{0}.any() == {0}.all()"}[mode]
        code.assign(d, kind, f"np.full(32, {test.format(p)})")


@_emitter("activemask")
def _activemask(code, m, d):
    m.take(("b32",))
    code.assign(d, "b32", code.value(Immediate(-1), "b32"))


def _require_full(mask: Operand) -> None:
    if not (isinstance(mask, Immediate) and mask.value & 0xFFFFFFFF == 0xFFFFFFFF):
        raise UnsupportedPtx("a member mask that is not all lanes")
