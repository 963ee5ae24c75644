"""The scripts of ci/ that are Python, as modules."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[1] / "ci"


def load(name: str) -> ModuleType:
    """The script ``ci/name``, newly loaded and not run."""
    loader = SourceFileLoader(name.replace("-", "_"), str(FOLDER / name))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module
