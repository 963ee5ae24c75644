"""The PTX parser."""

from __future__ import annotations

import pytest
from ptx_support import kernel

from tlx_clc_plugin.emulator import UnsupportedPtx
from tlx_clc_plugin.emulator.parse import parse
from tlx_clc_plugin.emulator.ptx import (
    Address,
    Immediate,
    Label,
    Negated,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)


def instructions(body: str, **options):
    return parse(kernel(body, **options)).instructions


def test_operand_forms():
    body = """
    @!%p1 st.shared.v2.b32 [%r1+-8], {%r2, _};
    ld.param.b64 %d1, [p0];
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem+16], 0x10;
    elect.sync %r3|%p2, -1;
    cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d1, {%r1, %r2}], [%r3];
    setp.lt.and.f32 %p3, %r1, 0f3F800000, !%p1;
    mov.u32 %r4, %tid.x;
    createpolicy.fractional.L2::evict_first.b64 %d2, 0.5;
    """
    store, param, arrive, elect, copy, setp, mov, policy, _ = instructions(body, params=["u64"])
    r = {i: Register(f"%r{i}", "b32") for i in range(5)}
    assert store.guard == Negated(Register("%p1", "pred"))
    assert store.opcode == "st.shared.v2.b32"
    assert store.operands == (Address(r[1], -8), Vector((r[2], Sink())))
    assert param.operands[1] == Address(Symbol("p0"))
    assert arrive.operands == (Sink(), Address(Symbol("smem"), 16), Immediate(16))
    assert elect.operands == (Pair(r[3], Register("%p2", "pred")), Immediate(-1))
    assert copy.operands[0] == Address(Register("%d1", "b64"), 0, Vector((r[1], r[2])))
    assert setp.operands[2:] == (Immediate(1.0), Negated(Register("%p1", "pred")))
    assert mov.operands == (r[4], Special("%tid.x"))
    assert policy.operands[1] == Immediate(0.5)


def test_blocks_declare_registers_and_labels_anew():
    body = """
    mov.b32 %r1, 0;
    { .reg .pred done; .reg .b64 %r1;
      loop: setp.eq.b32 done, %r2, 0;
      @!done bra.uni loop;
      mov.b64 %r1, 7; }
    { .reg .pred done;
      loop: setp.eq.b32 done, %r3, 0;
      @!done bra loop;
      bra end; }
    end: mov.b32 %r1, 1;
    """
    code = instructions(body)
    (first,) = code[2].operands
    (second,) = code[5].operands
    assert (first.name, first.targets) == ("loop", (1,))
    assert (second.name, second.targets) == ("loop", (4,))
    assert code[6].operands[0].targets == (7,)  # a label of the block around
    assert code[1].operands[0] != code[4].operands[0]  # two registers named done
    assert code[2].guard.register == code[1].operands[0]
    inner, outer = code[3].operands[0], code[0].operands[0]
    assert inner.type == "b64" and outer.type == "b32" and inner.name != outer.name
    assert code[7].operands[0] == outer


def test_branch_tables():
    code = instructions("table: .branchtargets\n a,\n b;\n brx.idx %r1, table;\n a: ret;\n b: ret;")
    assert code[0].operands[1] == Label("table", (1, 2))


def test_source_lines_with_inlining():
    body = """
    .loc 1 40 0
    mov.b32 %r1, 0;
    .loc 1 30 5
    .loc 2 7 9, function_name $info, inlined_at 1 30 5 // x
    .loc 2 3 1, function_name $info, inlined_at 2 7 9
    mov.b32 %r2, 0;
    .loc 1 0 5
    mov.b32 %r3, 0;
    """
    text = kernel(body) + '.file 1 "/a/outer.py"\n.file 2 "/a/inner.py"\n'
    first, second, third, _ = parse(text).instructions
    assert str(first.source) == "outer.py:40"
    chain = "inner.py:3 called from inner.py:7 called from outer.py:30"
    assert str(second.source) == chain
    assert third.source == second.source  # line 0 means none
    lines = text.splitlines()
    assert "%r2" in lines[second.line - 1]
    assert str(second) == f"PTX line {second.line}: mov.b32 %r2, 0 ({chain})"


def test_parameters_and_directives():
    text = kernel("", params=["u32", "map", "u64"], threads=96)
    text = text.replace("p2)", "p2, .param .u64 .ptr .global .align 1 p3)")
    text = text.replace(".reqntid 96", ".reqntid 96\n.maxnreg 64 // registers")
    parsed = parse(text)
    assert [(p.name, p.nbytes, p.offset) for p in parsed.parameters] == [
        ("p0", 4, 0),
        ("p1", 128, 64),
        ("p2", 8, 192),
        ("p3", 8, 200),
    ]
    assert parsed.threads == 96 and parsed.shared == ("smem",)


def test_entries_are_chosen_by_name():
    two = kernel("") + kernel("").replace(" k(", " other(")
    assert parse(two, "other").name == "other"
    with pytest.raises(ValueError, match="'k', 'other'"):
        parse(two)
    with pytest.raises(ValueError, match="no entry 'x'"):
        parse(two, "x")


@pytest.mark.parametrize(
    "body,message",
    [
        ("mov.b32 %r1, %r200;", "special|%r200"),
        ("add.s32 %r1, %r1, #4;", "unknown operand '#4'"),
        ("bra nowhere;", "undeclared label nowhere"),
        (".local .b8 x[4];", "not an instruction"),
        ("ld.shared.b32 %r1, [%r1;", "expected"),
        ("@%nope ret;", "undeclared guard %nope"),
        ("a: ret; a: ret;", "declared twice"),
        (".reg .b7 %x;", "b7"),
    ],
)
def test_errors_name_the_line(body, message):
    from tlx_clc_plugin.emulator.decode import Program

    with pytest.raises(UnsupportedPtx, match=message) as caught:
        Program(parse(kernel(body)))
    line = 1 + kernel(body).split(body)[0].count("\n")
    assert f"line {line}" in str(caught.value)


def test_unknown_directives_and_clusters():
    with pytest.raises(UnsupportedPtx, match="PTX line .*global"):
        parse(".global .b8 text[4];" + kernel(""))
    assert parse(kernel("")).cluster == (1, 1, 1)
    clustered = kernel("").replace(".reqntid 32", ".reqntid 32\n.reqnctapercluster 2, 4")
    assert parse(clustered).cluster == (2, 4, 1)
    with pytest.raises(UnsupportedPtx, match="maxntid 64"):
        parse(kernel("").replace(".reqntid 32", ".reqntid 32\n.maxntid 64"))
    with pytest.raises(UnsupportedPtx, match="whole warps"):
        parse(kernel("").replace(".reqntid 32", ".reqntid 48"))
