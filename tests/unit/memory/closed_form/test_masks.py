import pytest

from compatcheck.memory.closed_form.masks import masks


@pytest.mark.parametrize(("mask", "size"), [("none", ()), ("ones", ()), ("padding", (2 * 2 * 1024**2,) * 3)])
def test_sdpa_needs_a_mask_only_for_padding(make_run, mask, size):
    found = masks(make_run(model__attn_implementation="sdpa", run__attention_mask=mask))
    assert tuple(found[0].size if found else ()) == size


def test_a_mask_nobody_described_is_in_the_high_bound(make_run):
    (found,) = masks(make_run(model__attn_implementation="sdpa"))
    assert found.size == (0, 0, 2 * 2 * 1024**2)


def test_eager_attention_always_has_one_and_flash_never(make_run):
    assert masks(make_run(model__attn_implementation="eager"))[0].size.expected == 2 * 2 * 1024**2
    assert masks(make_run()) == ()
