"""Stands in for `plumb` in tests of the engine. It sleeps, and copies a run folder that the test has made.

It imports nothing from the project, so that a test measures only the engine. Its settings file contains the place of
the run folders, how long to sleep, where to log each start and end, whether the machine is unfit, and whether the
stand-in lies.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path


def main(settings_file: str, words: list[str]) -> int:
    settings = json.loads(Path(settings_file).read_text("utf-8"))
    job = Path(words[words.index("--run") + 1])
    name = f"{words[words.index('--target') + 1]}-{words[words.index('--suite') + 1]}"
    with Path(settings["log"]).open("a", encoding="utf-8") as stream:
        stream.write(f"{name} {os.getpid()}\n")
    if settings.get("full"):
        # /dev/full behaves like a full disk.
        try:
            Path("/dev/full").write_bytes(b"evidence")
        except OSError as error:
            sys.stderr.write(f"error: the operating system refuses: {error.strerror}\n  try: free some space\n")
            return 7
    time.sleep(settings["seconds"])
    shutil.copytree(Path(settings["runs"]) / name, job)
    if "--corpus" in words:
        # The corpus that it was given, and one more entry, which shows one more feature.
        corpus = Path(words[words.index("--corpus") + 1]) / f"redis-3.2.6-{words[words.index('--target') + 1]}"
        corpus.mkdir(parents=True, exist_ok=True)
        number = len(list(corpus.glob("*.features")))
        (corpus / f"entry{number}").write_bytes(b"x" * number)
        shown = {"build": "stand-in", "new": [number]}
        (corpus / f"entry{number}.features").write_text(json.dumps(shown), "utf-8")
    if settings.get("lies"):
        path = job / "findings.json"
        document = json.loads(path.read_text("utf-8"))
        for cell in document["cells"]:
            cell.update(verdict="PASS", passed=1, failed=0)
        path.write_text(json.dumps({**document, "verdict": "PASS", "findings": [], "causes": []}), "utf-8")
        return 0
    return int((job / "exit-code").read_text("utf-8"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
