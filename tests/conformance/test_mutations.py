"""The mutations of `python -m tests.mutations` fit the code of today; that command tells whether they are noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.conformance import CHECKS
from harness.methods.registry import METHODS, parse_method
from tests.kernel_mutations import KernelMutation, kernel_mutations
from tests.mutations import Mutation, mutations

REPOSITORY = Path(__file__).resolve().parents[2]
BESIDE_FACTS = {"cycle", "bytes", "memory"}


@pytest.mark.parametrize("mutation", mutations(), ids=lambda m: f"{m.method}-{m.what}")
def test_the_text_that_a_mutation_changes_is_there_once(mutation: Mutation) -> None:
    assert (REPOSITORY / mutation.file).read_text().count(mutation.old) == 1
    assert mutation.old != mutation.new


@pytest.mark.parametrize("mutation", kernel_mutations(), ids=lambda m: m.what)
def test_the_text_of_a_kernel_that_a_mutation_changes_is_there_once(mutation: KernelMutation) -> None:
    assert (REPOSITORY / mutation.file).read_text().count(mutation.old) == 1
    assert mutation.old != mutation.new
    assert (REPOSITORY / mutation.tests).exists()


def test_every_promise_of_every_method_is_broken_once() -> None:
    broken = {(parse_method(m.method).name, m.fact) for m in mutations()}
    for name in METHODS.builtin:
        method = parse_method(name)
        for check in CHECKS:
            facts = set(check.facts) or {check.name} & BESIDE_FACTS
            if check.selected(method, method.promises()):
                assert not facts or {(name, fact) for fact in facts} & broken, f"nothing breaks {check.name} of {name}"
