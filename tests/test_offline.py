"""Offline compilation: figures against ptxas's own words and hand-worked counts, faults named."""

import random
import re
import subprocess
from types import SimpleNamespace

import pytest
import triton
import triton.language as tl
from triton import knobs
from triton.compiler import ASTSource

from tlx_clc_plugin import kernels, offline
from tlx_clc_plugin.config import ARCH_SCHEDULES, GemmConfig
from tlx_clc_plugin.offline import Variant


@pytest.fixture(scope="module")
def compiled():
    """All default kernels, by architecture and schedule."""
    return {
        (arch, schedule): offline.compile_variant(
            Variant(arch, schedule, GemmConfig(), "tn", "fp16", False)
        )[0]
        for arch, schedules in ARCH_SCHEDULES.items()
        for schedule in schedules
    }


def assemble(ptx: str, path) -> tuple[bytes, str]:
    """The cubin of ``ptx`` and what ptxas says of it."""
    source, cubin = path / "kernel.ptx", path / "kernel.cubin"
    source.write_text(ptx)
    arch = re.search(r"\.target (\w+)", ptx)[1]
    ptxas = knobs.nvidia.ptxas if arch == "sm_90a" else knobs.nvidia.ptxas_blackwell
    flags = ["--regAllocOptLevel=2"] * (arch == "sm_100a")
    command = [ptxas.path, "-v", *flags, f"--gpu-name={arch}", str(source), "-o", str(cubin)]
    log = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    return cubin.read_bytes(), log


def test_registers_and_spills_are_what_ptxas_reports(compiled, tmp_path):
    for kernel in compiled.values():
        _, log = assemble(kernel.asm["ptx"], tmp_path)
        statistics = offline.examine(kernel)
        assert f"Used {statistics.registers} registers" in log
        assert "0 bytes spill stores, 0 bytes spill loads" in log
        assert statistics.spills == 0


def test_a_spill_is_found_and_is_a_fault(tmp_path):
    # 32 x 512 values, each needed twice, in the 255 registers of 32 threads.
    @triton.jit
    def too_wide(x, y):
        rows, columns = tl.arange(0, 32)[:, None], tl.arange(0, 512)[None, :]
        values = tl.load(x + rows * 512 + columns)
        tl.store(y + rows * 512 + columns, values / tl.sum(values))

    source = ASTSource(too_wide, {"x": "*fp32", "y": "*fp32"})
    kernel = triton.compile(source, target=kernels.TARGETS["blackwell"], options={"num_warps": 1})
    _, log = assemble(kernel.asm["ptx"], tmp_path)
    stored, loaded = map(int, re.search(r"(\d+) bytes spill stores, (\d+) bytes", log).groups())
    assert stored > 0 and loaded > 0, "the test's own premise"
    statistics = offline.examine(kernel)
    assert f"Used {statistics.registers} registers" in log
    # An instruction moves 4 to 16 bytes.
    assert (stored + loaded) / 16 <= statistics.spills <= (stored + loaded) / 4
    assert f"registers spill: {statistics.spills} instructions on local memory" in offline.faults(
        "persistent", statistics
    )


@pytest.mark.parametrize("seed", range(4))
def test_counts_are_those_of_the_algorithm(seed):
    rng = random.Random(seed)
    schedule, layout = rng.choice(("persistent", "clc")), rng.choice(offline.LAYOUTS)
    config = GemmConfig(
        block_size_n=rng.choice((64, 128, 256)),
        block_size_k=rng.choice((32, 64, 128)),
        num_smem_buffers=2,
        num_tmem_buffers=rng.choice((1, 2)),
        num_clc_stages=rng.choice((1, 2, 3)),
        epilogue_subtile=rng.choice((4, 8)),
    )
    precision, bias = rng.choice(("fp16", "bf16")), rng.random() < 0.5
    kernel, seconds = offline.compile_variant(
        Variant("blackwell", schedule, config, layout, precision, bias)
    )
    s = offline.examine(kernel)
    # A tcgen05.mma of 16-bit operands has K = 16 (PTX ISA, tcgen05.mma shapes).
    assert s.ptx["tcgen05.mma"] == s.sass["tcgen05.mma"] == config.block_size_k // 16
    # A TMA box is at most one 128-byte swizzle row wide: 64 elements of the contiguous dimension.
    a_width = config.block_size_k if layout[0] == "t" else config.block_size_m
    b_width = config.block_size_n if layout[1] == "t" else config.block_size_k
    loads = sum(-(-width // 64) for width in (a_width, b_width))
    assert s.ptx["TMA load"] == s.sass["TMA load"] == loads
    stores = config.epilogue_subtile * -(-config.subtile_n // 64)
    assert s.ptx["TMA store"] == s.sass["TMA store"] == stores
    # The epilogue asks for work; each of the three tasks reads the answer.
    clc = schedule == "clc"
    assert s.ptx["try_cancel"] == s.sass["try_cancel"] == int(clc)
    assert s.ptx["query_cancel"] == 3 * clc and s.sass["query_cancel"] is None
    # One mbarrier.init for each barrier; all the rest come on top.
    barriers = 2 * (config.num_smem_buffers + config.num_tmem_buffers)
    barriers += 2 * config.num_clc_stages * clc
    inits = offline.ptx_opcodes(kernel.asm["ptx"])["mbarrier.init.shared::cta.b64"]
    assert inits == barriers < s.ptx["mbarrier"] <= s.sass["mbarrier"]
    assert (s.smem, s.tmem) == (config.smem_bytes(schedule, bias=bias), config.tmem_columns())
    assert offline.faults(schedule, s) == [] and seconds > 0


@pytest.mark.parametrize(
    ("arch", "kind"), [(arch, kind) for arch, kinds in offline.KINDS.items() for kind in kinds]
)
def test_each_missing_instruction_is_a_fault(compiled, arch, kind):
    schedule = {"blackwell": "clc", "hopper": "dynamic"}[arch]
    kernel = compiled[arch, schedule]
    for stage, language, pattern in zip(
        ("ptx", "sass"), ("PTX", "SASS"), offline.KINDS[arch][kind], strict=True
    ):
        if pattern is None:
            continue
        asm = {name: kernel.asm[name] for name in ("ptx", "cubin", "sass")}
        asm[stage] = "\n".join(
            line for line in asm[stage].splitlines() if not re.search(rf"[\s]{pattern}", line)
        )
        statistics = offline.examine(SimpleNamespace(asm=asm, metadata=kernel.metadata))
        assert offline.faults(schedule, statistics) == [f"no {kind} in its {language}"]


def test_a_static_kernel_must_not_ask_for_work(compiled):
    found = offline.faults("persistent", offline.examine(compiled["blackwell", "clc"]))
    assert found == [
        "1 try_cancel in its PTX, but its schedule is persistent",
        "3 query_cancel in its PTX, but its schedule is persistent",
        "1 try_cancel in its SASS, but its schedule is persistent",
    ]
    found = offline.faults("persistent", offline.examine(compiled["hopper", "dynamic"]))
    assert [words.partition(" ")[2] for words in found] == [
        "atomic add in its PTX, but its schedule is persistent",
        "atomic add in its SASS, but its schedule is persistent",
    ]
    for (_, schedule), kernel in compiled.items():
        assert offline.faults(schedule, offline.examine(kernel)) == []


def test_opcodes_are_found_behind_guards_and_in_inline_assembly():
    ptx = """
        // mbarrier.init.in.a.comment
    $L__BB0_1:
        @!%p1 bra $L__BB0_1;
        { .reg .pred P1; @P1 mbarrier.try_wait.parity.b64 P1, [%r1], %r2; }
        ret;
    """
    found = {"bra": 1, "mbarrier.try_wait.parity.b64": 1, "ret": 1}
    assert offline.ptx_opcodes(ptx) == found
    sass = "Function:f\n--:-:-:-:1\t@!UP0 UTMALDG.2D [UR4], [UR6];\n--:-:-:-:5\tEXIT;\n"
    assert offline.sass_opcodes(sass) == {"UTMALDG.2D": 1, "EXIT": 1}


def test_run_keeps_the_stages_and_prints_a_row_for_each(tmp_path, capsys):
    config = GemmConfig(block_size_n=64, epilogue_subtile=1)
    for arch, schedules in ARCH_SCHEDULES.items():
        chosen = offline.variants(arch, schedules, ("nt",), ("bf16",), bias=True, config=config)
        assert offline.run(chosen, output=tmp_path) == 0
    out = capsys.readouterr().out
    for arch, schedule in ((a, s) for a, schedules in ARCH_SCHEDULES.items() for s in schedules):
        name = f"{arch}_{schedule}_nt_bf16_bias"
        target, multiply = {
            "blackwell": ("sm_100a", "UTCHMMA"),
            "hopper": ("sm_90a", "HGMMA"),
        }[arch]
        assert len(re.findall(rf"^{name} ", out, re.MULTILINE)) == 1
        files = {path.suffix: path for path in tmp_path.glob(f"{name}.*")}
        assert set(files) == {".ttgir", ".ptx", ".cubin", ".sass"}
        assert f".target {target}" in files[".ptx"].read_text()
        assert "ttg.warp_specialize" in files[".ttgir"].read_text()
        assert files[".cubin"].read_bytes().startswith(b"\x7fELF")
        assert multiply in files[".sass"].read_text()


def test_run_fails_for_a_kernel_that_does_not_do_its_schedules_work(monkeypatch, capsys):
    static = kernels.KERNELS["blackwell", "persistent"]
    monkeypatch.setitem(kernels.KERNELS, ("blackwell", "clc"), static)
    chosen = offline.variants("blackwell", ("clc",), ("tn",), ("fp16",), bias=False)
    assert offline.run(chosen) == 1
    captured = capsys.readouterr()
    assert "clc_tn_fp16" in captured.out
    assert captured.err.splitlines() == [
        "tlx-clc compile: blackwell_clc_tn_fp16: no try_cancel in its PTX",
        "tlx-clc compile: blackwell_clc_tn_fp16: no query_cancel in its PTX",
        "tlx-clc compile: blackwell_clc_tn_fp16: no try_cancel in its SASS",
    ]


def test_the_heuristic_or_a_given_config_is_compiled():
    kernel = "blackwell", ("clc",), ("tn",), ("fp16",)
    (small,) = offline.variants(*kernel, bias=False, shape=(1, 8, 16))
    (large,) = offline.variants(*kernel, bias=False, shape=(8192,) * 3)
    assert small.config.block_size_n < large.config.block_size_n
    with pytest.raises(ValueError, match="block_size_n must be 32, 64, 128 or 256"):
        offline.variants(*kernel, bias=False, config=GemmConfig(block_size_n=96))
    with pytest.raises(ValueError, match="one of persistent, clc on Blackwell, got 'dynamic'"):
        offline.variants("blackwell", ("dynamic",), ("tn",), ("fp16",), bias=False)
