"""A constant for a model whose gradients are never clipped: they are not, however much room rounding takes."""
import numpy as np
import pytest
import torch
from torch import nn

from mfdl.accounting.methods.lipschitz import Lipschitz
from mfdl.learning.clipping import Batch, ClippingRule, record_loss
from mfdl.learning.methods.clipped_gradients import Scratch, gradients
from mfdl.learning.methods.layers import chain
from mfdl.learning.methods.linear import updates_of
from mfdl.learning.methods.noise_supply import room_for_rounding


def longest_gradient(feature_norm, clip):
    """Of three classes, when a record of a wrong class is as long as it may be; clipped."""
    model = nn.Sequential(nn.Linear(4, 3, bias=False))
    record = feature_norm * torch.tensor([0.5, -0.5, 0.5, 0.5])
    theta = torch.outer(torch.tensor([1.0, 0.0, 0.0]), record / record.norm()**2 * 200).flatten()
    batch = Batch(record[None, None], torch.tensor([[2]]), torch.ones(1, 1))
    return gradients(model, chain(model, record[None]), theta[None, None], batch, ClippingRule(record_loss("cross-entropy"), clip, 1), Scratch())[0].flatten()


@pytest.mark.parametrize("feature_norm", [0.3, 1.0, 7.0])
def test_where_no_clip_is_assumed_nothing_is_clipped_even_if_rounding_takes_room(feature_norm):
    whole = longest_gradient(feature_norm, None)
    longest = float(whole.norm())
    assert longest == pytest.approx(np.sqrt(2) * feature_norm, rel=1e-6)
    step = 0.1 / feature_norm**2
    never, perhaps = (float(Lipschitz.of("softmax", feature_norm, step, clip_active=active).c) for active in (False, True))
    promised = 0
    for clip in longest * np.linspace(0.8, 1.3, 26):
        coarsest = 0.0999 * clip / np.sqrt(12)  # rounding takes a tenth of the clip at most
        room = room_for_rounding(clip, coarsest, 12, 1)
        assert 0.9 * clip <= room < 0.901 * clip
        c = float(updates_of(nn.Linear(4, 3, bias=False), "cross-entropy", feature_norm, step, clip).c)
        assert c in (never, perhaps)
        if c == never:
            promised += 1
            assert torch.equal(longest_gradient(feature_norm, room), whole)
    assert promised > 5


@pytest.mark.parametrize("feature_norm", [0, -1.0, float("nan")])
def test_a_norm_that_no_feature_can_have_is_refused(feature_norm):
    with pytest.raises(ValueError, match="feature_norm=.*: expected a positive number"): updates_of(nn.Sequential(nn.Linear(4, 2)), "cross-entropy", feature_norm, 0.1, 1.0)
