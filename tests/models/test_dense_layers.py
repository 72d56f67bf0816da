"""Linear layers and MLPs."""

from __future__ import annotations

from acenode.models.layers import MLP


def test_an_mlp_has_the_given_number_of_layers() -> None:
    sizes = [(m.in_features, m.out_features) for m in MLP(2, 3, 5, 4).linear_layers()]
    assert sizes == [(2, 5), (5, 5), (5, 5), (5, 3)]
