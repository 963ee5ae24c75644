pytest_plugins = ["tlx_clc_plugin.guard.pytest_plugin"]
