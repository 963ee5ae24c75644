"""The embedded runner's command line, and the inputs that it stands for."""

import pytest
import torch

from tlx_clc_plugin.bench import flags, runner
from tlx_clc_plugin.bench.inputs import LAYOUTS, Shape, make, parse_shapes


def resolved(*argv):
    return flags.resolve(flags.make_parser().parse_args([*argv, "--device", "emulated"]))


def refused(capsys, *argv):
    """Standard error of a command line that is refused before anything runs."""
    with pytest.raises(SystemExit) as exit_:
        runner.run(list(argv), "reason")
    assert exit_.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "runner:" not in captured.err
    return captured.err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--op", "addmm"], "'addmm'"),
        (["--only", "aten_matmul,cutlass"], "'cutlass' is not one of aten_matmul"),
        (["--skip", "tlx"], "'tlx' is not one of aten_matmul"),
        (["--baseline", "cublas"], "'cublas'"),
        (["--only", "tlx_clc", "--skip", "tlx_clc"], "leave no backend"),
        (["--metrics", "accuracy,speed"], "'speed' is not one of accuracy"),
        (["--shapes", "128x128x128,64x64"], "'64x64' is not MxNxK"),
        (["--shapes", "128x0x128"], "'128x0x128' is not MxNxK"),
        (["--shapes", "128x128x128;64x64x64"], "'128x128x128;64x64x64' is not MxNxK"),
        (["--shapes", ""], "'' is not MxNxK"),
        (["--m", "0"], "'0' is not a positive integer"),
        (["--m", "64", "--k", "64"], "--m, --n and --k belong together"),
        (["--m", "1", "--n", "1", "--k", "1", "--shapes", "1x1x1"], "exclude each other"),
        (["--bias", "7", "--shapes", "8x7x8,8x9x8"], "--bias 7 is not N of the input (8, 9, 8)"),
        (["--bias", "7"], "--bias 7 is not N of the input"),
        (["--bias", "none"], "'none' is not a positive integer"),
        (["--layout", "ab"], "'ab'"),
        (["--precision", "fp32"], "'fp32'"),
        (["--input-id", "9"], "--input-id 9: there are"),
        (["--input-id", "0,-1"], "'0,-1' is not a list of input numbers"),
        (["--input-id", "0,1", "--num-inputs", "1"], "single --input-id"),
        (["--num-inputs", "0"], "'0' is not a positive integer"),
        (["--sms", "0"], "'0' is not a positive integer"),
        (["--policy", "busy"], "'busy'"),
        (["--seed", "x"], "'x'"),
        (["--device", "mtia"], "'mtia'"),
        (["--cudagraph"], "--cudagraph"),
        (["--output", "no/such/folder/x.csv"], "'no/such/folder/x.csv' can't be written"),
        (["--output-json", "."], "'.' can't be written"),
    ],
)
def test_bad_command_lines_are_named(capsys, argv, words):
    assert words in refused(capsys, *argv)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_needs_a_gpu(capsys):
    assert "--device cuda: there is no GPU" in refused(capsys, "--device", "cuda")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_one_is_emulated():
    for argv in ([], ["--device", "cpu"]):
        args = flags.make_parser().parse_args([*argv, "--sms", "7", "--policy", "lazy"])
        assert "emulated sm_100a, 7 SMs, policy lazy" in str(flags.resolve(args).device)


def test_baseline_comes_first_and_is_added_to_be_compared_with():
    def names(*argv):
        return [backend.name for backend in resolved(*argv).backends]

    every = ["aten_matmul", "triton_tutorial_matmul", "tlx_persistent", "tlx_clc", "tlx_dynamic"]
    assert names() == every
    assert names("--only", "tlx_clc,aten_matmul,tlx_clc") == ["aten_matmul", "tlx_clc"]
    assert names("--only", "tlx_clc") == ["tlx_clc"]
    assert names("--only", "tlx_clc", "--metrics", "speedup") == ["aten_matmul", "tlx_clc"]
    assert names("--skip", "aten_matmul,tlx_clc") == [*every[1:3], "tlx_dynamic"]
    assert names("--only", "aten_matmul,tlx_clc", "--baseline", "tlx_clc") == [
        "tlx_clc",
        "aten_matmul",
    ]


def test_inputs_are_chosen_as_in_tritonbench():
    def of(*argv):
        return resolved("--shapes", "1x2x3,4X5X6,7_8_9", *argv).shapes

    first, second, third = Shape(1, 2, 3), Shape(4, 5, 6), Shape(7, 8, 9)
    assert of() == [first, second, third]
    assert of("--input-id", "1") == [second, third]
    assert of("--num-inputs", "2") == [first, second]
    assert of("--input-id", "1", "--num-inputs", "1") == [second]
    assert of("--input-id", "1", "--num-inputs", "9") == [second, third]
    assert of("--input-id", "2,0") == [third, first]
    assert resolved("--m", "4", "--n", "5", "--k", "6").shapes == [second]
    assert parse_shapes(" 4x5x6 ") == [second]


def test_bias_may_name_its_length():
    assert not resolved("--shapes", "8x7x8").bias
    assert resolved("--shapes", "8x7x8", "--bias").bias
    assert resolved("--shapes", "8x7x8", "--bias", "7").bias


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_inputs_are_made_as_in_tritonbench(layout, precision):
    options = {"precision": precision, "layout": layout, "device": "cpu"}
    M, N, K = shape = Shape(300, 200, 400)
    a, b, bias = make(shape, bias=True, seed=1, **options)
    assert (a.shape, b.shape, bias.shape) == ((M, K), (K, N), (N,))
    # tritonbench 13ecc78 prints these for tn, nt, tt and nn.
    assert a.stride() == {"t": (K, 1), "n": (1, M)}[layout[0]]
    assert b.stride() == {"t": (N, 1), "n": (1, K)}[layout[1]]
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    assert {x.dtype for x in (a, b, bias)} == {dtype}
    for x, center, spread in ((a * K, 1, 1), (b * K, 1, 1), (bias, 0, 1)):
        # Five standard errors.
        assert x.double().mean().item() == pytest.approx(center, abs=5 * x.numel() ** -0.5)
        assert x.double().std().item() == pytest.approx(spread, abs=5 * (2 * x.numel()) ** -0.5)
    again = make(shape, bias=True, seed=1, **options)
    other = make(shape, bias=False, seed=2, **options)
    assert all(torch.equal(x, y) for x, y in zip((a, b, bias), again, strict=True))
    assert not torch.equal(a, other[0]) and other[2] is None
