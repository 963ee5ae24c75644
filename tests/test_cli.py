"""The command line: what reaches the sub-commands, and what is refused."""

import subprocess
import sys

import pytest

from tlx_clc_plugin import __version__, cli, offline, tritonbench
from tlx_clc_plugin.config import GemmConfig


def refused(capsys, *argv: str) -> str:
    """Standard error of a command line that argparse refuses."""
    with pytest.raises(SystemExit) as exit_:
        cli.main(list(argv))
    assert exit_.value.code == 2
    return capsys.readouterr().err


def test_help_names_the_sub_commands_and_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['tlx-clc', '--help']\n"
        "try:\n    import tlx_clc_plugin.__main__\n"
        "finally:\n    print(sorted({'torch', 'triton', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
    assert all(f"\n    {name} " in done.stdout for name in ("doctor", "compile", "bench"))
    assert done.stdout.splitlines()[-1] == "[]"


def test_version(capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"tlx_clc_plugin {__version__}\n"


def test_bench_is_tritonbench_under_another_name(capsys):
    for argv in (["--list-metrics"], ["--op", "gemm", "--list-backends"]):
        expected = tritonbench.main(argv), capsys.readouterr()
        assert (cli.main(["bench", *argv]), capsys.readouterr()) == expected
        assert expected[0] == 0 and expected[1].out


def test_compile_passes_its_flags_on(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(offline, "run", lambda variants, output: asked.append((variants, output)))
    flags = "--schedule clc --layout tt,nn,tt --precision bf16 --bias --config "
    flags += "block_size_n=128,num_clc_stages=3"
    cli.main(["compile", *flags.split(), "--output", str(tmp_path / "new" / "folder")])
    config = GemmConfig(block_size_n=128, num_clc_stages=3)
    made = [
        offline.Variant("blackwell", "clc", config, layout, "bf16", True) for layout in ("tt", "nn")
    ]
    assert asked == [(made, tmp_path / "new" / "folder")] and asked[0][1].is_dir()
    asked.clear()
    cli.main(["compile", "--shape", "300x520x200"])
    chosen = offline.variants(
        "blackwell", ("persistent", "clc"), ("tn",), ("fp16",), bias=False, shape=(300, 520, 200)
    )
    assert asked == [(chosen, None)] and chosen[0].config != GemmConfig()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "COMMAND"),
        (["benchmark"], "'benchmark'"),
        (["doctor", "--jason"], "--jason"),
        (
            ["compile", "--schedule", "clc,stream"],
            "'stream' is not one of persistent, clc, dynamic",
        ),
        (["compile", "--layout", "tt,xy"], "'xy' is not one of tt, tn, nt, nn"),
        (["compile", "--precision", "fp32"], "'fp32' is not one of fp16, bf16"),
        (["compile", "--config", "block_n=1"], "'block_n' is not one of block_size_k"),
        (["compile", "--config", "block_size_n=big"], "'block_size_n=big' gives no integer"),
        (["compile", "--config", "block_size_n"], "'block_size_n' gives no integer"),
        (["compile", "--shape", "128x128"], "'128x128' is not MxNxK"),
        (["compile", "--shape", "128x0x16"], "must be positive, got 128x0x16"),
        (["compile", "--shape", "1x1x1", "--config", "block_size_n=64"], "not allowed with"),
    ],
)
def test_bad_arguments_are_named(capsys, argv, words):
    assert words in refused(capsys, *argv)


def test_an_invalid_config_is_refused_before_compiling(capsys):
    assert cli.main(["compile", "--config", "num_tmem_buffers=3"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "3 * 256 = 768" in captured.err


def test_an_output_that_is_no_directory_is_refused_before_compiling(capsys, tmp_path):
    (tmp_path / "file").touch()
    assert cli.main(["compile", "--output", str(tmp_path / "file")]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and str(tmp_path / "file") in captured.err
