"""Programs for contributors, such as generators of documents. Not part of the suite."""
