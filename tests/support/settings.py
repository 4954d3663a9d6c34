"""The configs under which the conformance suite runs every registered method, in loopback, simulated and real.

A method without rows fails the suite. Values override those of `tests.conformance.test_drivers.config`.
"""

from __future__ import annotations

from typing import Any

SETTINGS: dict[str, list[dict[str, Any]]] = {
    "single": [
        {"method": "single", "parts": 1},
        {"method": "single:style=gather", "parts": 1, "model": "gcn", "layer0": "cache"},
        {"method": "single:style=gather", "parts": 1, "model": "gat", "heads": 2, "hidden_heads": "mean"},
    ],
    "vanilla": [
        {"method": "vanilla:dtype=fp16"},
        {"method": "vanilla:style=pull"},
        {"method": "vanilla:style=pull", "model": "gat", "layer0": "exchange"},
        {"method": "vanilla", "norm": "l2"},
        {"method": "vanilla:overlap=true"},
        {"method": "vanilla:gradients=early", "model": "gat"},
        {"method": "vanilla", "precision": "bf16"},
        {"method": "vanilla:style=pull:overlap=true", "model": "gcn"},
        {"method": "vanilla", "model": "gcn-no-loop"},
    ],
    "bns-gcn": [
        {"method": "bns-gcn:p=0.4"},
        {"method": "bns-gcn:p=0.0"},
        {"method": "bns-gcn:p=0.0", "layer0": "cache", "model": "gat"},
        {"method": "bns-gcn:p=0.4:sampling=fixed", "layer0": "cache"},
        {"method": "bns-gcn:p=0.4:rebuild=host", "model": "gat"},
        {"method": "bns-gcn:p=0.3:sampling=bes"},
        {"method": "bns-gcn:p=0.5:overlap=true", "model": "gcn", "order": "linear-first"},
        {"method": "bns-gcn:p=0.3:sampling=dropedge"},
        {"method": "bns-gcn:p=0.3:sampling=fixed", "model": "gat"},
    ],
    "pipegcn": [
        {"method": "pipegcn:gradients=early"},
        {"method": "pipegcn", "precision": "bf16", "model": "gcn", "norm": "none"},
        {"method": "pipegcn:smooth=both:gamma=0.5:dropout=after"},
        {"method": "pipegcn:smooth=gradients:debias=true", "model": "gat", "heads": 2, "hidden_heads": "mean"},
    ],
    "sar": [
        {"method": "sar"},
        {"method": "sar:depth=0", "layer0": "exchange", "order": "linear-first", "model": "gcn"},
        {"method": "sar:depth=2", "model": "gat", "layer0": "exchange", "heads": 2, "hidden_heads": "mean"},
    ],
    "sylvie-s": [
        {"method": "sylvie-s:bits=1"},
        {"method": "sylvie-s:bits=4:side=fp16"},
        {"method": "sylvie-s:scope=all"},
        {"method": "sylvie-s:bits=4:overlap=true", "precision": "bf16"},
        {"method": "sylvie-s:bits=2:overlap=true", "order": "auto"},
        {"method": "sylvie-s:bits=2", "model": "gat"},
        {"method": "sylvie-s:bits=4:scope=all:dropout=after"},
    ],
    "sylvie-a": [
        {"method": "sylvie-a"},
        {"method": "sylvie-a:staleness=3:bits=4:dropout=after"},
        {"method": "sylvie-a:quantiser=inline:bits=2", "model": "gat"},
    ],
    "subgraph-approximation": [
        {"method": "subgraph-approximation:overlap=0.3"},
        {"method": "subgraph-approximation:overlap=0.2:batch=16:fanouts=5/4/3"},
        {"method": "subgraph-approximation:overlap=0.3:degrees=full:loss=all"},
        {"method": "subgraph-approximation:overlap=0"},
        {"method": "subgraph-approximation:overlap=0.3:master=apart:loss=all"},
    ],
    "cagnet": [
        {"method": "cagnet", "parts": 4},
        {"method": "cagnet", "parts": 4, "model": "gcn", "layer0": "cache", "partitioner": "contiguous"},
        {"method": "cagnet:algorithm=1.5d:replication=2", "parts": 4, "model": "gcn"},
    ],
    "sancus": [
        {"method": "sancus"},
        {"method": "sancus:rule=change:bound=0.3", "model": "gcn"},
        {"method": "sancus:rule=period:period=3:warmup=2", "layer0": "exchange"},
    ],
    "roc": [
        {"method": "roc"},
        {"method": "roc:memory=0.00001", "model": "gcn"},
        {"method": "roc:memory=0.000005:rows=neighbours", "order": "aggregate-first", "layer0": "precompute"},
    ],
    "cdfgnn": [
        {"method": "cdfgnn"},
        {"method": "cdfgnn:bits=2:rule=printed:last=half", "model": "gcn", "order": "linear-first"},
        {"method": "cdfgnn:cache=false:bits=4", "layer0": "precompute"},
        {"method": "cdfgnn:quantise=false:eps0=0.05", "model": "gat"},
        {"method": "cdfgnn:cache=false:quantise=false"},
        {"method": "cdfgnn:rule=fixed:last=half", "model": "gat", "heads": 2, "hidden_heads": "mean"},
        {"method": "cdfgnn:loop=edge:servers=2", "model": "gcn"},
        {"method": "cdfgnn:loop=edge:cache=false", "model": "gat"},
        {"method": "cdfgnn:rule=fixed", "model": "gcn-no-loop", "order": "linear-first"},
    ],
    "ec-graph": [
        {"method": "ec-graph:period=4:bits=1"},
        {"method": "ec-graph:fp=compressed:bp=compressed:range=row:servers=2", "order": "auto"},
        {"method": "ec-graph:select=element:period=3:layer0=exchange"},
        {"method": "ec-graph:select=matrix:tune=false:servers=1", "model": "gcn"},
        {"method": "ec-graph:period=4:bits=4", "model": "gat"},
        {"method": "ec-graph:wire=product:period=4", "order": "auto"},
        {"method": "ec-graph:tuner=pooled:requests=false:period=5", "norm": "l2"},
        {"method": "ec-graph:range=requested:table=values:period=4", "order": "linear-first"},
        {"method": "ec-graph:fp=compressed:features=exact:layer0=precompute", "norm": "l2", "model": "gcn"},
    ],
    "adaqp": [
        {"method": "adaqp:period=3:group=4"},
        {"method": "adaqp:bits=2", "model": "gcn", "order": "linear-first"},
        {"method": "adaqp:period=2:group=16:lambda=0.8", "model": "gcn-no-loop", "layer0": "cache"},
    ],
    "distgnn": [
        {"method": "distgnn:loss=clones"},
        {"method": "distgnn:delay=3", "model": "gcn", "order": "linear-first"},
        {"method": "distgnn:delay=2:loss=clones:layer0=precompute"},
        {"method": "distgnn:delay=none", "model": "gcn-no-loop"},
    ],
    "distgnn-ec": [
        {"method": "distgnn-ec:r=3"},
        {"method": "distgnn-ec:r=2:missing=cached", "model": "gcn", "order": "linear-first"},
        {"method": "distgnn-ec:r=4:bins=halo", "layer0": "exchange"},
    ],
    "graphsage-ns": [
        {"method": "graphsage-ns:fanout=3:batch=20"},
        {"method": "graphsage-ns:fanout=4:batch=32", "model": "gcn", "order": "auto"},
        {"method": "graphsage-ns:fanout=2:batch=25", "model": "gat"},
    ],
    "distdgl": [
        {"method": "distdgl:fanout=3:batch=20"},
        {"method": "distdgl:fanout=4:batch=0", "model": "gcn"},
    ],
    "vr-gcn": [
        {"method": "vr-gcn:batch=20"},
        {"method": "vr-gcn:fanout=2:batch=32:estimator=cvd", "model": "gcn", "order": "linear-first"},
    ],
    "fastgcn": [
        {"method": "fastgcn:nodes=12:batch=20"},
        {"method": "fastgcn:nodes=15:batch=25:sampling=ordered:norm=root", "model": "gcn"},
    ],
    "ladies": [
        {"method": "ladies:nodes=12:batch=20"},
        {"method": "ladies:nodes=15:batch=25:normalise=none:sampling=ordered:norm=root", "model": "gcn"},
    ],
    "as-gcn": [
        {"method": "as-gcn:nodes=12:batch=20:rate=0.1"},
        {"method": "as-gcn:nodes=15:batch=25:sampling=poisson", "model": "gcn"},
    ],
    "ec-graph-s": [
        {"method": "ec-graph-s:fanouts=4/3/2:period=4"},
        {"method": "ec-graph-s:fanouts=full/3/full:fp=exact:bp=residual", "model": "gcn"},
        {"method": "ec-graph-s:fanouts=4/3/2:wire=product:range=requested:requests=false", "order": "auto"},
    ],
    "cluster-gcn": [
        {"method": "cluster-gcn:clusters=24:batch=3"},
        {"method": "cluster-gcn:clusters=30:batch=4:norm=enhanced:diagonal=0.5", "model": "gcn"},
        {"method": "cluster-gcn:clusters=12:batch=0", "model": "gat"},
    ],
    "agl": [
        {"method": "agl:fanout=4/3/2:batch=20"},
        {"method": "agl:fanout=5:batch=0:prune=false:io=hidden", "model": "gcn", "order": "auto", "linear_layers": 1},
        {"method": "agl:fanout=full/4/2:batch=16", "model": "gat"},
    ],
    "aligraph-fg": [
        {"method": "aligraph-fg:fanout=4/3/2", "model": "gcn"},
        {"method": "aligraph-fg:fanout=full/4/4:norm=model:merge=true:batch=30", "model": "gat"},
        {"method": "aligraph-fg:fanout=3:norm=model", "linear_layers": 1},
    ],
    "graphsaint": [
        {"method": "graphsaint:size=40:coverage=5"},
        {"method": "graphsaint:sampler=edge:size=25:coverage=8", "model": "gcn", "order": "auto"},
        {"method": "graphsaint:sampler=rw:size=12:depth=2:coverage=0", "model": "gat"},
        {"method": "graphsaint:sampler=mrw:size=40:frontier=8:clip=5:coverage=4", "linear_layers": 1},
    ],
}


def rows() -> list[dict[str, Any]]:
    """Every row of every method."""
    return [row for found in SETTINGS.values() for row in found]


def label(row: dict[str, Any]) -> str:
    """The row as a test's id."""
    return ",".join(str(value) for value in row.values())
