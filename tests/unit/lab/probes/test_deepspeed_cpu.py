"""DeepSpeed's older releases beside a torch and a machine that they do not know."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import compatcheck

OLD = {
    "__init__.py": """
import deepspeed.comm.ccl, deepspeed.elasticity, deepspeed.runtime.engine
init_distributed = deepspeed.comm.ccl.join
""",
    "ops/__init__.py": "__compatible_ops__ = {}\n",
    "elasticity/__init__.py": "from .elastic_agent import DSElasticAgent\n",
    "elasticity/elastic_agent.py": "raise ImportError('torch has no such function')\n",
    "comm/__init__.py": "",
    "comm/ccl.py": """
import intel_extension_for_pytorch, oneccl_bindings_for_pytorch
def build_ccl_op():
    raise ValueError("no CCL_ROOT")
def join(backend):
    build_ccl_op()
""",
    "runtime/__init__.py": "",
    "runtime/engine.py": """
def split_half_float_double_sparse(tensors):
    assert all(one.type() == "torch.cpu.FloatTensor" for one in tensors)
""",
}
"""What 0.12.6 does when it is imported, in short."""
USE = """
from compatcheck.lab.probes.worker.deepspeed_cpu import prepare
class Gradient:
    def type(self):
        return "torch.BFloat16Tensor"
gradients = [Gradient(), Gradient()]
print(prepare().runtime.engine.split_half_float_double_sparse(gradients) == [("torch.BFloat16Tensor", gradients)])
"""


def test_an_old_release_works_without_what_it_asks_for_and_does_not_need(tmp_path: Path) -> None:
    for name, text in OLD.items():
        path = tmp_path / "deepspeed" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    environ = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(compatcheck.__file__).parents[1])])}
    completed = subprocess.run([sys.executable, "-c", USE], env=environ, capture_output=True, text=True, check=False)
    assert (completed.stdout, completed.returncode) == ("True\n", 0), completed.stderr
