"""What a stack does around its layers: norms."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from harness.conformance import adjacency, dense_forward
from harness.graphs import LocalGraph
from harness.nn import GNN, Dense, copy_on_meta
from tests.support.conformance import make_model, make_parts
from tests.support.graphs import owners, random_graph

GRAPH = random_graph(40, 160, features=6, seed=2)


@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
def test_l2_divides_hidden_rows_before_the_relu_and_leaves_the_last_layer(kind: str) -> None:
    model = make_model(kind, GRAPH, norm="l2")
    (part,) = make_parts(GRAPH, owners(GRAPH, 1, "hash"), 1)
    assert part.x is not None and not len(model.norms), "nothing is learnt"
    graph: LocalGraph = part.graph.with_self_loops() if model.self_loops else part.graph
    if model.self_loops:
        graph = LocalGraph(graph.own.with_edge_map(), graph.halo.with_edge_map(), graph.degree, graph.halo_degree)
    h = part.x
    for l, layer in enumerate(model.layers):
        before = layer(graph, h, h[:0])
        h = model.update(l, graph, h, model.message(l, h), h[:0])
        if l == model.depth - 1:
            assert torch.equal(h, before)
        else:
            torch.testing.assert_close(h, (before / before.norm(dim=1, keepdim=True)).relu())
    nodes = torch.argsort(part.nodes)
    torch.testing.assert_close(h[nodes], dense_forward(model, adjacency(GRAPH), part.x[nodes]))


def test_a_row_of_zeros_stays_zero_and_has_no_gradient() -> None:
    dense = Dense(3, 4)
    with torch.no_grad():
        dense.linear.bias.zero_()
    model = GNN([dense, Dense(4, 2)], [3, 4, 2], norm="l2")
    x = torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
    graph: Any = None  # dense layers read none
    h = model.update(0, graph, x, x, x[:0])
    h.sum().backward()
    assert h[0].tolist() == [0.0] * 4 and dense.linear.weight.grad is not None
    assert dense.linear.weight.grad.isfinite().all() and dense.linear.bias.grad is not None
    assert dense.linear.bias.grad.abs().max() < 100


def test_a_copy_on_meta_has_the_shapes_of_the_model_and_reads_none_of_its_tensors() -> None:
    model = make_model("sage", GRAPH, norm="layer")
    model.layers[-1].neighbour.weight = model.layers[-1].own.weight  # tied weights stay tied
    called: list[Any] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            called.extend(value for value in args if isinstance(value, torch.Tensor))
            return func(*args, **(kwargs or {}))

    with Watch():
        copy = copy_on_meta(model)
    assert not [tensor for tensor in called if not tensor.is_meta]
    own, theirs = dict(copy.named_parameters()), dict(model.named_parameters())
    assert own.keys() == theirs.keys() and copy.widths == model.widths
    assert all(tensor.is_meta and tensor.shape == theirs[name].shape for name, tensor in own.items())
    assert copy.layers[-1].neighbour.weight is copy.layers[-1].own.weight
    assert not {id(module) for module in copy.modules()} & {id(module) for module in model.modules()}


class Remembering(nn.Module):
    """A module of someone else, with a list of its own parts, a hook, and its own way to be unpickled."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(2, 2)
        self.parts, self.notes = [self.part], {"seen": [0]}
        self.open: list[int] = []
        self.same = self.open
        self.register_forward_hook(lambda *_: None)


class Unpickled(Remembering):
    def __setstate__(self, state: Any) -> None:
        super().__setstate__({**state, "told": True})


@pytest.mark.parametrize(("kind", "told"), [(Remembering, False), (Unpickled, True)])
def test_a_copy_on_meta_is_a_deep_one(kind: type[nn.Module], told: bool) -> None:
    model = make_model("sage", GRAPH)
    model.layers.append(kind())
    model.train(False)
    copy = copy_on_meta(model)
    old: Any = model.layers[-1]
    new: Any = copy.layers[-1]
    assert type(new) is kind and new.parts[0] is new.part is not old.part and new.part.weight.is_meta
    assert new.open is new.same is not old.open
    assert new.notes == old.notes and new.notes["seen"] is not old.notes["seen"] and len(new._forward_hooks) == 1
    assert hasattr(new, "told") == told and not copy.training
    new.register_forward_pre_hook(lambda *_: None)
    assert not old._forward_pre_hooks
