"""What servers cost as one HTML file: the tables, and charts with the servers on one axis and one line a target."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.report.formats.page import environment
from harness.report.line_chart import line_chart
from harness.workflows.measure.server_cost_tables import difference_table, origins, remarks, tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.workflows.measure.cost_document import Measurement

LEAST_SERVERS = 2
"""One server does not make a line."""


class CostChart(NamedTuple):
    """One figure of one workload."""

    title: str
    image: str
    """SVG as a data URL: styles inside an image do not reach the page."""


def charts(measurement: Measurement) -> list[CostChart]:
    """Instructions and bytes of every workload by server, where at least two servers have figures."""
    found = []
    for workload in dict.fromkeys(one.workload for one in measurement.costs):
        mine = {(one.target, one.server): one for one in measurement.costs if one.workload == workload}
        instructions = {place: one.instructions.value for place, one in mine.items()}
        growth = {place: one.growth_bytes.value for place, one in mine.items()}
        written = {place: one.written_bytes.value for place, one in mine.items()}
        found += _chart(f"{workload}: instructions a request", measurement.servers, instructions)
        if max(growth.values()) >= 1:
            found += _chart(f"{workload}: bytes of used_memory a request", measurement.servers, growth)
        if any(written.values()):
            found += _chart(f"{workload}: bytes written to files a request", measurement.servers, written)
    for workload in dict.fromkeys(one.workload for one in measurement.kernel_costs):
        on_kernels = [one for one in measurement.kernel_costs if one.workload == workload]
        instructions = {(one.target, one.server): one.instructions.value for one in on_kernels}
        found += _chart(f"{workload}: instructions a request with the kernel's", measurement.servers, instructions)
    return found


def page(measurement: Measurement) -> str:
    """The document."""
    return (
        environment(Path(__file__).parent)
        .get_template("server_cost_page.html.jinja")
        .render(
            measurement=measurement,
            charts=charts(measurement),
            tables=tables(measurement),
            differences=difference_table(measurement) if measurement.differences else None,
            remarks=remarks(measurement),
            origins=origins(measurement),
        )
    )


def _chart(title: str, servers: Sequence[str], values: Mapping[tuple[str, str], float]) -> list[CostChart]:
    """`values`: target and server -> the figure."""
    names = [server for server in servers if any(server == name for _, name in values)]
    if len(names) < LEAST_SERVERS:
        return []
    targets = sorted({target for target, _ in values})
    lines = {target: [values.get((target, name)) for name in names] for target in targets}
    drawn = b64encode(line_chart(title, names, lines).encode()).decode("ascii")
    return [CostChart(title, f"data:image/svg+xml;base64,{drawn}")]
