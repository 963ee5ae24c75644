"""Runs the backends, checks what they give, and reports."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from .backends import BACKENDS, BASELINE, Backend
from .flags import Request, make_parser, resolve
from .inputs import Shape, make
from .metrics import METRICS, Measurement, of_launches
from .output import Results


def run(argv: list[str], reason: str) -> int:
    """Carry out the command line ``argv``; returns the exit status.

    ``reason``: why the embedded runner runs and not tritonbench. 0: all backends gave accurate
    results. 1: not so; each failure has a line on stderr, the others' results are printed and
    written all the same. 2, by SystemExit: the command line makes no sense. 130: interrupted, with
    the results so far.
    """
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.list_backends or args.list_metrics:
        print("\n".join(_listing(backends=args.list_backends, metrics=args.list_metrics)))
        return 0
    try:
        request = resolve(args)
    except ValueError as error:
        parser.error(str(error))

    print(f"runner: embedded ({reason})  device: {request.device}", file=sys.stderr)
    skipped = [
        f"{backend.name}: not run, {why}"
        for backend in request.backends
        if (why := request.device.unavailable(backend))
    ]
    results, interrupted = measure_all(request)
    failures = [
        f"gemm {name} {shape}: {measurement.failure}"
        for shape, measured in results.rows
        for name, measurement in measured.items()
        if measurement.failure
    ]
    failures += _report(results, csv=args.csv, csv_file=args.output, json_file=args.output_json)
    for line in skipped + failures:
        print(f"tritonbench: {line}", file=sys.stderr)
    # What the device can't run is a failure where it was asked for.
    return 130 if interrupted else int(bool(failures or (args.only and skipped)))


def measure_all(request: Request) -> tuple[Results, bool]:
    """All measurements that the device allows, and whether Ctrl-C cut them short."""
    from tqdm import tqdm

    backends = [b for b in request.backends if not request.device.unavailable(b)]
    results = Results([b.name for b in backends], request.baseline, request.metrics)
    # Shown on terminals only, and only if it takes its time.
    with tqdm(
        total=len(request.shapes) * len(backends), delay=2, leave=False, disable=None
    ) as progress:
        try:
            for shape in request.shapes:
                measured = {}
                results.rows.append((shape, measured))
                for backend in backends:
                    progress.set_postfix_str(f"{backend.name} {shape}")
                    measured[backend.name] = measure(request, backend, shape)
                    progress.update()
                if request.baseline in measured:
                    _compare(measured, request.baseline)
        except KeyboardInterrupt:
            for backend in backends:
                measured.setdefault(backend.name, Measurement(error="interrupted"))
            return results, True
    return results, False


def measure(request: Request, backend: Backend, shape: Shape) -> Measurement:
    """Run one backend on one input, check its output, and time it if that is right."""
    from ..accuracy import check
    from .poison import NewMemoryIsNan

    device = request.device
    # Made anew each time: no backend can spoil the inputs of the next.
    try:
        inputs = make(
            shape,
            precision=request.precision,
            layout=request.layout,
            bias=request.bias,
            device=device.torch_device,
            seed=request.seed,
        )
        a, b, bias = (None if x is None else x.clone() for x in inputs)
        with device.active() as launches:
            function = backend.prepare(*inputs)
            with NewMemoryIsNan():
                output = function()
            tile = backend.tile(*inputs) if launches and backend.tile else None
            values = of_launches(launches, tile)
            verdict = check(output, a, b, bias)
            values |= {"accuracy": float(verdict.ok), "error": verdict.error}
            latency = device.latency(function) if verdict.ok else None
            if latency is not None:
                tflops = _flops(shape, request.bias) / latency / 1e9
                values |= {"latency": latency, "tflops": tflops}
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return Measurement(error=f"{type(error).__name__}: {lines[0]}")
    return Measurement(values, inaccurate=verdict.reason)


def _flops(shape: Shape, bias: bool) -> int:
    """Operations as the harness counts them: two a product, two an output for a bias."""
    return 2 * shape.M * shape.N * (shape.K + bias)


def _compare(measured: dict[str, Measurement], baseline: str) -> None:
    reference = measured[baseline].values.get("latency")
    for measurement in measured.values():
        latency = measurement.values.get("latency")
        if reference is not None and latency is not None:
            measurement.values["speedup"] = reference / latency


def _report(
    results: Results, *, csv: bool, csv_file: Path | None, json_file: Path | None
) -> Iterator[str]:
    """Print the results, then write the files; yields what could not be written, in words."""
    if csv:
        results.write_csv(sys.stdout)
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print(results.to_text(width))
    for path, write in ((csv_file, results.write_csv), (json_file, results.write_json)):
        if path is not None:
            try:
                with path.open("w", newline="") as file:
                    write(file)
            except OSError as error:
                yield f"{path}: not written, {error.strerror}"


def _listing(*, backends: bool, metrics: bool) -> Iterator[str]:
    yield "Operator: gemm"
    if metrics:
        yield "  Metrics:"
        for name, description in METRICS.items():
            yield f"    {name:<40}{description}"
    if backends:
        yield "  Backends:"
        for name, backend in BACKENDS.items():
            label = f"{name} [baseline]" if name == BASELINE else name
            yield f"    {label:<40}{backend.description}"
