"""Files of Python whose names are a configuration, as mmengine 0.10.7 (``lazy_import``) reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.core.errors import InputError
from compatcheck.frameworks.launch.values import Argument
from compatcheck.frameworks.python_script.settings import _is_large, read_settings

TEXT = """
import torch
from torch.optim import AdamW
from peft import LoraConfig as Adapters
from transformers import AutoModelForCausalLM

name = "org/model"
side, wide = 336, True
size = int(2048 - (336 / 14) ** 2)
accumulate = 16
accumulate *= 2
kind = AdamW
base = dict(r=8, bias="none")
model = dict(
    llm=dict(type=AutoModelForCausalLM.from_pretrained, name=name, torch_dtype=torch.float16),
    lora=dict(type=Adapters, **base),
    size=size,
)
packed = False
sampler = "sequence" if accumulate > 32 and not packed else "plain"
hooks = [dict(type="a")]
if packed:
    hooks += [dict(type="b")]
    name = "other"
else:
    hooks = hooks + ["c"]
optimizer = {"type": kind, "betas": (0.9, 0.999)}
"""


def leaf(held: object, *keys: str) -> object:
    for key in keys:
        assert isinstance(held, dict)
        held = held[key]
    assert isinstance(held, Argument)
    assert held.why is None
    return held.value


def plain(held: object) -> object:
    if isinstance(held, dict):
        return {key: plain(one) for key, one in held.items()}
    return leaf(held)


def test_names_come_to_what_the_statements_make_of_them() -> None:
    found = read_settings(TEXT, "c.py")
    assert not {"torch", "AdamW", "Adapters"} & found.keys()
    assert leaf(found, "model", "llm", "type") == "transformers.AutoModelForCausalLM.from_pretrained"
    assert leaf(found, "model", "llm", "torch_dtype") == "torch.float16"
    assert leaf(found, "model", "llm", "name") == "org/model"
    assert leaf(found, "model", "lora", "type") == "peft.LoraConfig"
    assert (leaf(found, "model", "lora", "r"), leaf(found, "model", "size")) == (8, 1472)
    assert (leaf(found, "accumulate"), leaf(found, "sampler")) == (32, "plain")
    assert leaf(found, "optimizer", "type") == "torch.optim.AdamW"
    assert leaf(found, "optimizer", "betas") == [0.9, 0.999]
    assert len(leaf(found, "hooks")) == 2  # type: ignore[arg-type]


def test_a_value_has_the_line_where_it_is_written() -> None:
    found = read_settings("size = 3\nmodel = dict(\n    size=size,\n    other=4,\n)\n", "c.py")
    assert isinstance(found["model"], dict)
    assert [one.line for one in found["model"].values() if isinstance(one, Argument)] == [1, 4]


@pytest.mark.parametrize(
    "text",
    [
        "import os\nname = os.environ['X']\n",
        "name = make()\n",
        "name = 1\nfor name in (1, 2):\n    pass\n",
        "name = {}\nname['a'][0] = 1\n",
        "name = dict(a=1)\nname.update(make())\n",
        "name = 1\nif unknown:\n    name = 2\n",
        "name = 1\nfrom .base import *\n",
        "name = 1 / 0\n",
        "name = 9 ** 9 ** 9\n",
        "def name():\n    pass\n",
        "name = [other for other in ()]\n",
    ],
)
def test_what_is_not_followed_is_not_known(text: str) -> None:
    held = read_settings(text, "c.py")["name"]
    assert isinstance(held, Argument)
    assert held.why is not None


def test_one_value_that_is_not_known_leaves_the_others() -> None:
    found = read_settings("import os\nmodel = dict(size=2, path=os.getcwd())\n", "c.py")
    assert leaf(found, "model", "size") == 2
    assert isinstance(found["model"], dict)
    assert found["model"]["path"].why == "is os.getcwd(), which is no literal"  # type: ignore[union-attr]


def test_a_file_is_laid_over_those_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "a.py").write_text("size = 1\nmodel = dict(llm=dict(name='m', dtype='x'), lora=dict(r=8))\n")
    (tmp_path / "base" / "b.py").write_text("_base_ = './a.py'\noptimizer = dict(type='AdamW')\n")
    path = str(tmp_path / "c.py")
    text = "_base_ = ['base/b.py']\nmodel = dict(llm=dict(dtype='y'), lora=dict(_delete_=True, rank=4))\n"
    found = read_settings(text, path)
    assert (leaf(found, "model", "llm", "name"), leaf(found, "model", "llm", "dtype")) == ("m", "y")
    assert isinstance(found["model"], dict)
    assert set(found["model"]["lora"]) == {"rank"}  # type: ignore[arg-type]
    assert (leaf(found, "size"), leaf(found, "optimizer", "type")) == (1, "AdamW")
    assert isinstance(found["size"], Argument)
    assert found["size"].line is None
    assert "_base_" not in found
    lazy = "with read_base():\n    from .base.b import *\n    from .base.a import size as other\nmodel = dict(llm=1)\n"
    found = read_settings(lazy, path)
    assert (leaf(found, "optimizer", "type"), leaf(found, "other"), found["model"].keys()) == ("AdamW", 1, {"llm"})  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text", ["_base_ = 'missing.py'\n", "with read_base():\n    from .missing import *\n", "_base_ = 'c.py'\n"]
)
def test_a_base_that_cannot_be_read_is_left_to_be_said(text: str, tmp_path: Path) -> None:
    path = tmp_path / "c.py"
    path.write_text(text)
    held = read_settings(text, str(path))["_base_"]
    assert isinstance(held, Argument)
    assert "could not be read" in str(held.why)


def test_deep_expressions_and_what_is_no_python_are_refused_or_not_known() -> None:
    assert read_settings("name = " + "-" * 200 + "1\n", "c.py")["name"].why  # type: ignore[union-attr]
    with pytest.raises(InputError, match="no Python"):
        read_settings("model = dict(\n", "c.py")


def test_values_that_double_are_given_up(tmp_path: Path) -> None:
    lines = ["d0, x0, y0 = 1, 1, 1", "d0 = dict(a=1)", "x0 = 'ab'", "y0 = [1]"]
    for n in range(1, 40):
        lines += [f"d{n} = dict(a=d{n - 1}, b=d{n - 1})", f"x{n} = x{n - 1} + x{n - 1}", f"y{n} = y{n - 1} + y{n - 1}"]
    (tmp_path / "c.py").write_text("\n".join(lines) + "\n")
    found = read_settings("\n".join(lines) + "\n", str(tmp_path / "c.py"))
    assert not any(_is_large(held) for held in found.values())
    for name in ("x39", "y39"):
        held = found[name]
        assert isinstance(held, Argument)
        assert held.why is not None


BASE = """
model = dict(llm=dict(name="a", dtype="x"), lora=dict(r=8))
train_dataloader = dict(batch_size=1, dataset=dict(max_length=2))
"""
OF_A_BASE = """
from mmengine.config import read_base
with read_base():
    from .base import *
model["lora"]["r"] = 16
model.update(dict(llm=dict(dtype="y")))
model.lora.update(alpha=4)
train_dataloader.batch_size = 7
train_dataloader["dataset"]["max_length"] *= 4
"""
OF_ITS_OWN = """
data = dict(max_length=2048, n=[1, 2])
model = dict(llm=dict(name="a", dtype="x"), lora=dict(r=8))
loader = dict(dataset=data)
data["max_length"] = 4096
data["packed"] = model["llm"]["name"]
del model["lora"]
model.update(llm=dict(name="b"))
data.update({"k": 1}, z=2)
x = loader["dataset"]["max_length"]
gone = 3
del gone
"""
DATA = {"max_length": 4096, "n": [1, 2], "packed": "a", "k": 1, "z": 2}


def test_mappings_are_changed_in_place_as_mmengine_leaves_them(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text(BASE, encoding="utf-8")
    path = str(tmp_path / "c.py")
    assert plain(read_settings(OF_A_BASE, path)) == {
        "model": {"llm": {"name": "a", "dtype": "y"}, "lora": {"r": 16, "alpha": 4}},
        "train_dataloader": {"batch_size": 7, "dataset": {"max_length": 8}},
    }
    assert plain(read_settings(OF_ITS_OWN, path)) == {
        "data": DATA,
        "model": {"llm": {"name": "b"}},
        "loader": {"dataset": DATA},
        "x": 4096,
    }


@pytest.mark.parametrize(
    "change",
    [
        'data["x"] = data',
        "data.setdefault('x', 3)",
        "data[choose()] = 3",
        "data.update(choose())",
        "change(data)",
        "del data['nothing']",
        "for key in data:\n    data[key] = 0",
    ],
)
def test_a_change_that_is_not_followed_leaves_a_mapping_unknown_wherever_it_stands(change: str) -> None:
    found = read_settings(f"data = dict(n=1)\nmodel = dict(a=2, data=data, all=[data])\n{change}\n", "c.py")
    model = found["model"]
    assert isinstance(model, dict)
    assert plain(model["a"]) == 2
    for held in (found["data"], model["data"], model["all"].value[0]):  # type: ignore[union-attr]  # a list
        assert isinstance(held, Argument)
        assert held.why == "is changed in line 3 in a way that is not followed"
