"""One change of text for every promise of every method, for `tests.mutations`."""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    """A method's text, the fact that the change breaks, the change in words, and in the file's text."""

    method: str
    fact: str
    what: str
    file: str
    old: str
    new: str


M, X = "harness/methods/", "harness/exchanges/"
EDGE, PUSH, BASE = M + "edge_cut.py", X + "_push_pull.py", M + "base.py"
COUNTED = ("an all-to-all counts one byte less a pair", "harness/effects.py", "total = self.outgoing + COUNT",
           "total = np.maximum(self.outgoing - 1, 0) + COUNT")  # fmt: skip
REDUCED = ("the all-reduce is counted for one value too few", BASE, "for p in model.parameters()) + 1)",
           "for p in model.parameters()))")  # fmt: skip
ODD = ("odd epochs multiply once more", EDGE, "        h = part.x\n",
       "        h = part.x * 1.0 if rank.epoch % 2 else part.x\n")  # fmt: skip
FIXED_KEY = ("every epoch draws the same", PUSH, 'return codec.encode(rows, rank.key(f"codec/{label}", layer))',
             "return codec.encode(rows, 7)")  # fmt: skip


def _declares(file: str, old: str, new: str) -> tuple[str, str, str, str]:
    return f"declares {new}", M + file, old, new


SINGLE = [
    Mutation("single", "exact", "the precomputed input layer is 1 % too large", EDGE,
             "aggregation.forward(graph, part.x, halo_x), None", "aggregation.forward(graph, part.x, halo_x) * 1.01, None"),
    Mutation("single", "cut", "any number of ranks is accepted", M + "single.py", "if num_parts != 1:", "if num_parts < 1:"),
    Mutation("single", "repeats", *ODD),
    Mutation("single", "bytes", "sends a row to itself over the wire by its formula", BASE, "8 * (num_ranks - 1)", "8 * num_ranks"),
]  # fmt: skip

VANILLA = [
    Mutation("vanilla", "exact", "the decoded halo is zero", PUSH, "        return x, halo\n\n    async def adjoint",
             "        return x, halo * 0\n\n    async def adjoint"),
    Mutation("vanilla", "exact", "halo gradients are not added at their owners", PUSH,
             "return self.route.add_back(g_own, self._scaled(returned))", "return g_own"),
    Mutation("vanilla", "exact", "gradients are divided by the local count", BASE, "max(part.totals.num_train, 1)",
             "max(part.train.shape[0], 1)"),
    Mutation("vanilla", "exact_when", *_declares("vanilla.py", 'exact_when={"dtype": "fp32"}', 'exact_when={"dtype": "bf16"}')),
    Mutation("vanilla", "cut", *_declares("vanilla.py", 'cut="edge"', 'cut="vertex"')),
    Mutation("vanilla", "repeats", *ODD),
    Mutation("vanilla", "bytes", *COUNTED),
    Mutation("vanilla:dtype=fp16", "lossy", "rows are sent in fp32", M + "vanilla.py", "codec = Cast(DTYPES[self.dtype])",
             "codec = Cast(None)"),
    Mutation("vanilla:dtype=fp16", "bounded", "rows are sent in bf16", M + "vanilla.py", '"fp16": torch.float16',
             '"fp16": torch.bfloat16'),
    Mutation("vanilla:dtype=fp16", "exact_when", "fp32 is fp16, too", M + "vanilla.py", '"fp32": None',
             '"fp32": torch.float16'),
    Mutation("vanilla:style=pull", "exact", "pulled gradients are dropped", PUSH,
             "return self.aggregation.adjoint(self.graph, g_z, halo)", "return self.aggregation.adjoint(self.graph, g_z, halo * 0)"),
    Mutation("vanilla:style=pull", "bytes", *REDUCED),
]  # fmt: skip

BNS = [
    Mutation("bns-gcn", "unbiased", "1/p is forgotten", M + "bns_gcn.py", "return 1.0 / self.p", "return None"),
    Mutation("bns-gcn", "unbiased", "the sample is never drawn anew", M + "bns_gcn.py",
             'draw = rank.generator("boundary").random', 'draw = np.random.default_rng(1).random'),
    Mutation("bns-gcn", "lossy", "every boundary node is kept", M + "bns_gcn.py", "if self.p == 1.0:\n            return Sample",
             "if self.p <= 1.0:\n            return Sample"),
    Mutation("bns-gcn", "exact_when", *_declares("bns_gcn.py", 'exact_when={"p": 1.0}', 'exact_when={"p": 0.9}')),
    Mutation("bns-gcn", "cut", *_declares("bns_gcn.py", 'cut="edge"', 'cut="vertex"')),
    Mutation("bns-gcn", "repeats", "shapes depend on the epoch", M + "bns_gcn.py",
             'np.floor(self.p * available + (0.5 if', 'np.floor(self.p * available + rank.epoch % 2 + (0.5 if'),
    Mutation("bns-gcn", "bytes", "kept rows are told in 8 bytes", M + "bns_gcn.py", ".to(torch.int32)", ".to(torch.int64)"),
    Mutation("bns-gcn:p=0.0", "bounded", "what is missing is replaced by a multiple of own rows", M + "edge_cut.py",
             "            return model.update(l, self.view(state, plan), h, message, message[:0])",
             "            return 9 * model.update(l, self.view(state, plan), h, message, message[:0])"),
    Mutation("bns-gcn:p=0.3:sampling=fixed", "unbiased", "the realised share is forgotten", M + "bns_gcn.py",
             "share = available / np.maximum(kept, 1)", "share = available / np.maximum(available, 1)"),
    Mutation("bns-gcn:p=0.3:sampling=bes", "unbiased", "edges of the boundary are kept twice as often", M + "bns_gcn.py",
             'graph.halo.drop_edges(rank.key("halo edges"), share)', 'graph.halo.drop_edges(rank.key("halo edges"), 2 * share)'),
    Mutation("bns-gcn:p=0.3:sampling=dropedge", "unbiased", "degrees stay those before dropping", M + "bns_gcn.py",
             "degree=graph.degree * share,", "degree=graph.degree,"),
]  # fmt: skip

SYLVIE = [
    Mutation("sylvie-s", "unbiased", *FIXED_KEY),
    Mutation("sylvie-s", "lossy", "rows are sent as they are", M + "sylvie.py", "return StochasticRows(self.bits, self.side)",
             "return Cast(None)"),
    Mutation("sylvie-s", "cut", *_declares("sylvie.py", 'facts = Facts(cut="edge"', 'facts = Facts(cut="overlap"')),
    Mutation("sylvie-s", "repeats", *ODD),
    Mutation("sylvie-s", "bytes", "scale and minimum travel in fp16", M + "sylvie.py", "StochasticRows(self.bits, self.side)",
             'StochasticRows(self.bits, "fp16")'),
    Mutation("sylvie-s", "exact", *_declares("sylvie.py", "exact=False, repeats=True", "exact=True, repeats=True")),
    Mutation("sylvie-s:scope=all", "unbiased", "returned gradients are dropped", M + "sylvie.py",
             "return self.route.add_back(own, returned)", "return own"),
    Mutation("sylvie-s:bits=4", "unbiased", "codes are decoded one level off", "harness/codecs/_stochastic.py",
             "return rows.to(dtype)", "return rows.to(dtype) + side[:, :1].to(dtype)"),
    Mutation("sylvie-a", "staleness", "every epoch is synchronous", M + "sylvie.py",
             "bool(self.staleness) and (rank.epoch + 1) % self.staleness == 0", "True"),
    Mutation("sylvie-a", "staleness", "the first message that arrives is not used", X + "_pipeline.py",
             "if arrived is None:", "if arrived is None or rank.epoch == 1:"),
    Mutation("sylvie-a", "staleness", *_declares("sylvie.py", "staleness=1, lossy", "staleness=2, lossy")),
    Mutation("sylvie-a", "unbiased", *FIXED_KEY),
    Mutation("sylvie-a", "unbiased", "a stale row is used twice", X + "_pipeline.py",
             "            self.memory[label] = await rank.start(effect)",
             "            self.memory[label] = await rank.start(effect)\n            arrived = arrived if rank.epoch % 2 else None"),
    Mutation("sylvie-a", "lossy", "rows are sent as they are", M + "sylvie.py", "return StochasticRows(self.bits, self.side)",
             "return Cast(None)"),
    Mutation("sylvie-a", "cut", "declares vertex parts", M + "sylvie.py", 'cut="edge", exact=False, staleness',
             'cut="vertex", exact=False, staleness'),
    Mutation("sylvie-a", "bytes", *COUNTED),
    Mutation("sylvie-a", "memory", "messages in flight are left there", X + "_pipeline.py",
             "if isinstance(memory[label], Handle):", "if memory[label] is None:"),
    Mutation("sylvie-a:staleness=3", "cycle", "states a cycle of one epoch", M + "sylvie.py", "return max(self.staleness, 1)",
             "return 1"),
]  # fmt: skip

CODES = X + "_error_feedback.py"
EC = [
    Mutation("ec-graph", "compensated", "what was lost is not added", CODES, "rows = rows + self.residuals[key]", "pass"),
    Mutation("ec-graph", "compensated", "what was lost is subtracted", CODES, "rows = rows + self.residuals[key]",
             "rows = rows - self.residuals[key]"),
    Mutation("ec-graph", "compensated", "gradients are sent as they are", M + "ec_graph.py", 'if self.bp == "exact":',
             "if True:"),
    Mutation("ec-graph", "compensated", "predictions take twice the rate of change", X + "_trend.py",
             '(rank.epoch - int(known["since"]))\n            sent', '(rank.epoch + 1)\n            sent'),
    Mutation("ec-graph", "exact_when", "exact rows are 1 % too large", CODES, "rank, x.index_select(0, plan.send_rows), plan",
             "rank, 1.01 * x.index_select(0, plan.send_rows), plan"),
    Mutation("ec-graph", "settles", *_declares("ec_graph.py", "settles=12", "settles=1")),
    Mutation("ec-graph", "cut", *_declares("ec_graph.py", 'cut="edge"', 'cut="vertex"')),
    Mutation("ec-graph", "exact", *_declares("ec_graph.py", "exact=False", "exact=True")),
    Mutation("ec-graph", "lossy", "the lossless form is the method itself, by its facts", M + "ec_graph.py",
             "lossy=True, compensated=True", "lossy=False, compensated=True"),
    Mutation("ec-graph", "cycle", "states a cycle of one epoch", M + "ec_graph.py",
             'return self.period if self.fp == "trend" else 1', "return 1"),
    Mutation("ec-graph", "bytes", *COUNTED),
    Mutation("ec-graph", "memory", "the epoch of the base is a number, not a tensor", X + "_trend.py",
             "since = torch.tensor(rank.epoch)", "since = rank.epoch"),
    Mutation("ec-graph:fp=compressed:bp=compressed", "bounded", "one bit instead of two", M + "ec_graph.py",
             "Bucket(self.bits, self.range))", "Bucket(1, self.range))"),
    Mutation("ec-graph:fp=compressed:bp=compressed", "lossy", "rows are sent as they are", M + "ec_graph.py",
             'if self.fp == "exact":\n            return Exact', 'if True:\n            return Exact'),
    Mutation("ec-graph-s", "compensated", "what was lost is not added", CODES, "rows = rows + self.residuals[key]", "pass"),
    Mutation("ec-graph-s", "vanishes_with", "full keeps three neighbours", M + "ec_graph_s.py",
             'EVERYTHING if w == "full"', '3 if w == "full"'),
    Mutation("ec-graph-s", "lossy", "nothing is compressed or dropped", M + "ec_graph.py", 'if self.bp == "exact":', "if True:"),
    Mutation("ec-graph-s", "settles", *_declares("ec_graph_s.py", "settles=12", "settles=1")),
    Mutation("ec-graph-s", "cut", *_declares("ec_graph_s.py", 'cut="edge"', 'cut="vertex"')),
    Mutation("ec-graph-s", "exact", *_declares("ec_graph_s.py", "exact=False", "exact=True")),
    Mutation("ec-graph-s", "bytes", *COUNTED),
]  # fmt: skip

OWN, CACHE, SUMS = M + "subgraph_approximation.py", X + "_adaptive_cache.py", X + "_gather_scatter.py"
SUBGRAPH = [
    Mutation("subgraph-approximation", "vanishes_with", "parameters are summed, not averaged", OWN, "flat[:-1] / rank.size",
             "flat[:-1]"),
    Mutation("subgraph-approximation", "vanishes_with", "the loss is not the mean over the part", OWN,
             "training_loss(logits, part) / count)", "training_loss(logits, part))"),
    Mutation("subgraph-approximation", "vanishes_with", "copies have none of their edges", "harness/partition/overlap/_parts.py",
             "held[copies] = True", "held[copies[:1]] = True"),
    Mutation("subgraph-approximation", "cut", *_declares("subgraph_approximation.py", 'cut="overlap"', 'cut="edge"')),
    Mutation("subgraph-approximation", "exact", *_declares("subgraph_approximation.py", "exact=False", "exact=True")),
    Mutation("subgraph-approximation", "lossy", *_declares("subgraph_approximation.py", "lossy=True", "lossy=False")),
    Mutation("subgraph-approximation", "bytes", "a message counts one byte less", "harness/effects.py",
             "total[self.to] = self.tensor.numel() * self.tensor.element_size()",
             "total[self.to] = self.tensor.numel() * self.tensor.element_size() - 1"),
]  # fmt: skip

CDFGNN = [
    Mutation("cdfgnn", "bounded", "the threshold is 50 times what it should be", CACHE, "cached, self.threshold)",
             "cached, 50 * self.threshold)"),
    Mutation("cdfgnn", "bounded", "masters forget what mirrors sent", CACHE,
             "own = self.replicas.route.add_back(own, cache[\"copies\"])", "own = own * 1"),
    Mutation("cdfgnn", "bounded", "differences are not added to the cache", CACHE,
             "return before + self.codec.decode(", "return 0 * before + self.codec.decode("),
    Mutation("cdfgnn", "exact_when", "exact sums leave out mirrors", SUMS,
             "shared = self.replicas.route.add_back(shared, await self._gather(rank, mirrors, leg))",
             "await self._gather(rank, mirrors, leg)"),
    Mutation("cdfgnn", "lossy", "everything is sent as it is", M + "cdfgnn.py", "        if not self.cache:\n            return PlainLink(state.replicas, codec or Cast(None))",
             "        if True:\n            return PlainLink(state.replicas)"),
    Mutation("cdfgnn", "settles", *_declares("cdfgnn.py", "settles=3", "settles=1")),
    Mutation("cdfgnn", "cut", *_declares("cdfgnn.py", 'cut="vertex"', 'cut="edge"')),
    Mutation("cdfgnn", "exact", *_declares("cdfgnn.py", "exact=False", "exact=True")),
    Mutation("cdfgnn", "bytes", "flags are counted one byte short", "harness/effects.py", COUNTED[2], COUNTED[3]),
    Mutation("cdfgnn", "memory", "the threshold is a number, not a tensor", M + "cdfgnn.py",
             'memory["threshold"] = torch.tensor(min(max(eps, self.nu2), self.nu1), dtype=torch.float64)',
             'memory["threshold"] = min(max(eps, self.nu2), self.nu1)'),
    Mutation("cdfgnn:cache=false:bits=4", "bounded", "codes have 2 bits", M + "cdfgnn.py", "LinearRows(self.bits)", "LinearRows(2)"),
    Mutation("cdfgnn:cache=false:bits=4", "bytes", *COUNTED),
]  # fmt: skip

MUTATIONS = [*SINGLE, *VANILLA, *BNS, *SYLVIE, *EC, *SUBGRAPH, *CDFGNN]
