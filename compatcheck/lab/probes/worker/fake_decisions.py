"""The decisions that a training step takes from the contents of tensors, which fake tensors do not have.

Three contents are declared, by the probe that made the inputs: the attention mask, that positions count from 0 (nothing is
packed), and how tokens are routed to experts. A decision about the first two is taken by the release's own function, run once on
small real tensors with the declared contents; what it read from them is answered again when the function has to run on fake
tensors, so that nothing of its logic is repeated here. Routing is imposed, on real tensors as on fake ones, and the sizes that
follow from it are given to the operators whose output depends on it. That a layer is dropped with probability 0 is answered:
never. Everything else stays an error that names the operator.

On real tensors the same functions are watched, and every decision is noted on all back ends: equal notes are the test.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUTINGS = ("balanced", "skewed")
"""Token t goes to experts t x k, t x k + 1, … modulo their number; or every token to the first k experts."""

_MASKS = ("padding_mask", "attention_mask", "mask")
_POSITIONS = ("position_ids",)
_TOKENS = ("input_ids",)
_SHAPES = ("inputs_embeds", "input_embeds")
"""Arguments of the functions below by what they hold: the attention mask, positions, tokens; the last is asked for its shape."""

DECISIONS = (
    # 4.36 to today: whether sdpa gets a causal mask or a flag; models that have not moved to masking_utils.
    ("transformers.modeling_attn_mask_utils", "AttentionMaskConverter._ignore_causal_mask_sdpa"),
    # 4.36 to today: whether an encoder has a mask at all.
    ("transformers.modeling_attn_mask_utils", "_prepare_4d_attention_mask_for_sdpa"),
    # 4.53 and newer: the same two questions, and whether position ids say that sequences are packed.
    ("transformers.masking_utils", "_ignore_causal_mask_sdpa"),
    ("transformers.masking_utils", "_ignore_bidirectional_mask_sdpa"),
    ("transformers.masking_utils", "find_packed_sequence_indices"),
    # 4.31 to 4.57: a warning that looks for padding among the tokens where there is no mask.
    ("transformers.modeling_utils", "PreTrainedModel.warn_if_padding_and_no_attention_mask"),
)
"""Module and name of every function that decides from the contents of tensors, by generation of transformers."""


class _Answers(TorchDispatchMode):
    """Notes what Python reads from tensors, or gives what was noted in the same order."""

    def __init__(self, given: list[Any] | None = None) -> None:
        super().__init__()
        self.given = given
        self.taken: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default}:
            if self.given:
                return self.given.pop(0)
            self.taken.append(func(*args, **(kwargs or {})))
            return self.taken[-1]
        return func(*args, **(kwargs or {}))


class Decisions:
    """What is declared about the contents of one model's inputs, and what was decided from it."""

    def __init__(self, *, fake: bool, mask: list[list[int]] | None = None, routing: str | None = None) -> None:
        """Declare.

        Args:
            fake: whether the tensors are fake; otherwise decisions are watched only.
            mask: rows of 0 and 1 of every attention mask that is given, encoder's and decoder's; None where there is none.
            routing: one of `ROUTINGS`; None leaves it to the model, which fake tensors can follow where no size depends on it.
        """
        self.fake = fake
        self.routing = routing
        self.taken: dict[tuple[str, str], int] = {}
        """Question and answer → how often."""
        self._mask: Any = None
        if fake and mask is not None:  # real tensors have it already
            with _disable_current_modes():
                self._mask = torch.tensor(mask, dtype=torch.bool)

    def describe(self) -> str:
        """Say what was decided, in one line."""
        return ", ".join(f"{question}: {answer} ({count}x)" for (question, answer), count in sorted(self.taken.items()))

    @contextlib.contextmanager
    def apply(self, model: Any) -> Iterator[None]:
        """Decide as declared while the steps of a model run inside; what was changed is put back at the end."""
        with contextlib.ExitStack() as stack:
            for module_name, name in DECISIONS:
                self._take_over(stack, module_name, name)
            for module in model.modules():
                if self.routing is not None and _is_experts(module):
                    self._impose(stack, module)
            if any(hasattr(module, "layerdrop") for module in model.modules()):
                stack.enter_context(_Draws(self))
            yield

    def _take_over(self, stack: contextlib.ExitStack, module_name: str, name: str) -> None:
        """Put `_decide` in the place of a function, wherever transformers holds it."""
        owner = sys.modules.get(module_name)
        *path, last = name.split(".")
        for part in path:
            owner = getattr(owner, part, None)
        original = getattr(owner, last, None)
        if owner is None or original is None:
            return

        @functools.wraps(original)
        def decide(*args: Any, **kwargs: Any) -> Any:
            return self._decide(last, original, args, kwargs)

        if path:
            kept = inspect.getattr_static(owner, last)
            _replace(stack, owner, last, staticmethod(decide) if isinstance(kept, staticmethod) else decide, kept)
            return
        for holder_name, holder in list(sys.modules.items()):
            if holder_name.startswith("transformers.") and vars(holder).get(last) is original:
                _replace(stack, holder, last, decide, original)

    def _decide(self, question: str, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if not self.fake:
            value = original(*args, **kwargs)
            self._note(question, value)
            return value
        bound = inspect.signature(original).bind(*args, **kwargs)
        contents = {name: self._content(name, value) for name, value in bound.arguments.items()}
        if any(value is NotImplemented for value in contents.values()):
            # Nothing is declared about these: the release does with fake tensors what it does, or fails.
            return original(*args, **kwargs)
        answers = _Answers()
        with _disable_current_modes(), answers:
            value = original(**contents)
            value = _plain(value)
        self._note(question, value)
        if not isinstance(value, torch.Tensor):
            return value
        with _Answers(answers.taken):
            return original(*args, **kwargs)

    def _content(self, name: str, value: Any) -> Any:
        """Return an argument with real contents, or NotImplemented where none are declared."""
        if not isinstance(value, torch.Tensor):
            return value
        shape = tuple(value.shape)
        with _disable_current_modes():
            if name in _MASKS and self._mask is None and len(shape) == 2:
                return torch.ones(shape, dtype=value.dtype)  # a model that gets no mask makes one that hides nothing
            if name in _MASKS and self._mask is not None and shape == tuple(self._mask.shape):
                return self._mask.to(value.dtype)
            if name in _POSITIONS:
                return torch.arange(shape[-1], dtype=value.dtype).expand(shape)
            if name in _TOKENS:
                return torch.full(shape, -1, dtype=value.dtype)  # no token is special, padding least of all
            if name in _SHAPES:
                return torch.empty((), dtype=value.dtype).expand(shape)
        return NotImplemented

    def _note(self, question: str, value: Any) -> None:
        value = _plain(value)
        answer = "a mask" if isinstance(value, torch.Tensor) else str(value)
        self.taken[question, answer] = self.taken.get((question, answer), 0) + 1

    def _impose(self, stack: contextlib.ExitStack, module: Any) -> None:
        """Route as declared in front of one module of experts."""
        original, count = module.forward, module.num_experts

        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            integers = [
                value
                for value in (*args, *kwargs.values())
                if isinstance(value, torch.Tensor) and not value.is_floating_point() and value.dim() == 2
            ]
            if not integers:  # experts that are not given who goes where
                return original(*args, **kwargs)
            index = integers[0]
            tokens, chosen = index.shape
            routed = torch.arange(tokens * chosen, device=index.device, dtype=index.dtype).view(tokens, chosen)
            routed = routed.remainder(count if self.routing == "balanced" else chosen)
            args = tuple(routed if value is index else value for value in args)
            kwargs = {name: routed if value is index else value for name, value in kwargs.items()}
            loads = expert_loads(self.routing, tokens=tokens, chosen=chosen, experts=count)
            with _Routing(loads, self, fake=self.fake):
                return original(*args, **kwargs)

        module.forward = forward
        stack.callback(module.__dict__.pop, "forward")


def expert_loads(routing: str | None, *, tokens: int, chosen: int, experts: int) -> list[int]:
    """Return how many tokens each expert gets.

    Args:
        routing: one of `ROUTINGS`.
        tokens: batch x sequence length.
        chosen: experts per token.
        experts: their number.
    """
    used = experts if routing == "balanced" else chosen
    whole, rest = divmod(tokens * chosen, used)
    return [whole + (expert < rest) if expert < used else 0 for expert in range(experts)]


class _Routing(TorchDispatchMode):
    """Gives operators inside a module of experts the sizes that follow from its load, or watches them on real tensors.

    A loop over experts asks which of them have tokens (one row each), compares each with a number that stands for none, and asks
    for the tokens of one.
    """

    def __init__(self, loads: list[int], decisions: Decisions, *, fake: bool) -> None:
        super().__init__()
        self.loads = loads
        self.hit = [expert for expert, load in enumerate(loads) if load]
        self.decisions = decisions
        self.fake = fake
        self.current: int | None = None
        self.hits_storage: int | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.nonzero.default:
            return self._nonzero(func, args[0])
        if self.fake and func is torch.ops.aten._local_scalar_dense.default:
            value = args[0]
            if value.dtype is torch.bool:
                return False
            if _storage(value) == self.hits_storage:
                self.current = self.hit[value.storage_offset()]
                return self.current
        return func(*args, **(kwargs or {}))

    def _nonzero(self, func: Any, tensor: Any) -> Any:
        first = tensor.dim() == 1
        if not self.fake:
            result = func(tensor)
        elif first:
            result = torch.empty((len(self.hit), 1), dtype=torch.int64, device=tensor.device)
            self.hits_storage = _storage(result)
        elif self.current is None:
            return func(tensor)
        else:
            result = torch.empty((self.loads[self.current], tensor.dim()), dtype=torch.int64, device=tensor.device)
        self.decisions._note("experts with tokens" if first else "tokens of an expert", result.shape[0])
        return result


class _Draws(TorchDispatchMode):
    """Answers whether a layer is dropped at random with a probability of 0: never. Other probabilities stay unanswered."""

    def __init__(self, decisions: Decisions) -> None:
        super().__init__()
        self.decisions = decisions
        self.drawn: int | None = None
        """Storage of a number that the operator before this one drew, or compared with 0."""
        self.compared = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        drawn, compared = self.drawn, self.compared
        self.drawn, self.compared = None, False
        aten = torch.ops.aten
        if drawn is None and func is not aten.rand.default:
            return func(*args, **(kwargs or {}))
        about_it = drawn is not None and isinstance(args[0], torch.Tensor) and _storage(args[0]) == drawn
        if func is aten._local_scalar_dense.default and about_it and compared:
            answer = False if self.decisions.fake else func(*args)
            self.decisions._note("layer dropped", answer)
            return answer
        result = func(*args, **(kwargs or {}))
        if func is aten.rand.default and list(args[0]) == []:
            self.drawn = _storage(result)
        elif func is aten.lt.Scalar and about_it and args[1] <= 0:
            self.drawn, self.compared = _storage(result), True
        return result


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def _is_experts(module: Any) -> bool:
    return type(module).__name__.endswith("Experts") and isinstance(getattr(module, "num_experts", None), int)


def _plain(value: Any) -> Any:
    """Return the bool in a tensor of one element; some releases return the tensor."""
    single = isinstance(value, torch.Tensor) and value.dtype is torch.bool and value.dim() == 0
    return bool(value) if single else value


def _replace(stack: contextlib.ExitStack, owner: Any, name: str, new: Any, old: Any) -> None:
    setattr(owner, name, new)
    stack.callback(setattr, owner, name, old)
