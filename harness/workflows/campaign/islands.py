"""Lets the jobs of a fuzzing campaign learn from each other.

Each job takes a generation of its target's corpus, and brings back what it added. The campaign's own process merges
that into the corpus, which outlives the campaign: entries whose features smaller ones have are dropped, and an entry
that is new on one target is tried on the others. It knows an entry by its name and its features alone; only the suite
knows what is in one.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from harness.core.cache import disk_errors
from harness.record import corpus_folder
from harness.workflows.campaign import archive
from harness.workflows.campaign.job import LEARNED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.workflows.campaign.campaign_folder import CampaignFolder
    from harness.workflows.campaign.job import CampaignJob

MOST_UNTRIED = 150
"""How many entries that its target has not tried a job takes at most. No two jobs take the same at a time."""
GENERATION_BYTES = 8 << 20
"""The most that the entries of a generation may have: each job receives them through the scheduler."""


class Islands:
    """The corpora of a campaign's targets, below one folder."""

    def __init__(self, campaign: CampaignFolder, corpora: Path, say: Callable[[str], None]) -> None:
        """Merge what has arrived so far: the campaign may have been stopped."""
        self._campaign = campaign
        self._corpora = corpora
        self._say = say
        self._builds: dict[Path, str] = {}
        """Corpus → the build on which its target tries entries now, once a job has told it."""
        self._trying: dict[str, set[str]] = {}
        """Job → the untried entries that it has taken."""
        self._generations = Counter(entry.target for entry in campaign.journal() if entry.what == "learned")
        for name in campaign.arrived():
            self._merge(campaign.jobs[name])

    def generation(self, job: CampaignJob) -> bytes:
        """The packed start of a job: what its target's corpus needs, and some entries to try."""
        corpus = self._corpus(job)
        build = self._builds.get(corpus)
        taken = {
            name
            for other, names in self._trying.items()
            if other != job.name and self._corpus(self._campaign.jobs[other]) == corpus
            for name in names
        }
        needed: list[Path] = []
        untried: list[Path] = []
        for entry in corpus_folder.entries(corpus):
            features = corpus_folder.features_of(entry)
            if features is None or (build is not None and features.build != build):
                untried += [entry] if entry.name not in taken else []
            elif features.new:
                needed += [entry, corpus_folder.features_path(entry)]
        untried = untried[:MOST_UNTRIED]
        self._trying[job.name] = {entry.name for entry in untried}
        return archive.pack(self._corpora, _within(self._corpora, [*untried, *needed]))

    def learn(self, job: CampaignJob) -> None:
        """Merge what an arrived job brought back, and report what is known now."""
        self._trying.pop(job.name, None)
        features, kept = self._merge(job)
        target = job.cells[0].target
        self._generations[target] += 1
        self._campaign.note("learned", job=job.name, target=target, features=features, kept=kept)
        self._say(f"{target}: generation {self._generations[target]} shows {features} features with {kept} entries")

    def _merge(self, job: CampaignJob) -> tuple[int, int]:
        """Merge, share and minimise. Merging the same twice changes nothing.

        Raises InfrastructureError for a corpus that cannot be written.
        """
        with disk_errors(self._corpora):
            return self._merge_into(self._corpus(job), job)

    def _merge_into(self, corpus: Path, job: CampaignJob) -> tuple[int, int]:
        brought = self._campaign.run_of(job.name) / LEARNED / corpus.name
        found = corpus_folder.tried(brought)
        for name, features in found.items():
            self._builds[corpus] = features.build
            before = corpus_folder.features_of(corpus / name)
            if before is not None and before.build == features.build:
                if set(features.new) <= set(before.new):
                    continue
                features = msgspec.structs.replace(features, new=sorted({*before.new, *features.new}))  # noqa: PLW2901
            entry = brought / name
            if entry.is_file():
                if entry.stat().st_size > corpus_folder.LARGEST_BYTES:
                    # No suite wrote it.
                    continue
                corpus_folder.keep(corpus / name, entry.read_bytes())
            corpus_folder.note(corpus / name, features)
        counts = corpus_folder.minimise(corpus, self._builds.get(corpus, ""))
        others = {self._corpus(other) for other in self._campaign.record.jobs} - {corpus}
        for other in others:
            for name in found:
                kept = (corpus / name).is_file() and not (other / name).exists()
                if kept and corpus_folder.features_of(other / name) is None:
                    corpus_folder.keep(other / name, (corpus / name).read_bytes())
        return counts

    def _corpus(self, job: CampaignJob) -> Path:
        """As harness.workflows.check names the folder."""
        cell = job.cells[0]
        return self._corpora / f"{job.tree_name or cell.server}-{cell.target}"


def _within(folder: Path, paths: list[Path]) -> list[Path]:
    """The first of some paths, as many as a generation may have, as they are named from the folder on."""
    chosen: list[Path] = []
    left = GENERATION_BYTES
    for path in paths:
        left -= path.stat().st_size
        if left >= 0:
            chosen.append(path.relative_to(folder))
    return chosen
