"""tritonbench's operator gemm where tritonbench itself is not installed: the embedded runner.

    flags -> runner: for each of inputs, for each of backends, on a device -> metrics -> output

The flags, and what is printed and written, are tritonbench's own.
"""
