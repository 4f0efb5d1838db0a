"""Load this folder as the package `traced_program` and the worker's as `probe_worker`, and trace one request.

Usage: ``python __main__.py REQUEST RESULT``, both files of JSON.
"""

import importlib.util
import json
import os
import sys


def _load(name: str, folder: str) -> None:
    """Make a folder importable under a name of its own; its modules have common ones."""
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def main(request_path: str, result_path: str) -> int:
    """Trace and write what was found; 0 whatever it is."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != folder]
    with open(request_path, encoding="utf-8") as file:
        request = json.load(file)
    _load("probe_worker", request["worker"])
    _load("traced_program", folder)
    result = importlib.import_module("traced_program.run").run(request)
    with open(result_path, "w", encoding="utf-8") as file:
        json.dump(result, file)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
