"""The documentation site: `tox -e docs` builds it with Sphinx from the same Markdown files that GitHub shows."""
