"""campaign.html: the campaign's state for people, rewritten while it runs. It needs no network, script or tool.

What the page shows of a server is escaped, and the page's own policy forbids the browser to run or load anything.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup

from harness.core.cache import write_whole
from harness.core.untrusted_text import visible
from harness.report.line_chart import line_chart
from harness.workflows.campaign.campaign_status import status_of

if TYPE_CHECKING:
    from pathlib import Path

    from harness.workflows.campaign.campaign_folder import CampaignFolder
    from harness.workflows.campaign.campaign_status import CampaignStatus

NAME = "campaign.html"
WRITE_SECONDS = 5.0
BUSY_SHARE = 0.02
"""The share of the campaign's time that its page may take: reading many results takes long."""
WIDTH, HEIGHT = 640, 120
SAMPLES, LABELLED = 24, 6
"""How many points a line of features over time has, and which of them have their time below them."""

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
{% if status.goes_on %}<meta http-equiv="refresh" content="10">{% endif %}
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Campaign: {{ status.arrived }} of {{ status.jobs }} jobs</title>
<style>
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8884; vertical-align: top }
progress { width: 100%; height: 1.2rem }
.arrivals polyline { fill: none; stroke: currentColor; stroke-width: 2 }
.new { font-weight: 600 }
</style></head><body>
<h1>Campaign</h1>
<p>{{ "It is running" if status.goes_on else "It is complete" if status.arrived == status.jobs else "It has stopped" }}:
{{ status.arrived }} of {{ status.jobs }} jobs arrived, {{ status.given }} given, {{ status.waiting }} waiting.
{{ status.cells_arrived }} of {{ status.cells }} cells. {{ status.jobs_per_minute }} jobs a minute
{%- if status.minutes_left and status.goes_on %}, {{ status.minutes_left }} minutes left{% endif %}.
Begun {{ status.begun }}.</p>
<progress max="{{ status.jobs }}" value="{{ status.arrived }}" aria-label="jobs arrived"></progress>
{% if points %}<svg class="arrivals" viewBox="0 0 {{ width }} {{ height }}" role="img"
aria-label="jobs arrived over time">
<polyline points="{{ points }}"/></svg>{% endif %}
<h2>Cells</h2>
<table><tr><th>verdict</th><th>cells</th></tr>
{% for verdict, number in status.verdicts | dictsort %}<tr><td>{{ verdict }}</td><td>{{ number }}</td></tr>
{% endfor %}</table>
<h2>Findings so far</h2>
{% if status.findings %}<table><tr><th>finding</th><th>jobs</th></tr>
{% for finding in status.findings %}<tr><td{% if not finding.known %} class="new"{% endif %}>{{ shown(finding.title) }}
<br><code>{{ shown(finding.id) }}</code>{% if finding.known %} (known){% endif %}</td>
<td>{% for job in finding.jobs %}<a href="jobs/{{ job }}/run/report.html">{{ job }}</a> {% endfor %}</td></tr>
{% endfor %}</table>{% else %}<p>None.</p>{% endif %}
{% if status.corpora %}<h2>What jobs have learned</h2>
<p>Features are edges of the server's code, where the emulator reports them, and shapes of replies elsewhere.</p>
<table><tr><th>target</th><th>generation</th><th>features</th><th>kept entries</th></tr>
{% for row in status.corpora %}<tr><td>{{ shown(row.target) }}</td><td>{{ row.generation }}</td>
<td>{{ row.features }}</td><td>{{ row.kept }}</td></tr>
{% endfor %}</table>
{{ growth }}{% endif %}
<h2>Workers</h2>
{% if status.workers %}<table><tr><th>worker</th><th>Plumbline</th><th>cells</th>
<th>delivered</th><th>works on</th></tr>
{% for worker in status.workers %}<tr><td>{{ shown(worker.name) }}</td><td>{{ shown(worker.version) }}</td>
<td>{{ worker.cells }}</td><td>{{ worker.landed }}</td><td>{{ worker.running | join(", ") }}</td></tr>
{% endfor %}</table>{% else %}<p>None now.</p>{% endif %}
<p>Jobs given again because a worker was lost: {{ status.lost }}. Results that arrived twice: {{ status.again }}.</p>
{% for text in status.refused %}<p>Refused: {{ shown(text) }}</p>{% endfor %}
{% for text in status.remarks %}<p>{{ shown(text) }}</p>{% endfor %}
</body></html>
"""


def page_of(status: CampaignStatus) -> str:
    """The document."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=False)
    template = environment.from_string(PAGE)
    return template.render(
        status=status, points=_points(status), growth=_growth(status), width=WIDTH, height=HEIGHT, shown=visible
    )


def _points(status: CampaignStatus) -> str:
    """The line of the chart: how many jobs had arrived at each time."""
    if len(status.arrivals) < 2:
        return ""
    last = status.arrivals[-1][0] or 1.0
    return " ".join(
        f"{WIDTH * at / last:.1f},{HEIGHT - HEIGHT * number / status.jobs:.1f}" for at, number in status.arrivals
    )


def _growth(status: CampaignStatus) -> Markup:
    """The chart of each target's features over time; empty before there is a line."""
    if max((len(row.growth) for row in status.corpora), default=0) < 2:
        return Markup()
    last = max(row.growth[-1][0] for row in status.corpora)
    times = [last * number / SAMPLES for number in range(SAMPLES + 1)]
    divisor, unit = (3600, "h") if last > 2 * 3600 else (60, "min")
    names = [f"{at / divisor:.1f} {unit}" if number % LABELLED == 0 else "" for number, at in enumerate(times)]
    lines = {visible(row.target): [_shown_at(row.growth, at) for at in times] for row in status.corpora}
    # line_chart escapes what it is given.
    return Markup(line_chart("features over time", names, lines))  # noqa: S704


def _shown_at(growth: list[tuple[float, int]], at: float) -> int | None:
    return next((features for when, features in reversed(growth) if when <= at), None)


class PageWriter:
    """Keeps a campaign's page up to date at little cost."""

    def __init__(self, folder: CampaignFolder) -> None:
        self._folder = folder
        self._due = 0.0

    def write_if_due(self) -> None:
        """Write the page if the last one is old enough."""
        if time.monotonic() >= self._due:
            self.write()

    def write(self) -> Path:
        """Write the page. Returns its path."""
        started = time.monotonic()
        path = self._folder.path / NAME
        write_whole(path, page_of(status_of(self._folder)).encode())
        took = time.monotonic() - started
        self._due = time.monotonic() + max(WRITE_SECONDS, took / BUSY_SHARE)
        return path
