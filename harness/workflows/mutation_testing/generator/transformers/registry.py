"""Every transformer by the name that operators.toml has for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.workflows.mutation_testing.generator.transformers import calls, layouts, widths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from harness.analysis.c_source.syntax import Replacement
    from harness.workflows.mutation_testing.generator.transformers.place import Place

TRANSFORMERS: Mapping[str, Callable[[Place], Iterator[Replacement]]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        calls.wrong_variable,
        calls.renamed_call,
        calls.dereference,
        widths.narrow,
        widths.other_sign,
        calls.printf_length,
        layouts.packed,
        layouts.header_fields_swapped,
        layouts.header_field_narrowed,
        widths.other_size,
        widths.halves_swapped,
    )
}
"""Name in operators.toml -> transformer."""
